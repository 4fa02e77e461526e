"""Decoding runs fast and unseen; one pass over what was written then gives the weights of the steps that wrote it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_recorder import subject
from torch import Tensor

from regard.attention import AttentionCall, Seen, record
from regard.attention.kernels.window import SlidingWindow, WindowState
from regard.decode.config import DecodeConfig
from regard.decode.hypothesis import Hypothesis
from regard.decode.search import generate
from regard.tokens import BEGIN, END, PAD, UNKNOWN

WRITERS = [
    "transformer", "transformer, norms behind", "transformer, rotary", "transformer, shaw", "transformer, alibi",
    "bahdanau", "luong", "luong, fed", "luong, local-m", "luong, local-p",
    "gpt2", "gpt3, banded", "llama, grouped", "gpt2, reversible",
    "show, attend and tell", "show, attend and tell, hard", "caption-transformer",
]  # fmt: skip
SEARCHES = {
    "greedy": DecodeConfig(beam=1, min_length=5),
    "beam": DecodeConfig(beam=3, min_length=5),
    "sample": DecodeConfig(sample=True, seed=4, min_length=5, temperature=1.3),
}
LIMIT = 7
ROW = 1  # the longest source


def searched(name: str, options: DecodeConfig, dtype: torch.dtype = torch.float64) -> Hypothesis:
    """What a search writes for one source, or behind one token."""
    each = subject(name)
    model, batch = each.models[dtype], each.batch(each.models[dtype], [ROW])
    prefix = torch.tensor([[BEGIN]])
    forbidden = (PAD, BEGIN, UNKNOWN)
    (found,) = generate(model, each.reads(batch), prefix, end=END, limits=[LIMIT], options=options, forbidden=forbidden)
    return found[0]


@torch.no_grad()
def stepped(name: str, ids: list[int]) -> Seen:
    """The stepper on given tokens, one after the other, recorded."""
    each = subject(name)
    model = each.models[torch.float64]
    with record(model) as seen:
        _, state = model.start(each.reads(each.batch(model, [ROW])), torch.tensor([[BEGIN]]))
        for token in ids:
            _, state = model.step(torch.tensor([[token]]), state)
    return seen


@torch.no_grad()
def forced(name: str, ids: list[int]) -> tuple[Seen, Tensor]:
    """One pass over the same tokens, recorded; and the log-probability of each, the end's included."""
    each = subject(name)
    model = each.models[torch.float64]
    batch = each.rewritten(each.batch(model, [ROW]), torch.tensor([[BEGIN, *ids, END]]))
    with record(model) as seen:
        logits = each.outputs(model, batch)
    return seen, logits[0].log_softmax(dim=-1).gather(-1, torch.tensor([[*ids, END]]).T)[:, 0]


def rows_of(calls: list[AttentionCall], path: str) -> list[Tensor]:
    """The weights of each step (H, keys)."""
    return [call.weights()[0, :, -1] for call in calls if call.path == path and call.role in ("causal", "cross")]


def assert_steps_are_rows(steps: list[Tensor], whole: AttentionCall) -> None:
    """Step t is row t; what a step did not look at (later tokens, or those outside a band) has no weight there."""
    weights = whole.weights()[0]  # (H, T, S)
    assert len(steps) == weights.size(1)
    for t, step in enumerate(steps):
        row, seen = weights[:, t], step.size(-1)
        end = t + 1 if whole.role == "causal" else row.size(-1)
        assert torch.allclose(step, row[:, end - seen : end], rtol=0, atol=1e-10)
        assert not row[:, : end - seen].any() and not row[:, end:].any()


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("search", SEARCHES)
def test_one_pass_gives_the_weights_of_the_steps(name: str, search: str) -> None:
    found = searched(name, SEARCHES[search])
    ids = list(found.ids)
    assert 5 <= len(ids) <= LIMIT
    steps, (whole, told) = stepped(name, ids), forced(name, ids)
    calls = [call for call in whole.calls if call.role in ("causal", "cross")]
    assert calls
    for call in calls:
        assert_steps_are_rows(rows_of(steps.calls, call.path), call)
    assert max(steps.check(), whole.check()) < 1e-10
    expected = torch.tensor(found.token_log_probabilities, dtype=torch.float64)
    if search != "sample":  # there they are of the sharpened or flattened choice, which is not the model's own
        assert torch.allclose(told[: len(expected)], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "name", ["transformer", "bahdanau", "luong, fed", "gpt2", "llama, grouped", "caption-transformer"]
)
def test_a_search_that_is_recorded_itself_writes_the_same_and_looks_the_same(name: str) -> None:
    """A recorded language model leaves its fast step path."""
    ids = list(searched(name, SEARCHES["greedy"]).ids)
    with record(subject(name).models[torch.float64]) as seen:
        assert list(searched(name, SEARCHES["greedy"]).ids) == ids
    whole, _ = forced(name, ids)
    for call in whole.calls:
        if call.role in ("causal", "cross"):
            assert_steps_are_rows(rows_of(seen.calls, call.path), call)


def test_a_window_kernel_looks_in_one_pass_as_in_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps have a ring of keys, and no one is told what they weigh: here it is computed beside them."""
    name = "llama, window"
    ids = list(searched(name, SEARCHES["beam"]).ids)
    kernels = [module for module in subject(name).models[torch.float64].modules() if isinstance(module, SlidingWindow)]
    looked: dict[int, list[Tensor]] = {id(kernel): [] for kernel in kernels}

    def beside(method: str) -> Any:
        plain = getattr(SlidingWindow, method)

        def also(self: SlidingWindow, q: Tensor, k: Tensor, v: Tensor, state: WindowState) -> Tensor:
            out = plain(self, q, k, v, state)
            keys, values = state.last(min(state.filled, self.reach + 1))
            weights = (q @ keys.mT / q.size(-1) ** 0.5).softmax(dim=-1)
            assert torch.allclose(weights @ values, out, rtol=0, atol=1e-12)
            looked[id(self)].append(weights[0, :, 0])
            return out

        return also

    for method in ("step", "read"):
        monkeypatch.setattr(SlidingWindow, method, beside(method))
    stepped(name, ids)
    monkeypatch.undo()
    whole, _ = forced(name, ids)
    assert len(whole.calls) == len(kernels) == 2
    for call, kernel in zip(whole.calls, kernels, strict=True):
        assert_steps_are_rows(looked[id(kernel)], call)


@torch.no_grad()
def test_a_prompt_that_is_read_at_once_looks_as_its_tokens_do() -> None:
    """`start` reads several tokens in one call: its map has a row for each."""
    for name in ("gpt2", "gpt3, banded", "llama, grouped"):
        model = subject(name).models[torch.float64]
        ids = torch.randint(4, 60, (1, 9), generator=torch.Generator().manual_seed(1))
        with record(model) as prompt:
            model.start(None, ids)
        with record(model) as whole:
            model.read(ids)
        for found, expected in zip(prompt.calls, whole.calls, strict=True):
            assert torch.allclose(found.weights(), expected.weights(), rtol=0, atol=1e-12)
            assert torch.equal(found.allowed(), expected.allowed())
