"""The laid-out decoder of a Transformer gives what its modules give, through any turn a search may take."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Lengths, Remove, attend_reference, intervene, record, softness
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.models.config import TransformerConfig
from regard.models.encoder_decoder import Memory
from regard.models.fast import products as fast_step
from regard.models.fast import stepper as fast_stepper
from regard.models.fast.products import attend_heads
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.transformer import Transformer

SOURCES, TARGETS = 19, 31
BEGIN, END, PAD = 1, 2, 0
LENGTHS = [7, 3, 5, 1, 11]
CONFIGS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm": "post", "activation": "gelu"},
    "no norms": {"norm": "none", "decoder_layers": 1},
    "learned": {"positions": "learned", "heads": 5, "random_offset": 3},
    "rotary": {"positions": "rotary", "width": 18, "norm": "post"},
    "no positions": {"positions": "none", "scaled": False, "heads": 1},
    "tied": {"tied": "target", "decoder_layers": 3},
    "narrow": {"width": 7, "heads": 7, "feed_forward": 3},
}


@pytest.fixture(autouse=True, params=["kernels", "torch"])
def little_room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Buffers begin so small that they grow within a few steps. By kernels, where there is a compiler, and without."""
    monkeypatch.setattr(fast_stepper, "FIRST", 32)
    monkeypatch.setenv("REGARD_NATIVE", "1" if request.param == "kernels" else "0")
    way: str = request.param
    return way


def build(**changes: Any) -> Transformer:
    torch.manual_seed(7)
    config: dict[str, Any] = {
        "encoder_layers": 1, "decoder_layers": 2, "width": 15, "heads": 3, "feed_forward": 23, "dropout": 0.1,
        "tied": "none", "max_length": 83,
    }  # fmt: skip
    model = Transformer(TransformerConfig(**config | changes), SOURCES, TARGETS).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def sources() -> tuple[Tensor, Tensor]:
    ids = torch.randint(3, SOURCES, (5, 11), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor(LENGTHS)
    return ids.masked_fill(torch.arange(11) >= lengths[:, None], PAD), lengths


def laid_out(model: Transformer) -> FastDecoder:
    found = LaidOut(model, FastDecoder.of).stepper()
    assert isinstance(found, FastDecoder)
    return found


@torch.no_grad()
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", CONFIGS)
def test_any_walk_of_steps_is_that_of_the_modules(kind: str, seed: int) -> None:
    """Sources of different lengths, beams of changing width, parents and survivors drawn at random, slots given up."""
    model, dice = build(**CONFIGS[kind]), random.Random(seed)
    fast, rows = laid_out(model), 5
    prefix = torch.tensor([[BEGIN] + [dice.randrange(TARGETS) for _ in range(seed)] for _ in range(rows)])
    (logits, state), (expected, modules) = fast.start(sources(), prefix), model.start(sources(), prefix)
    given_up = False
    for _ in range(29):
        assert expected.std() > 0.1
        assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
        if rows > 1 and dice.random() < 0.12:
            stay = torch.tensor(sorted(dice.sample(range(rows), rows - 1)))
            rows, state, modules = len(stay), fast.keep(state, stay), model.keep(modules, stay)
        if dice.random() < 0.8:
            filled, parents = state.filled, torch.randint(logits.size(1), (rows, dice.choice([1, 3, 4])))
            state, modules = fast.reorder(state, parents), model.reorder(modules, parents)
            given_up |= state.filled < filled
            logits = logits[:, :1].expand(-1, parents.size(1), -1)  # of the new width
        tokens = torch.randint(TARGETS, (rows, logits.size(1)))
        (logits, state), (expected, modules) = fast.step(tokens, state), model.step(tokens, modules)
    assert given_up and state.filled < 3 * 29


@torch.no_grad()
def test_logits_of_many_rows_share_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a beam grows wider and sources leave; of few rows they are fresh."""
    monkeypatch.setattr("regard.models.fast.stepper.writes_in_place", lambda rows: rows >= 6)
    monkeypatch.setattr("regard.models.fast.native.FRESH", 5 * TARGETS)
    model, prefix = build(), torch.full((5, 1), BEGIN)
    fast, at = laid_out(model), []
    (logits, state), (_, modules) = fast.start(sources(), prefix), model.start(sources(), prefix)
    parents, stay = torch.zeros(5, 3, dtype=torch.long), torch.tensor([0, 2, 4])
    state, modules = fast.reorder(state, parents), model.reorder(modules, parents)
    for turn in range(5):
        if turn == 3:
            state, modules = fast.keep(state, stay), model.keep(modules, stay)
        tokens = torch.randint(TARGETS, (len(state), 3), generator=torch.Generator().manual_seed(turn))
        (logits, state), (expected, modules) = fast.step(tokens, state), model.step(tokens, modules)
        assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
        at.append(logits.data_ptr())
    assert len(set(at)) == 1 and logits.shape == (3, 3, TARGETS)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["pre", "learned", "rotary"])
def test_sources_that_come_and_go_are_what_each_is_alone(kind: str) -> None:
    """Newcomers join those that have read more, or less, and have longer sources, or shorter; each against modules, alone."""
    model, dice = build(**CONFIGS[kind]), random.Random(3)
    fast = laid_out(model)

    def drawn(count: int) -> list[list[int]]:
        return [[dice.randrange(3, SOURCES) for _ in range(dice.choice([1, 2, 5, 19]))] for _ in range(count)]

    def begun(texts: list[list[int]]) -> tuple[Tensor, Any]:
        longest = max(map(len, texts))
        ids = torch.tensor([[*each, *[PAD] * (longest - len(each))] for each in texts])
        return fast.start((ids, torch.tensor([*map(len, texts)])), torch.full((len(texts), 1), BEGIN))

    def expected() -> Tensor:
        found = []
        for text, sequences in zip(texts, read, strict=True):
            memory = model.encode(torch.tensor([text]), torch.tensor([len(text)]))
            found.append(
                torch.cat([model.output(model.decode(torch.tensor([each]), memory))[:, -1] for each in sequences])
            )
        return torch.stack(found)  # (B, W, V)

    texts = drawn(3)
    read = [[[BEGIN]] for _ in texts]
    logits, state = begun(texts)
    for turn in range(40):
        if len(read) > 1 and dice.random() < 0.45:
            stay = sorted(dice.sample(range(len(read)), dice.randrange(1, len(read))))
            texts, read, state = [texts[i] for i in stay], [read[i] for i in stay], fast.keep(state, torch.tensor(stay))
        width = dice.choice([1, 3]) if turn % 5 == 0 else len(read[0])
        parents = [[dice.randrange(len(row)) for _ in range(width)] for row in read]
        read = [[row[parent] for parent in chosen] for row, chosen in zip(read, parents, strict=True)]
        state = fast.reorder(state, torch.tensor(parents))
        if dice.random() < 0.4 and len(read) < 9:
            new = drawn(dice.choice([1, 4]))
            other = fast.reorder(begun(new)[1], torch.zeros(len(new), width, dtype=torch.long))
            texts, read, state = texts + new, read + [[[BEGIN]] * width for _ in new], fast.join(state, other)
        tokens = [[dice.randrange(TARGETS) for _ in row] for row in read]
        read = [[[*old, token] for old, token in zip(*both, strict=True)] for both in zip(read, tokens, strict=True)]
        logits, state = fast.step(torch.tensor(tokens), state)
        assert torch.allclose(logits, expected(), rtol=0, atol=1e-10) and logits.std() > 0.1


@torch.no_grad()
def test_a_long_sequence_and_a_beam_that_never_meets_again() -> None:
    """Slots beyond those that buffers begin with, of which none can be given up."""
    model = build()
    fast = laid_out(model)
    begin = torch.full((5, 1), BEGIN)
    (_, state), (_, modules) = fast.start(sources(), begin), model.start(sources(), begin)
    apart = torch.zeros(5, 3, dtype=torch.long)
    for _ in range(67):
        state, modules = fast.reorder(state, apart), model.reorder(modules, apart)
        apart = torch.arange(3).expand(5, 3)
        tokens = torch.randint(TARGETS, (5, 3))
        (logits, state), (expected, modules) = fast.step(tokens, state), model.step(tokens, modules)
        assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
    assert state.filled == 1 + 3 * 67


@torch.no_grad()
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_laid_out_encoder_reads_as_the_modules_do(kind: str) -> None:
    model, (ids, lengths) = build(**CONFIGS[kind], encoder_layers=2), sources()
    fast = laid_out(model)
    for source in ((ids, lengths), (ids[:2, :3], torch.tensor([3, 3])), (ids[:1], lengths[:1])):
        found, expected = fast.encode(*source), model.encode(*source)
        assert (found.mask is None) == (expected.mask is None)
        for row, length in enumerate(source[1].tolist()):
            one, other = found.vectors[row, :length], expected.vectors[row, :length]
            assert torch.allclose(one, other, rtol=0, atol=1e-10)


def test_an_encoder_that_is_not_plain_is_the_models_own() -> None:
    model = build(encoder_attention={"kind": "linear"})
    assert laid_out(model).encode == model.encode


@pytest.mark.parametrize("bias", [None, (5, 3, 7, 11), (5, 3, 1, 11)], ids=str)
def test_both_ways_to_attend_are_the_reference(bias: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = torch.Generator().manual_seed(4)
    q = torch.randn(5, 7, 3, 2, generator=dice, dtype=torch.float64).transpose(1, 2)  # (B, H, W, E)
    k, v = (torch.randn(5, 3, 13, 2, generator=dice, dtype=torch.float64)[:, :, :11] for _ in range(2))
    added = None if bias is None else torch.randn(bias, generator=dice, dtype=torch.float64)
    expected = attend_reference(q, k, v, bias=added, scale=0.3).transpose(1, 2).reshape(35, 6)
    for many in (1, 1000):
        monkeypatch.setattr(fast_step, "MANY", many)
        assert torch.allclose(attend_heads(q, k, v, added, 0.3), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_whoever_may_look_nowhere_sees_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    memory = Memory(torch.randn(3, 4, 15).double(), Lengths(torch.tensor([2, 0, 4])))
    fast, begin = laid_out(model), torch.full((3, 1), BEGIN)
    for stepper in (model, fast):
        monkeypatch.setattr(stepper, "encode", lambda: memory)
    assert torch.allclose(fast.start((), begin)[0], model.start((), begin)[0], rtol=0, atol=1e-10)


@torch.no_grad()
def test_in_float32_large_weights_are_packed() -> None:
    """For one row and for several there are different layouts of the output layer."""
    torch.manual_seed(5)
    model = Transformer(TransformerConfig(width=192, heads=6, feed_forward=768), 800, 800).eval()
    fast, dice = laid_out(model), torch.Generator().manual_seed(2)
    for rows in (1, 6):
        source = (torch.randint(800, (rows, 9), generator=dice), torch.full((rows,), 9))
        target = torch.randint(800, (rows, 7), generator=dice)
        whole = model.output(model.decode(target, model.encode(*source)))  # (B, 7, V)
        logits, state = fast.start(source, target[:, :1])
        for place in range(1, 7):
            logits, state = fast.step(target[:, place : place + 1], state)
            assert torch.allclose(logits[:, 0], whole[:, place], rtol=0, atol=1e-5)


# --- When it is taken


def test_weights_are_laid_out_once_and_again_when_they_change() -> None:
    model = build()
    engine = LaidOut(model, FastDecoder.of)
    first = engine.stepper()
    assert engine.stepper() is first
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.output.weight.sum().backward()
    optimiser.step()
    second = engine.stepper()
    assert second is not first and isinstance(second, FastDecoder)
    with torch.no_grad():
        begin = torch.full((5, 1), BEGIN)
        assert torch.allclose(second.start(sources(), begin)[0], model.start(sources(), begin)[0], rtol=0, atol=1e-10)
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    assert engine.stepper() is not second


def test_whoever_looks_on_sees_the_modules() -> None:
    model = build()
    engine = LaidOut(model, FastDecoder.of)
    with record(model.decoder):
        assert engine.stepper() is model
    with intervene(model, Remove("cross", layer=0, head=0)), torch.no_grad():
        assert engine.stepper() is model
        model.start(sources(), torch.full((5, 1), BEGIN))  # a change that meets nothing is an error
    with softness(0.5):
        assert engine.stepper() is model
        with softness(1.0):
            assert isinstance(engine.stepper(), FastDecoder)
    assert engine.stepper() is not model
    model.train()
    assert engine.stepper() is model


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "alibi"},
        {"positions": "t5"},
        {"positions": "shaw"},
        {"residual": False},
        {"decoder_attention": {"kind": "linear"}},
        {"decoder_attention": {"kind": "s4d"}, "positions": "none"},
        {"decoder_attention": {"kind": "mamba"}, "positions": "none"},
    ],
    ids=str,
)
def test_what_is_not_plain_goes_through_modules(changes: dict[str, Any]) -> None:
    model = build(**changes)
    assert LaidOut(model, FastDecoder.of).stepper() is model


# --- Through the search


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("kind", ["pre", "rotary", "learned"])
def test_a_search_finds_the_same(kind: str, beam: int) -> None:
    model = build(**CONFIGS[kind])
    options = DecodeConfig(beam=beam, n_best=beam, length_penalty="power", alpha=1.0)
    steppers: tuple[Any, ...] = (model, laid_out(model))
    found = [
        generate(
            stepper, sources(), torch.full((5, 1), BEGIN), end=END, limits=[9 + 2 * length for length in LENGTHS],
            options=options, forbidden=(PAD, BEGIN),
        )
        for stepper in steppers
    ]  # fmt: skip
    for ours, theirs in zip(*found, strict=True):
        assert [each.ids for each in ours] == [each.ids for each in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, rel=0, abs=1e-10)
    assert len({len(each.ids) for source in found[0] for each in source}) > 2
