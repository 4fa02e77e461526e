"""The Transformer against torch's own with the same weights, and what must hold of any: places, causality, padding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import MultiHead
from regard.blocks import Block
from regard.data.batch import PairBatch, pair_batch
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.errors import UsageError
from regard.models.config import TransformerConfig
from regard.models.presets import preset
from regard.models.table import build_model
from regard.models.transformer import Transformer
from regard.noise import noise

SOURCES, TARGETS, D, F = 19, 31, 30, 23  # vocabularies and widths
BEGIN, END, PAD = 1, 2, 0
CONFIG: dict[str, Any] = {
    "encoder_layers": 2, "decoder_layers": 3, "width": D, "heads": 3, "feed_forward": F, "dropout": 0.0, "tied": "none",
}  # fmt: skip


def build(smoothing: float = 0.0, sources: int = SOURCES, targets: int = TARGETS, **changes: Any) -> Transformer:
    """A model in float64 whose biases and norms are random too, so that none can be forgotten."""
    torch.manual_seed(7)
    model = Transformer(TransformerConfig(**CONFIG | changes), sources, targets, smoothing).double()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model


def sequences(vocabulary: int, lengths: tuple[int, ...], seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(3, vocabulary, length) for length in lengths]


def batch_of(source_lengths: tuple[int, ...], target_lengths: tuple[int, ...]) -> PairBatch:
    return pair_batch(sequences(SOURCES, source_lengths, 1), sequences(TARGETS, target_lengths, 2), PAD)


PADDED = batch_of((7, 3, 5), (4, 6, 12))
EQUAL = batch_of((7, 7, 7), (6, 6, 6))


def position(t: int, width: int) -> list[float]:
    """Vaswani et al. 2017, section 3.5."""
    angles = [t / 10000 ** ((i - i % 2) / width) for i in range(width)]
    return [math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)]


# --- torch's Transformer with the same weights


class Twin(nn.Module):
    """The same model of torch's parts. Encoder and decoder end with a norm only where each block begins with one."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        config = model.config
        options: dict[str, Any] = {
            "d_model": config.width, "nhead": config.heads, "dim_feedforward": config.feed_forward, "dropout": 0.0,
            "activation": config.activation, "batch_first": True, "norm_first": config.norm == "pre",
        }  # fmt: skip

        def last() -> nn.Module | None:
            return nn.LayerNorm(config.width) if config.norm == "pre" else None

        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options), config.encoder_layers, last(), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), config.decoder_layers, last())
        self.source, self.target = (nn.Embedding(*side.table.weight.shape) for side in (model.source, model.target))
        self.output = nn.Linear(config.width, len(model.output.weight), bias=False)
        self.double()
        with torch.no_grad():
            for _, ours, theirs in parameters(model, self):
                theirs.copy_(ours)

    def forward(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Encoder output (B, S, D) and logits (B, T, V)."""
        ids = batch.target[:, :-1]
        source_padding = torch.arange(batch.source.size(1)) >= batch.source_lengths[:, None]
        target_padding = torch.arange(ids.size(1)) >= batch.target_lengths[:, None]
        future = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(self.source, batch.source), src_key_padding_mask=source_padding)
        hidden = self.decoder(
            self.embed(self.target, ids),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return memory, self.output(hidden)

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        places = torch.tensor([position(t, D) for t in range(ids.size(1))], dtype=torch.float64)
        return table(ids) * math.sqrt(D) + places


def parameters(model: Transformer, twin: Twin, gradients: bool = False) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Every tensor of `model` beside the one of torch's: in_proj is query, key and value, one below the other."""

    def of(parameter: Tensor | None) -> Tensor:
        tensor = parameter.grad if gradients and parameter is not None else parameter
        assert tensor is not None
        return tensor

    def both(name: str, ours: nn.Module, theirs: nn.Module) -> Iterator[tuple[str, Tensor, Tensor]]:
        assert dict(ours.named_parameters()).keys() == dict(theirs.named_parameters()).keys()
        for part, parameter in ours.named_parameters():
            yield f"{name}.{part}", of(parameter), of(theirs.get_parameter(part))

    def attention(name: str, ours: MultiHead, theirs: nn.MultiheadAttention) -> Iterator[tuple[str, Tensor, Tensor]]:
        for part in ("weight", "bias"):
            joined = torch.cat([of(ours.query.get_parameter(part)), of(ours.key_value.get_parameter(part))])
            yield f"{name}.{part}", joined, of(theirs.get_parameter(f"in_proj_{part}"))
        yield from both(f"{name}.out", ours.out, theirs.out_proj)

    def block(name: str, ours: Block, theirs: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
        yield from attention(f"{name}.attention", ours.attention, theirs.self_attn)
        yield from both(f"{name}.norm1", ours.around_attention.norm, theirs.norm1)
        if ours.cross is not None and ours.around_cross is not None:
            yield from attention(f"{name}.cross", ours.cross, theirs.multihead_attn)
            yield from both(f"{name}.norm2", ours.around_cross.norm, theirs.norm2)
        last = theirs.norm2 if ours.cross is None else theirs.norm3
        yield from both(f"{name}.last", ours.around_feed_forward.norm, last)
        yield from both(f"{name}.up", ours.feed_forward.up, theirs.linear1)
        yield from both(f"{name}.down", ours.feed_forward.down, theirs.linear2)

    for side, tower in (("encoder", twin.encoder), ("decoder", twin.decoder)):
        blocks: Any = getattr(model, side)
        for number, (ours, theirs) in enumerate(zip(blocks, tower.layers, strict=True)):
            yield from block(f"{side}.{number}", ours, theirs)
        if tower.norm is not None:
            yield from both(f"{side}_norm", getattr(model, f"{side}_norm"), tower.norm)
    for name in ("source", "target"):
        yield from both(name, getattr(model, name).table, getattr(twin, name))
    yield from both("output", model.output, twin.output)


@pytest.mark.parametrize("batch", [PADDED, EQUAL], ids=["padded", "equal lengths"])
@pytest.mark.parametrize("heads", [1, 3, 5])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_output_loss_and_gradients_are_those_of_torch(norm: str, activation: str, heads: int, batch: PairBatch) -> None:
    model = build(0.1, norm=norm, activation=activation, heads=heads).train()
    twin = Twin(model).train()
    counted = sum(tensor.numel() for _, tensor, _ in parameters(model, twin))
    assert counted == sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in twin.parameters())

    memory, logits = twin(batch)
    real = torch.arange(logits.size(1)) < batch.target_lengths[:, None]
    assert torch.allclose(model.encode(batch.source, batch.source_lengths).vectors, memory, rtol=0, atol=1e-10)
    assert torch.allclose(model.logits(batch)[real], logits[real], rtol=0, atol=1e-10)

    loss = model(batch).parts["loss"].sum
    wanted = batch.target[:, 1:][real]
    expected = cross_entropy(logits[real], wanted, reduction="sum", label_smoothing=0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    loss.backward()
    expected.backward()
    for name, ours, theirs in parameters(model, twin, gradients=True):
        assert theirs.abs().max() > 0, name
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-10), name


def test_the_plain_loss_is_torch_s() -> None:
    model = build(0.1).eval()
    _, logits = Twin(model).eval()(PADDED)
    flat, wanted = logits.flatten(0, 1), PADDED.target[:, 1:].flatten()
    real = (torch.arange(logits.size(1)) < PADDED.target_lengths[:, None]).flatten()
    expected = cross_entropy(flat, wanted.masked_fill(~real, -100), ignore_index=-100, reduction="sum")
    assert model(PADDED).parts["nll"].sum.item() == pytest.approx(expected.item(), rel=1e-12)
    assert PADDED.target_tokens == int(real.sum()) == 3 + 5 + 11


# --- Places, causality, padding


def encoded(model: Transformer, ids: Tensor) -> Tensor:
    return model.encode(ids, torch.full((len(ids),), ids.size(1))).vectors


def test_without_positions_an_encoder_sees_a_set() -> None:
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    model = build(positions="none").eval()
    straight, mixed = encoded(model, EQUAL.source), encoded(model, EQUAL.source[:, order])
    assert torch.allclose(mixed, straight[:, order], rtol=0, atol=1e-12)
    for kind in ("sinusoidal", "learned"):
        model = build(positions=kind).eval()
        straight, mixed = encoded(model, EQUAL.source), encoded(model, EQUAL.source[:, order])
        assert (mixed - straight[:, order]).abs().amax(dim=-1).min() > 1e-3


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_token_changes_nothing_before_it(norm: str) -> None:
    model = build(norm=norm).eval()
    before = model.logits(EQUAL)
    for t in range(EQUAL.target.size(1) - 1):
        target = EQUAL.target.clone()
        target[:, t] = (target[:, t] + 5) % TARGETS
        after = model.logits(PairBatch(EQUAL.source, EQUAL.source_lengths, target, EQUAL.target_lengths, 15))
        assert torch.equal(after[:, :t], before[:, :t])
        assert (after[:, t:] - before[:, t:]).abs().amax(dim=-1).min() > 1e-6


def test_every_source_token_reaches_every_logit() -> None:
    model = build().eval()
    before = model.logits(PADDED)
    for s in range(3):
        source = PADDED.source.clone()
        source[:, s] = (source[:, s] + 5) % SOURCES
        after = model.logits(PairBatch(source, PADDED.source_lengths, PADDED.target, PADDED.target_lengths, 19))
        assert (after - before).abs().amax(dim=-1).min() > 1e-6


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_a_padded_batch_is_its_rows_alone(norm: str, positions: str) -> None:
    """Padding has no meaning: neither its place nor what is written there."""
    model = build(norm=norm, positions=positions).eval()
    together = model.logits(PADDED)
    spoilt = PADDED.source.clone()
    spoilt[torch.arange(7) >= PADDED.source_lengths[:, None]] = 17
    other = model.logits(PairBatch(spoilt, PADDED.source_lengths, PADDED.target, PADDED.target_lengths, 19))
    total = 0.0
    for b, (s, t) in enumerate(zip(PADDED.source_lengths.tolist(), PADDED.target_lengths.tolist(), strict=True)):
        alone = PairBatch(
            PADDED.source[b : b + 1, :s], torch.tensor([s]), PADDED.target[b : b + 1, : t + 1], torch.tensor([t]), t
        )
        expected = model.logits(alone)[0]
        assert torch.allclose(together[b, :t], expected, rtol=0, atol=1e-12)
        assert torch.allclose(other[b, :t], expected, rtol=0, atol=1e-12)
        total += model(alone).parts["loss"].sum.item()
    assert model(PADDED).parts["loss"].sum.item() == pytest.approx(total, rel=1e-12)


def test_gradients_do_not_see_padding() -> None:
    """The embedding of a token that stands only in padding learns nothing."""
    model = build().train()
    model(PADDED).parts["loss"].sum.backward()
    for table in (model.source.table, model.target.table):
        assert table.weight.grad is not None
        assert not table.weight.grad[PAD].any()
        assert table.weight.grad[3:].any()


def test_dropout_is_seeded_and_only_for_training() -> None:
    model = build(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)

    def loss(key: int) -> float:
        with noise(key):
            return model(PADDED).parts["loss"].sum.item()

    model.train()
    assert loss(1) == loss(1)
    assert loss(1) != loss(2)
    model.eval()
    assert loss(1) == loss(2)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_every_kind_of_dropout_is_heard(rate: str) -> None:
    model = build(**{rate: 0.3}).train()
    with noise(1):
        noisy = model(PADDED).parts["loss"].sum.item()
    assert noisy != pytest.approx(model.eval()(PADDED).parts["loss"].sum.item(), rel=1e-6)


# --- Parameters: ties, sizes, first values


def test_tied_tables_are_one_tensor() -> None:
    tied = {kind: build(sources=TARGETS, tied=kind) for kind in ("all", "target", "none")}
    same = {
        kind: (model.source.table.weight is model.target.table.weight, model.output.weight is model.target.table.weight)
        for kind, model in tied.items()
    }
    assert same == {"all": (True, True), "target": (False, True), "none": (False, False)}
    sizes = {kind: sum(p.numel() for p in model.parameters()) for kind, model in tied.items()}
    assert sizes["none"] - sizes["target"] == sizes["target"] - sizes["all"] == TARGETS * D


def test_a_tied_table_learns_from_all_its_uses() -> None:
    """Its gradient is the sum of the three that separate tables of equal weights have."""
    tied, apart = build(sources=TARGETS, tied="all"), build(sources=TARGETS, tied="none")
    apart.load_state_dict(tied.state_dict())
    for model in (tied, apart):
        model.train()(PADDED).parts["loss"].sum.backward()
    tables = [apart.source.table.weight.grad, apart.target.table.weight.grad, apart.output.weight.grad]
    found = tied.output.weight.grad
    assert found is not None
    assert torch.allclose(found, sum(table for table in tables if table is not None), rtol=0, atol=1e-10)


def test_two_vocabularies_cannot_be_one_table() -> None:
    with pytest.raises(UsageError, match=r"\b19 source and 31 target"):
        build(tied="all")


def size(layers: int, width: int, inner: int, vocabulary: int, *, final_norms: bool) -> int:
    """Attention: four square matrices with biases. Feed-forward: two matrices with biases. A norm: two vectors."""
    attention, norm = 4 * (width * width + width), 2 * width
    feed_forward = width * inner + inner + inner * width + width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder + decoder) + vocabulary * width + (2 * norm if final_norms else 0)


@pytest.mark.parametrize(
    ("name", "vocabulary", "formula", "number"),
    [
        ("tiny", 10_000, size(4, 128, 256, 10_000, final_norms=True), 2_605_568),
        (
            "base",
            37_000,
            size(6, 512, 2048, 37_000, final_norms=False),
            63_082_496,
        ),  # 65 million in the paper's table 3
        ("big", 37_000, size(6, 1024, 4096, 37_000, final_norms=False), 214_245_376),  # 213 million there
    ],
)
def test_presets_have_the_sizes_of_the_papers(name: str, vocabulary: int, formula: int, number: int) -> None:
    with torch.device("meta"):
        model = build_model(TransformerConfig(**preset(name, "transformer")), vocabulary, vocabulary)
    assert sum(parameter.numel() for parameter in model.parameters()) == formula == number


def test_matrices_start_glorot_uniform_each_by_itself() -> None:
    """Keys and values lie in one tensor but are two square matrices: the bound is theirs (Glorot & Bengio 2010)."""
    torch.manual_seed(3)
    model = Transformer(TransformerConfig(**CONFIG | {"width": 60, "heads": 3, "feed_forward": 210}), SOURCES, TARGETS)
    for name, parameter in model.named_parameters():
        if "table" in name or "norm" in name:
            continue
        if parameter.dim() == 1:
            assert not parameter.any(), name
            continue
        rows, columns = parameter.shape
        bound = math.sqrt(6 / (columns + (rows // 2 if "key_value" in name else rows)))
        assert parameter.abs().max().item() == pytest.approx(bound, rel=0.02), name
        assert parameter.abs().max().item() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.06), name


# --- It learns


def short_sequences(count: int, vocabulary: int) -> list[np.ndarray]:
    generator = np.random.default_rng(13)
    return [generator.integers(3, vocabulary, generator.integers(2, 8)) for _ in range(count)]


@pytest.mark.parametrize(("task", "norm", "tied"), [("copy", "pre", "all"), ("reverse", "post", "none")])
def test_it_learns_to_copy_and_to_reverse(task: str, norm: str, tied: str) -> None:
    """Eleven sequences by heart, then decoded again, greedily and by beam.

    A summed loss under log 2 means that every wanted token is more likely than all others together.
    """
    torch.manual_seed(1)
    config = TransformerConfig(
        encoder_layers=2, decoder_layers=2, width=32, heads=2, feed_forward=64, dropout=0.0, norm=norm, tied=tied
    )
    model = Transformer(config, 17, 17, smoothing=0.0).train()
    sources = short_sequences(11, 17)
    wanted = [source if task == "copy" else source[::-1] for source in sources]
    batch = pair_batch([np.append(s, END) for s in sources], [np.r_[BEGIN, w, END] for w in wanted], PAD)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    for _ in range(300):
        optimiser.zero_grad()
        loss = model(batch)
        loss.objective(batch.counts).backward()
        optimiser.step()
        if loss.parts["loss"].sum.item() < 0.3:
            break
    assert loss.parts["loss"].sum.item() < math.log(2)
    assert loss.objective(batch.counts).item() < 0.05

    model.eval()
    for beam in (1, 3):
        found = generate(
            model,
            (batch.source, batch.source_lengths),
            torch.full((11, 1), BEGIN),
            end=END,
            limits=[13] * 11,
            options=DecodeConfig(beam=beam),
            forbidden=(PAD, BEGIN),
        )
        assert [list(hypotheses[0].ids) for hypotheses in found] == [w.tolist() for w in wanted]
        assert all(hypotheses[0].finished for hypotheses in found)
