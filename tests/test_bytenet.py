"""ByteNet: against a plain computation, position by position; what it can see, proven one token at a time; its steps."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.functional import conv1d, layer_norm, pad

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import PairBatch, pair_batch
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.models.bytenet import ByteNet
from regard.models.config import ByteNetConfig
from regard.models.presets import preset
from regard.models.table import build_model
from regard.noise import noise
from regard.tokens import TokenizerPair, TokensConfig
from regard.verify import CHECKS, verify

SOURCES, TARGETS, D = 19, 31, 13
BEGIN, END, PAD = 1, 2, 0
CONFIG: dict[str, Any] = {
    "width": D, "channels": 22, "sets": 1, "dilations": (1, 2), "kernel": 3, "ratio": 1.2, "extra": 1, "dropout": 0.0,
    "tied": "none",
}  # fmt: skip


def build(**changes: Any) -> ByteNet:
    """A model in float64 whose biases and norms are random too, so that none can be forgotten."""
    torch.manual_seed(7)
    model = ByteNet(ByteNetConfig(**CONFIG | changes), SOURCES, TARGETS).double()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model


def sequences(vocabulary: int, lengths: tuple[int, ...], seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(3, vocabulary, length) for length in lengths]


PADDED = pair_batch(sequences(SOURCES, (7, 3, 5, 1), 1), sequences(TARGETS, (4, 14, 6, 12), 2), PAD)


def one(source: list[int], target: list[int]) -> PairBatch:
    """A batch of one pair; `target` is what the decoder reads."""
    ids = torch.tensor([[*target, END]])
    return PairBatch(torch.tensor([source]), torch.tensor([len(source)]), ids, torch.tensor([len(target)]), len(target))


def alone(row: int) -> PairBatch:
    """One pair of `PADDED` without its padding."""
    s, t = int(PADDED.source_lengths[row]), int(PADDED.target_lengths[row])
    ids = PADDED.target[row, None, : t + 1]
    return PairBatch(PADDED.source[row, None, :s], torch.tensor([s]), ids, torch.tensor([t]), t)


def unfolded(length: int, ratio: float, extra: int) -> int:
    """Section 3.2 of the paper, with the ratio as a person writes it."""
    return math.ceil(Decimal(str(ratio)) * length + extra)


# --- The whole model, one pair at a time, of torch's convolutions


def plain_logits(model: ByteNet, source: list[int], target: list[int]) -> Tensor:
    """Logits (T, V), channels in the middle as torch has them, from the tensors of the model by name."""
    tensors, config = dict(model.named_parameters()), model.config

    def norm_relu(name: str, x: Tensor) -> Tensor:
        weight = tensors[f"{name}.weight"]
        return layer_norm(x.T, weight.shape, weight, tensors[f"{name}.bias"]).relu().T  # (C, T)

    def linear(name: str, x: Tensor) -> Tensor:
        return tensors[f"{name}.weight"] @ x + tensors[f"{name}.bias"][:, None]

    def block(name: str, x: Tensor, dilation: int, sides: tuple[int, int]) -> Tensor:
        y = norm_relu(f"{name}.before_convolution", linear(f"{name}.down", norm_relu(f"{name}.before_down", x)))
        taps = tensors[f"{name}.convolution.taps.weight"].view(len(y), config.kernel, len(y)).transpose(1, 2)
        padded = pad(y, [side * dilation for side in sides])
        y = conv1d(padded[None], taps, tensors[f"{name}.convolution.taps.bias"], dilation=dilation)[0]
        return x + linear(f"{name}.up", norm_relu(f"{name}.before_up", y))

    length, dilations = unfolded(len(source), config.ratio, config.extra), config.dilations * config.sets
    x = tensors["source.table.weight"][source].T * math.sqrt(D)  # (D, S)
    x = linear("enter_encoder", torch.cat([x, x.new_zeros(D, length - len(source))], dim=1))  # (C, |t̂|)
    for number, dilation in enumerate(dilations):
        x = block(f"encoder.{number}", x, dilation, (config.kernel // 2, config.kernel // 2))
    memory = norm_relu("encoder_norm", x)
    memory = torch.cat([memory, memory.new_zeros(len(memory), len(target))], dim=1)[:, : len(target)]  # (C, T)
    side_by_side = torch.cat([memory, tensors["target.table.weight"][target].T * math.sqrt(D)])  # (C + D, T)
    joined = torch.cat([tensors["say.weight"], tensors["enter_decoder.weight"]], dim=1)  # (C, C + D)
    x = joined @ side_by_side + tensors["enter_decoder.bias"][:, None]
    for number, dilation in enumerate(dilations):
        x = block(f"decoder.{number}", x, dilation, (config.kernel - 1, 0))
    return linear("leave", norm_relu("decoder_norm", x)).T @ tensors["output.weight"].T


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kernel": 5, "dilations": (3, 1), "sets": 2},
        {"kernel": 1},
        {"ratio": 1, "extra": 0, "dilations": (1, 2, 4, 8)},
    ],
    ids=str,
)
def test_logits_and_gradients_are_those_of_a_plain_computation(changes: dict[str, Any]) -> None:
    """In a padded batch, whose rows have different lengths and whose targets end before and behind |t̂|."""
    model, other = build(**changes), build(**changes)
    logits = model.logits(PADDED)
    plain = []
    for row, length in enumerate(PADDED.target_lengths.tolist()):
        pair = alone(row)
        plain.append(plain_logits(other, pair.source[0].tolist(), pair.target[0, :-1].tolist()))
        assert torch.allclose(logits[row, :length], plain[-1], rtol=0, atol=1e-10)
    sum(logits[row, : len(each)].square().sum() for row, each in enumerate(plain)).backward()  # type: ignore[union-attr]
    sum(each.square().sum() for each in plain).backward()  # type: ignore[union-attr]
    for (name, found), expected in zip(model.named_parameters(), other.parameters(), strict=True):
        assert found.grad is not None and expected.grad is not None, name
        assert expected.grad.any(), name
        assert torch.allclose(found.grad, expected.grad, rtol=1e-9, atol=1e-9), name


@pytest.mark.parametrize("ratio", [1, 1.1, 1.2, 1.25, 1.3, 1.7, 2.0])
@pytest.mark.parametrize("extra", [0, 3])
def test_unfolding_is_the_formula_of_the_paper(ratio: float, extra: int) -> None:
    """In floating point 1.1 · 10 is a little more than 11, and would be rounded up to 12."""
    model, lengths = build(ratio=ratio, extra=extra), torch.arange(1, 211)
    assert model.unfolded(lengths).tolist() == [unfolded(length, ratio, extra) for length in lengths.tolist()]
    memory = model.encode(PADDED.source, PADDED.source_lengths)
    ends = [unfolded(length, ratio, extra) for length in PADDED.source_lengths.tolist()]
    assert memory.vectors.size(1) == max(ends)
    for vectors, end in zip(memory.vectors, ends, strict=True):
        assert vectors[:end].any(dim=-1).all()
        assert not vectors[end:].any()


def test_no_token_of_a_source_is_left_out() -> None:
    with pytest.raises(ValidationError, match="ratio"):
        ByteNetConfig(ratio=0.9)


# --- What it can see


def seen_through(blocks: list[tuple[int, ...]], position: int, length: int) -> set[int]:
    """From which inputs a stack of blocks computes this position: each looks at these offsets, but not past the ends.

    From the last block back to the first: at an end the order matters. The residual connection is the offset 0.
    """
    places = {position}
    for offsets in reversed(blocks):
        places = {place + offset for place in places for offset in offsets if 0 <= place + offset < length}
    return places


def expected_sight(config: ByteNetConfig, sources: int, t: int) -> tuple[set[int], set[int]]:
    """Which source tokens and which target tokens the decoder's output at t depends on."""
    dilations, half = config.dilations * config.sets, config.kernel // 2
    causal = [tuple(-j * d for j in range(config.kernel)) for d in dilations]
    centred = [tuple(j * d for j in range(-half, half + 1)) for d in dilations]
    read = seen_through(causal, t, t + 1)
    length = unfolded(sources, config.ratio, config.extra)
    vectors = {place for place in read if place < length}
    tokens: set[int] = set().union(*(seen_through(centred, place, length) for place in vectors))
    return {token for token in tokens if token < sources}, read


SIGHTS = [
    {},
    {"dilations": (1,), "extra": 0},
    {"dilations": (2, 5), "sets": 1},  # leaves holes
    {"dilations": (1, 3), "sets": 2},
    {"dilations": (2,), "kernel": 5, "extra": 7},
    {"dilations": (3,), "kernel": 1},  # sees one position
]


@torch.no_grad()
@pytest.mark.parametrize("changes", SIGHTS, ids=str)
def test_every_output_depends_on_exactly_the_tokens_that_theory_names(changes: dict[str, Any]) -> None:
    """Eleven source tokens and 29 target tokens, past |t̂|, each changed alone."""
    model = build(**changes).eval()
    source, target = (each[0].tolist() for each in (sequences(SOURCES, (11,), 3), sequences(TARGETS, (29,), 4)))
    before = model.logits(one(source, target))[0]

    def changed(source: list[int], target: list[int]) -> set[int]:
        after = model.logits(one(source, target))[0]
        return {t for t in range(29) if not torch.equal(after[t], before[t])}

    sight = [expected_sight(model.config, 11, t) for t in range(29)]
    for j in range(11):
        other = [*source[:j], (source[j] + 5) % SOURCES, *source[j + 1 :]]
        assert changed(other, target) == {t for t in range(29) if j in sight[t][0]}, f"source {j}"
    for i in range(29):
        other = [*target[:i], (target[i] + 5) % TARGETS, *target[i + 1 :]]
        assert changed(source, other) == {t for t in range(29) if i in sight[t][1]}, f"target {i}"


@pytest.mark.parametrize("dilations", [(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8)])
def test_doubled_dilations_leave_no_hole(dilations: tuple[int, ...]) -> None:
    """The field of kernel 3 is 1 + Σ 2 d tokens, every one of them: the theory above, checked by the formula."""
    _, read = expected_sight(ByteNetConfig(dilations=dilations), 11, 100)
    assert read == set(range(100 - 2 * sum(dilations), 101))


@torch.no_grad()
def test_past_the_unfolding_the_decoder_goes_on_with_zeros() -> None:
    """Two sources of one length: once the field has left |t̂|, they cannot be told apart, but the target still can."""
    model = build().eval()  # |t̂| = 7 for 5 tokens; the decoder looks back 6
    target = sequences(TARGETS, (23,), 5)[0].tolist()
    first, second = (model.logits(one(source, target))[0] for source in ([3, 4, 5, 6, 7], [8, 9, 10, 11, 12]))
    assert unfolded(5, 1.2, 1) == 7
    assert (first[: 7 + 6] - second[: 7 + 6]).abs().amax(dim=-1).min() > 1e-9
    assert torch.equal(first[7 + 6 :], second[7 + 6 :])
    assert (first[14:] - first[13:-1]).abs().amax(dim=-1).min() > 1e-6


# --- Padding, batches, gradients, noise


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"ratio": 1, "extra": 0}, {"dilations": (5, 1), "sets": 2}], ids=str)
def test_a_padded_batch_is_its_rows_alone(changes: dict[str, Any]) -> None:
    """Padding has no meaning: neither its place, nor how much there is, nor what is written there."""
    model = build(**changes).eval()
    more = torch.cat([PADDED.source, torch.full((4, 11), 17)], dim=1)
    more[torch.arange(more.size(1)) >= PADDED.source_lengths[:, None]] = 17
    other = PairBatch(more, PADDED.source_lengths, PADDED.target, PADDED.target_lengths, PADDED.target_tokens)
    together, spoilt = model.logits(PADDED), model.logits(other)
    for row, length in enumerate(PADDED.target_lengths.tolist()):
        expected = model.logits(alone(row))[0]
        assert torch.allclose(together[row, :length], expected, rtol=0, atol=1e-12)
        assert torch.allclose(spoilt[row, :length], expected, rtol=0, atol=1e-12)
    total = sum(model(alone(row)).parts["loss"].sum.item() for row in range(4))
    assert model(PADDED).parts["loss"].sum.item() == pytest.approx(total, rel=1e-12)


def test_gradients_of_rows_add_up() -> None:
    large, small = build().train(), build().train()
    large(PADDED).objective(PADDED.counts).backward()
    for row in range(4):
        small(alone(row)).objective(PADDED.counts).backward()
    for (name, found), expected in zip(small.named_parameters(), large.parameters(), strict=True):
        assert found.grad is not None and expected.grad is not None
        assert torch.allclose(found.grad, expected.grad, rtol=0, atol=1e-12), name
    for table in (large.source.table, large.target.table):
        assert table.weight.grad is not None
        assert not table.weight.grad[PAD].any()


def test_positions_behind_a_source_do_not_drown_the_rest() -> None:
    """With nothing but zeros there, the gradient grew more than a thousandfold after the first update of a warm-up.

    Layer norm of a vector near zero multiplies gradients by up to 1 / √1e-5, and a block has three of them in a row. At
    the very first update the slope of ReLU at zero, which is zero, hid it.
    """
    torch.manual_seed(3)
    batch = pair_batch(sequences(SOURCES, (7, 3, 5, 1), 1), sequences(SOURCES, (23, 14, 6, 12), 2), PAD)
    model = build_model(ByteNetConfig(**preset("demo", "bytenet") | {"extra": 23}), SOURCES, SOURCES).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-6)
    sizes = []
    for _ in range(2):
        optimiser.zero_grad()
        model(batch).objective(batch.counts).backward()
        sizes.append(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
        optimiser.step()
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)


def test_dropout_is_seeded_and_only_for_training() -> None:
    model = build(dropout=0.3)

    def loss(key: int) -> float:
        with noise(key):
            return model(PADDED).parts["loss"].sum.item()

    model.train()
    assert loss(1) == loss(1)
    assert loss(1) != loss(2)
    model.eval()
    assert loss(1) == loss(2)


def test_under_autocast_the_residual_stream_stays_in_float32() -> None:
    model = build().float().eval()
    kinds = []
    for block in [*model.encoder, *model.decoder]:
        block.register_forward_hook(lambda _, inputs, out: kinds.append((inputs[0].dtype, out.dtype)))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model.logits(PADDED)
    assert kinds == [(torch.float32, torch.float32)] * 4


# --- Step by step


@torch.no_grad()
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("changes", [{}, {"kernel": 5, "dilations": (3,)}, {"kernel": 1}, {"sets": 2}], ids=str)
def test_any_walk_of_steps_gives_the_logits_of_the_whole_sequence(changes: dict[str, Any], seed: int) -> None:
    """Four sources of different lengths, beams of changing width, parents and survivors drawn at random, past |t̂|."""
    model, dice = build(**changes).eval(), random.Random(seed)
    rows = list(range(4))  # which source stands in each row
    prefix = torch.tensor([[BEGIN] + [dice.randrange(TARGETS) for _ in range(seed)] for _ in rows])
    read = [[row] for row in prefix.tolist()]  # [row][hypothesis]: all tokens so far
    logits, state = model.start((PADDED.source, PADDED.source_lengths), prefix)
    for _ in range(17):
        assert logits.shape == (len(rows), len(read[0]), TARGETS)
        for b, row in enumerate(rows):
            source = alone(row).source[0].tolist()
            for w, sequence in enumerate(read[b]):
                expected = model.logits(one(source, sequence))[0, -1]
                assert torch.allclose(logits[b, w], expected, rtol=0, atol=1e-10)
        if len(rows) > 1 and dice.random() < 0.2:
            stay = sorted(dice.sample(range(len(rows)), dice.randrange(1, len(rows))))
            rows, read = [rows[b] for b in stay], [read[b] for b in stay]
            state = model.keep(state, torch.tensor(stay))
        if dice.random() < 0.7:
            parents = [[dice.randrange(len(read[0])) for _ in range(1 + len(read) % 3)] for _ in rows]
            read = [[read[b][w] for w in chosen] for b, chosen in enumerate(parents)]
            state = model.reorder(state, torch.tensor(parents))
        tokens = [[dice.randrange(TARGETS) for _ in row] for row in read]
        read = [[[*old, token] for old, token in zip(*pair, strict=True)] for pair in zip(read, tokens, strict=True)]
        logits, state = model.step(torch.tensor(tokens), state)


@torch.no_grad()
def test_a_wider_beam_copies_its_past_and_nothing_of_the_source() -> None:
    model = build().eval()
    _, state = model.start((PADDED.source, PADDED.source_lengths), torch.full((4, 1), BEGIN))
    wide = model.reorder(state, torch.zeros(4, 3, dtype=torch.long))
    assert wide.said is state.said
    assert [past.inputs.shape for past in wide.pasts] == [
        (12, 2, 11),
        (12, 4, 11),
    ]  # (K - 1) · dilation of half the width
    copies = [wide, model.reorder(state, torch.zeros(4, 1, dtype=torch.long))]
    model.step(torch.full((4, 3), 5), copies[0])
    again, _ = model.step(torch.full((4, 1), 7), copies[1])
    first, _ = model.step(torch.full((4, 1), 7), state)
    assert torch.equal(again, first)


# --- Sizes, learning, invariants


def size(config: ByteNetConfig, vocabulary: int) -> int:
    channels, inner, width = config.channels, config.channels // 2, config.width
    norms = 2 * channels + 2 * inner + 2 * inner
    matrices = 2 * channels * inner + config.kernel * inner * inner + inner + inner + channels
    blocks = 2 * config.sets * len(config.dilations) * (norms + matrices)
    enter, say, leave = width * channels + channels, channels * channels, channels * width + width
    return blocks + 2 * enter + say + leave + 2 * 2 * channels + vocabulary * width


@pytest.mark.parametrize(("name", "blocks"), [("demo", 4), ("tiny", 4), ("base", 30)])
def test_presets_have_the_sizes_they_should(name: str, blocks: int) -> None:
    """Base is the paper's model for translation: thirty blocks each way, d = 800, embeddings of 2 d, |t̂| = 1.2 S."""
    config = ByteNetConfig(**preset(name, "bytenet"))
    with torch.device("meta"):
        model = build_model(config, 300, 300)
    assert isinstance(model, ByteNet)
    assert len(model.encoder) == len(model.decoder) == blocks
    assert sum(parameter.numel() for parameter in model.parameters()) == size(config, 300)
    if name == "base":
        assert model.encoder[0].convolution.inputs == 800  # type: ignore[union-attr]
        assert (config.width, unfolded(100, config.ratio, config.extra)) == (1600, 120)


@pytest.mark.parametrize(("task", "tied"), [("copy", "all"), ("reverse", "none")])
def test_it_learns_to_copy_and_to_reverse(task: str, tied: str) -> None:
    """Eleven sequences by heart, then decoded again, greedily and by beam.

    A summed loss under log 2 means that every wanted token is more likely than all others together.
    """
    torch.manual_seed(1)
    config = ByteNetConfig(width=32, channels=64, dilations=(1, 2, 4), dropout=0.0, tied=tied)
    model = ByteNet(config, 17, 17).train()
    generator = np.random.default_rng(13)
    sources = [generator.integers(3, 17, generator.integers(2, 8)) for _ in range(11)]
    wanted = [source if task == "copy" else source[::-1] for source in sources]
    batch = pair_batch([np.append(s, END) for s in sources], [np.r_[BEGIN, w, END] for w in wanted], PAD)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = model(batch).parts["loss"].sum.item()
    for _ in range(200):
        optimiser.zero_grad()
        loss = model(batch)
        loss.objective(batch.counts).backward()
        optimiser.step()
        if loss.parts["loss"].sum.item() < 0.3:
            break
    assert loss.parts["loss"].sum.item() < math.log(2) < first / 100
    for beam in (1, 3):
        found = generate(
            model.eval(),
            (batch.source, batch.source_lengths),
            torch.full((11, 1), BEGIN),
            end=END,
            limits=[13] * 11,
            options=DecodeConfig(beam=beam),
            forbidden=(PAD, BEGIN),
        )
        assert [list(hypotheses[0].ids) for hypotheses in found] == [w.tolist() for w in wanted]


@pytest.mark.parametrize(
    "changes",
    [{}, {"tied": "target", "dilations": (2, 5), "ratio": 1.0, "extra": 0}, {"tied": "none", "kernel": 1}],
    ids=str,
)
def test_it_keeps_every_invariant_that_applies(changes: dict[str, Any]) -> None:
    texts = ["a man rides a red bike", "two dogs sleep under a tree", "the sun is bright today"] * 3
    settings = TokensConfig(size=300, min_count=1)
    pair = TokenizerPair.train(texts, [text[::-1] for text in texts], settings)
    sizes = (pair.source.size, pair.target.size)
    config = ByteNetConfig(**CONFIG | {"dropout": 0.1, "tied": "all"} | changes)
    torch.manual_seed(11)
    model = build_model(config, *sizes).eval()
    checks = verify(Bundle(BundleConfig(tokens=settings, vocabulary=sizes, model=config), model, pair, {}))
    assert [check.name for check in checks] == list(CHECKS)
    apart = {check.name: check.detail for check in checks if check.passed is not True}
    assert apart == {"recorded weights = output": "a bytenet has no attention"}
