"""The laid-out language model gives what its modules give, whoever comes and goes; and torch's own norm is ours."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.blocks.norm import RMSNorm
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.decode.stepper import Joins, sliding
from regard.models.config import GPT1Config, GPT2Config, GPT3Config, GPTConfig, LlamaConfig
from regard.models.fast import language as fast_language
from regard.models.fast import stepper as fast_stepper
from regard.models.fast.language import FastLanguage
from regard.models.fast.stepper import LaidOut
from regard.models.gpt import GPT

V = 23
SMALL: dict[str, Any] = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 20}
KINDS: dict[str, GPTConfig] = {
    "gpt1": GPT1Config(**SMALL),
    "gpt2": GPT2Config(**SMALL, random_offset=5),
    "gpt2 without biases, sinusoidal": GPT2Config(**SMALL, bias=False, positions="sinusoidal"),
    "gpt2 without norms": GPT2Config(**SMALL, norm="none", tied=False, positions="none"),
    "gpt3": GPT3Config(**{**SMALL, "layers": 4}, band=3),
    "llama": LlamaConfig(layers=2, width=24, heads=6, groups=2, feed_forward=20),
    "llama, one key for all heads": LlamaConfig(layers=2, width=24, heads=6, groups=1, feed_forward=20),
    "llama with biases": LlamaConfig(layers=2, width=24, heads=6, feed_forward=20, bias=True),
}


@pytest.fixture(autouse=True, params=["kernels", "torch"])
def little_room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers begin so small that they grow within a few steps. By kernels, where there is a compiler, and without."""
    monkeypatch.setattr(fast_stepper, "FIRST", 32)
    monkeypatch.setenv("REGARD_NATIVE", "1" if request.param == "kernels" else "0")


def build(config: GPTConfig, **changes: Any) -> GPT:
    torch.manual_seed(3)
    model = GPT(config.model_copy(update=changes), V).double().eval()  # type: ignore[arg-type]
    for parameter in model.parameters():  # norms and biases that do something
        nn.init.normal_(parameter, std=0.4)
    return model


def laid_out(model: GPT) -> FastLanguage:
    found = LaidOut(model, FastLanguage.of).stepper()
    assert isinstance(found, FastLanguage)
    return found


def padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """How long prompts are, and their ids, with something behind those that are shorter."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[*each, *[V - 1] * (longest - len(each))] for each in prompts])
    return torch.tensor([len(each) for each in prompts]), ids


def by_modules(model: GPT, sequences: list[list[list[int]]]) -> Tensor:
    """Logits behind each hypothesis of each source, every one read whole and alone: (B, W, V)."""
    found = [[model.output(model.read(torch.tensor([each])))[0, -1] for each in row] for row in sequences]
    return torch.stack([torch.stack(row) for row in found])


@torch.no_grad()
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_sources_that_come_and_go_are_what_each_is_alone(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of different lengths, beams of changing width, parents, survivors and newcomers drawn at random."""
    monkeypatch.setattr(fast_language, "AT_ONCE", 7)  # prompts are read in several parts
    monkeypatch.setattr(fast_language, "LEAST", 5)
    model, dice = build(KINDS[kind]), random.Random(seed)
    fast = laid_out(model)

    def prompts(count: int) -> list[list[int]]:
        return [[dice.randrange(V) for _ in range(dice.choice([1, 2, 5, 9, 17]))] for _ in range(count)]

    read = [[each] for each in prompts(4)]  # [source][hypothesis]: all tokens so far
    logits, state = fast.start(*padded([row[0] for row in read]))
    for _ in range(25):
        assert torch.allclose(logits, by_modules(model, read), rtol=0, atol=1e-10)
        if len(read) > 1 and dice.random() < 0.4:
            stay = sorted(dice.sample(range(len(read)), dice.randrange(1, len(read))))
            read, state = [read[row] for row in stay], fast.keep(state, torch.tensor(stay))
        width = dice.choice([1, len(read[0]), 3])
        if width != len(read[0]) or dice.random() < 0.5:
            parents = [[dice.randrange(len(row)) for _ in range(width)] for row in read]
            read = [[row[parent] for parent in chosen] for row, chosen in zip(read, parents, strict=True)]
            state = fast.reorder(state, torch.tensor(parents))
        if dice.random() < 0.4:
            new = prompts(dice.choice([1, 3]))
            _, other = fast.start(*padded(new))
            other = fast.reorder(other, torch.zeros(len(new), width, dtype=torch.long))
            read, state = read + [[each] * width for each in new], fast.join(state, other)
        tokens = [[dice.randrange(V) for _ in row] for row in read]
        read = [[[*old, token] for old, token in zip(*both, strict=True)] for both in zip(read, tokens, strict=True)]
        logits, state = fast.step(torch.tensor(tokens), state)
    assert torch.allclose(logits, by_modules(model, read), rtol=0, atol=1e-10) and logits.std() > 0.1


@torch.no_grad()
def test_a_source_whose_numbers_are_none_harms_no_other() -> None:
    model = build(KINDS["llama"])
    fast = laid_out(model)
    _, state = fast.start(None, torch.tensor([[1, 2], [3, 4], [5, 6]]))
    state.past[:, :, 1, :, : state.filled] = torch.nan
    logits, state = fast.step(torch.tensor([[7], [8], [9]]), state)
    assert logits[1].isnan().all() and logits[[0, 2]].isfinite().all()
    state = fast.join(fast.keep(state, torch.tensor([0, 2])), fast.start(None, torch.tensor([[10]]))[1])
    logits, _ = fast.step(torch.tensor([[11], [12], [13]]), state)
    expected = by_modules(model, [[[1, 2, 7, 11]], [[5, 6, 9, 12]], [[10, 13]]])
    assert torch.allclose(logits, expected, rtol=0, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3, "n_best": 2}, {"sample": True, "n_best": 2}], ids=str)
def test_prompts_of_any_length_slide_through_a_window_each_at_its_own_time(options: dict[str, Any]) -> None:
    """One batch of all against each alone by modules, which slide with one length for all."""
    model = build(KINDS["gpt2"], max_length=11, random_offset=0)
    prompts = [[1, 2, 3], [4] * 9, [5, 6, 7, 8, 9, 10, 11], [12] * 30]
    decode, fast = DecodeConfig(**options, length_penalty="none"), sliding(laid_out(model), 11)
    assert isinstance(fast, Joins) and not isinstance(sliding(model, 11), Joins)
    rest: dict[str, Any] = {"end": 0, "options": decode, "forbidden": [0]}
    together = generate(fast, *padded(prompts), limits=[19] * 4, streams=[0, 1, 2, 3], **rest)
    for place, prompt in enumerate(prompts):
        (alone,) = generate(sliding(model, 11), None, torch.tensor([prompt]), limits=[19], streams=[place], **rest)
        assert [each.ids for each in together[place]] == [each.ids for each in alone]
        for one, other in zip(together[place], alone, strict=True):
            assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, rel=0, abs=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_packed_weights_step_as_the_modules_do(kind: str) -> None:
    """In float32, wide enough and with enough rows, oneDNN packs them; also when most rows have ended."""
    config = KINDS[kind].model_copy(update={"width": 192, "heads": 6, "groups": 3, "feed_forward": 768})
    torch.manual_seed(5)
    model = GPT(config, 800).eval()
    fast, ids = laid_out(model), torch.randint(800, (6, 12), generator=torch.Generator().manual_seed(2))
    whole = model.output(model.read(ids))  # (6, 12, V)
    _, state = fast.start(None, ids[:, :8])
    for place in range(8, 12):
        logits, state = fast.step(ids[:, place : place + 1], state)
        assert torch.allclose(logits[:, 0], whole[:, place], rtol=0, atol=1e-5)
        if place == 9:
            rows = torch.tensor([1, 4])
            ids, whole, state = ids[rows], whole[rows], fast.keep(state, rows)


@pytest.mark.parametrize("changes", [{"experts": 3}, {"positions": "alibi"}, {"reversible": True}], ids=str)
def test_what_the_laying_out_does_not_know_goes_through_modules(changes: dict[str, Any]) -> None:
    model = build(KINDS["llama"], **changes)
    assert LaidOut(model, FastLanguage.of).stepper() is model
    ids = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, state = model.start(None, ids[:, :4])
        for place in range(4, 9):
            assert torch.allclose(logits[:, 0], model.output(model.read(ids[:, :place]))[:, -1], rtol=0, atol=1e-11)
            logits, state = model.step(ids[:, place : place + 1], state)


def test_whoever_looks_on_sees_the_modules_and_changed_weights_are_seen() -> None:
    model = build(KINDS["gpt2"])
    engine = LaidOut(model, FastLanguage.of)
    first = engine.stepper()
    assert engine.stepper() is first and isinstance(first, FastLanguage)
    with record(model):
        assert engine.stepper() is model
    with torch.no_grad():
        model.blocks[0].attention.query.weight.mul_(2)  # type: ignore[union-attr,operator]
        second = engine.stepper()
        assert isinstance(second, FastLanguage) and second is not first
        ids = torch.tensor([[4, 5, 6]])
        assert torch.allclose(second.start(None, ids)[0], model.start(None, ids)[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 33), (1, 1)])
@pytest.mark.parametrize("epsilon", [1e-5, 0.3])
def test_the_fast_root_mean_square_norm_is_torchs_own(shape: tuple[int, ...], epsilon: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x, wanted = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    found = []
    for kind in (nn.RMSNorm, RMSNorm):
        norm = kind(shape[-1], eps=epsilon).double()
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(-1, 2, shape[-1]))
        y = x.clone().requires_grad_()
        out = norm(y)
        out.backward(wanted)
        found.append((out.detach(), y.grad, norm.weight.grad))
    for own, torchs in zip(*found, strict=True):
        assert own is not None and torchs is not None
        assert torch.allclose(own, torchs, rtol=0, atol=1e-12)


def test_the_fast_norm_passes_the_gradient_check() -> None:
    norm = RMSNorm(6, eps=1e-3).double()
    nn.init.normal_(norm.weight)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (x,))
