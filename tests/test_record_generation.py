"""Decoding runs fast and unseen; one pass over what was written then gives the weights of the steps that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from test_recorder import CASES, subject
from torch import Tensor

from regard.attention import AttentionCall, MultiHead, Seen, channel, record
from regard.attention.kernels.sparse import SlidingWindow, WindowState
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Hypothesis
from regard.decode.search import generate
from regard.tasks.table import TASKS
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


# --- Which input each recorded row is, whatever became of the order

SHORT, LONG, MIDDLE = "a man", "two dogs sleep under a tree today", "the sun is bright"
SENTENCES = [SHORT, LONG, MIDDLE, "a red bike"]
PAIRS = [(SHORT, "nam a niam a"), (LONG, "god"), (MIDDLE, "thgirb si nus eht"), ("a red bike", "e")]
BATCHED = {"batch_sentences": 3, "max_length": 6, "min_length": 1}
SEARCHED = {
    "greedy": {"beam": 1},
    "beam": {"beam": 3, "n_best": 2},
    "samples": {"sample": True, "seed": 5, "temperature": 1.5, "n_best": 3},
}


@cache
def user_of(name: str) -> Any:
    """A predictor around the random weights of a case."""
    bundle = CASES[name][0]()
    return TASKS[bundle.config.task].make_predictor(bundle)


def pictures() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in ((12, 12), (20, 15), (9, 31), (14, 14))]


def asked(user: Any, questions: list[str]) -> None:
    user.answer(pictures()[0], questions)


READERS: dict[str, tuple[str, Callable[[Any, list[Any]], Any], list[Any]]] = {
    "pairs are scored": ("transformer", lambda user, pairs: user.score(pairs), PAIRS),
    "pairs are scored by a recurrent model": ("bahdanau", lambda user, pairs: user.score(pairs), PAIRS),
    "texts are scored": ("gpt2", lambda user, texts: user.score(texts), SENTENCES),
    "texts have vectors": ("bert", lambda user, texts: user.vectors(texts), SENTENCES),
    "a text is filled": ("bert", lambda user, texts: [user.fill(text) for text in texts], ["a [MASK] bike"]),
    "texts are classified": ("classify bert", lambda user, texts: user.classify(texts), SENTENCES),
    "texts are pooled": ("classify additive", lambda user, texts: user.classify(texts), SENTENCES),
    "pictures are classified": ("vit", lambda user, each: user.classify(each), pictures()),
    "questions are answered": (
        "answerer",
        asked,
        ["is there a circle ?", "red", "a large blue ring left of a cross ?"],
    ),
}


def assert_each_is_as_if_alone(
    name: str, use: Callable[[Any, list[Any]], Any], inputs: list[Any]
) -> list[AttentionCall]:
    """Every row of a recording of all inputs is a row of the recording of its own input, with the same labels."""
    user = user_of(name)
    with record(user) as seen:
        use(user, inputs)
    assert sorted({text for call in seen.calls for text in call.texts}) == list(range(len(inputs)))
    for text, each in enumerate(inputs):
        with record(user) as alone:
            use(user, [each])
        together = [call for call in seen.calls if text in call.texts]
        for path in {call.path for call in alone.calls}:
            ours, theirs = ([c for c in calls if c.path == path] for calls in (together, alone.calls))
            assert len(ours) == len(theirs)
            for call, single in zip(ours, theirs, strict=True):
                assert_same_rows(seen, call, text, alone, single)
    return seen.calls


def assert_same_rows(seen: Seen, call: AttentionCall, text: int, alone: Seen, single: AttentionCall) -> None:
    for hypothesis in range(len(single.q)):
        expected = single.weights()[hypothesis]  # (H, T, S)
        found = call.weights()[call.row(text, hypothesis), :, : expected.size(1), : expected.size(2)]
        assert torch.allclose(found, expected, atol=1e-5)
        labels = seen.labelled(call, text, hypothesis), alone.labelled(single, 0, hypothesis)
        for ours, theirs in zip(*labels, strict=True):
            assert ours[: len(theirs)] == theirs
            assert not any(ours[len(theirs) :]) or seen.axes(call)[0] == "hypotheses"  # what is padding has none


@pytest.mark.parametrize("reads", READERS)
def test_a_recorded_row_knows_which_input_it_was(reads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictors sort by length and read in batches; a recording counted its rows, so that labels and maps were others'."""
    monkeypatch.setattr("regard.tasks.classify.predictor.BATCH_TOKENS", 30)  # several passes for a few texts
    monkeypatch.setattr("regard.tasks.fill.predictor.BATCH", 3)
    monkeypatch.setattr("regard.tasks.classify_pictures.predictor.TOGETHER", 3)
    monkeypatch.setattr("regard.tasks.answer.predictor.TOGETHER", 2)
    monkeypatch.setattr("regard.tasks.generate.predictor.Generator.context", 7)  # longer texts are read in windows
    name, use, inputs = READERS[reads]
    assert_each_is_as_if_alone(name, use, inputs)


@pytest.mark.parametrize("search", SEARCHED)
@pytest.mark.parametrize("name", ["transformer", "bahdanau", "luong, fed"])
def test_a_hypothesis_belongs_to_its_source(name: str, search: str) -> None:
    """Through groups of like length, beams that are reordered, and sources that leave the batch when they are done."""

    def write(user: Any, texts: list[str]) -> None:
        places = [SENTENCES.index(each) for each in texts]  # on which samples depend
        limits = {"max_ratio": 0.7, "max_extra": 1}  # each source has its own
        user.translate(texts, places=places, batch_sentences=3, min_length=1, **limits, **SEARCHED[search])

    calls = assert_each_is_as_if_alone(name, write, SENTENCES)
    assert {1, 2} == {len(set(call.texts)) for call in calls}  # groups of two, of which some had left


@pytest.mark.parametrize("search", SEARCHED)
@pytest.mark.parametrize("name", ["gpt2", "gpt3, banded"])
def test_what_goes_on_belongs_to_its_prompt(name: str, search: str) -> None:
    """Prompts of one length are read together."""
    prompts, options = ["xqz", "k", "zzx", "qkj", "qx"], {**BATCHED, **SEARCHED[search]}

    def write(user: Any, texts: list[str]) -> None:
        user.generate(texts, places=[prompts.index(each) for each in texts], **options)  # for samples

    calls = assert_each_is_as_if_alone(name, write, prompts)
    assert {len(set(call.texts)) for call in calls} == {1, 3}


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("name", ["show, attend and tell", "caption-transformer"])
def test_a_caption_belongs_to_its_picture(name: str, search: str) -> None:
    options = {**BATCHED, **SEARCHED[search]}
    assert_each_is_as_if_alone(name, lambda user, each: user.caption(each, **options), pictures())


def test_labels_are_the_models_own_tokens_and_texts_are_those_that_were_given() -> None:
    """Sentence 0's labels stood on the map of sentence 1, the longest, and `texts=[0]` kept that."""
    user = user_of("transformer")
    reads, writes = user.tokenizers.source, user.tokenizers.target
    with record(user, only="cross") as seen:
        user.score(PAIRS[:3])
    (call, _) = seen.calls
    assert call.texts == (0, 1, 2)  # in one pass, and in the order of the inputs
    for text, (source, target) in enumerate(PAIRS[:3]):
        rows, columns = (tuple(filter(None, each)) for each in seen.labelled(call, text))
        assert columns == (*reads.labels(reads.encode(source)), "</s>")
        assert rows == (*writes.labels(writes.encode(target)), "</s>")
        with record(user, texts=[text], only="cross", layers=0) as one:
            user.score(PAIRS[:3])
        assert one.calls[0].texts == (text,) and one.labelled(one.calls[0])[1] == seen.labelled(call, text)[1]
        assert torch.equal(one.calls[0].weights()[0], call.weights()[text])
    given = {"source": [[f"{text}.{place}" for place in range(90)] for text in range(3)]}
    with record(user, only="cross", labels=given) as seen:
        user.score(PAIRS[:3])
    assert [seen.labelled(seen.calls[0], text)[1][0] for text in range(3)] == ["0.0", "1.0", "2.0"]


def test_a_step_is_labelled_by_what_each_hypothesis_has_read() -> None:
    user = user_of("transformer")
    with record(user, only=("causal", "cross"), layers=0) as seen:
        found = user.translate(SENTENCES[:2], beam=1, max_length=6, min_length=4)
    for text in range(2):
        steps = [call for call in seen.only("causal") if text in call.texts]
        read = ["<s>", *found[text].tokens]
        for place, call in enumerate(steps):
            assert seen.labelled(call, text) == ((read[place],), tuple(read[: place + 1]))
        looks = [call for call in seen.only("cross") if text in call.texts]
        assert [seen.labelled(call, text)[0] for call in looks] == [(token,) for token in read[: len(looks)]]


def test_what_is_named_for_one_recording_is_not_for_another_and_costs_nothing_without_any() -> None:
    assert isinstance(channel.reading([3]), nullcontext)
    model, x = torch.nn.Sequential(MultiHead(12, 3, role="self")), torch.randn(2, 5, 12)
    with record(model) as outer, channel.reading([7, 4], lambda row: {"text": ["ab"[row]] * 5}):
        model[0](x, x)
        with record(model) as inner:
            model[0](x, x)
    assert outer.calls[0].texts == (4, 7) and outer.labelled(outer.calls[0], 7)[0] == ("a",) * 5
    assert inner.calls[0].texts == (0, 1) and inner.labelled(inner.calls[0], 1)[0] == ("0", "1", "2", "3", "4")
    assert channel.inputs.get() is None
