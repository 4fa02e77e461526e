"""BERT against torch's encoder with the same weights; its gaps, its segments, its two losses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, embedding, layer_norm, linear

from regard.config import check
from regard.data.batch import MaskedBatch
from regard.errors import RegardError, UsageError
from regard.models.bert import Bert, BertEncoder
from regard.models.config import BertConfig
from regard.models.presets import preset
from regard.models.table import build
from regard.noise import noise

V, D, H, F, S = 29, 15, 3, 23, 11
SIZES: dict[str, Any] = {
    "layers": 3, "width": D, "heads": H, "feed_forward": F, "max_length": 19, "dropout": 0.0, "segments": 2,
}  # fmt: skip
VARIANTS: list[dict[str, Any]] = [
    {},
    {"next_sentence": True},
    {"activation": "relu", "epsilon": 0.2, "heads": 5},
    {"norm": "pre", "next_sentence": True},
]
VARIED = pytest.mark.parametrize("changes", VARIANTS, ids=str)


def make(smoothing: float = 0.0, **changes: Any) -> Bert:
    """A model in float64 with every parameter at random."""
    model = Bert(BertConfig(**SIZES | changes), V, smoothing).double()
    torch.manual_seed(7)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.4)
    return model.eval()


def batch_of(lengths: tuple[int, ...] = (7, S, 4)) -> MaskedBatch:
    """Each row with two gaps or three, and two texts, of which some follow each other."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(V, (3, S), generator=generator)
    places = torch.zeros(3, S, dtype=torch.bool)
    for row, chosen in enumerate(([1, 3], [2, 5, 9], [0, 3])):
        places[row, chosen] = True
    wanted = torch.randint(V, (7,), generator=generator)
    segments = (torch.arange(S) >= torch.tensor([3, 6, 2])[:, None]).long()
    return MaskedBatch(ids, torch.tensor(lengths), places, wanted, segments, torch.tensor([1, 0, 0]))


# --- torch's encoder with the same weights


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def hand_vectors(model: Bert, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    """Devlin et al. 2019, figure 2, and torch.nn.TransformerEncoder: (B, S, D), with gradients to our parameters."""
    config, ours = model.config, dict(model.encoder.named_parameters())
    post = config.norm == "post"
    layer = nn.TransformerEncoderLayer(
        D, config.heads, F, 0.0, gelu if config.activation == "gelu" else config.activation,
        layer_norm_eps=config.epsilon, batch_first=True, norm_first=not post,
    )  # fmt: skip
    last = None if post else nn.LayerNorm(D, config.epsilon)
    twin = nn.TransformerEncoder(layer, config.layers, last, enable_nested_tensor=False).double()
    names = {
        "self_attn.out_proj": "attention.out", "linear1": "feed_forward.up", "linear2": "feed_forward.down",
        "norm1": "around_attention.norm", "norm2": "around_feed_forward.norm",
    }  # fmt: skip
    weights = {} if post else {f"norm.{part}": ours[f"norm.{part}"] for part in ("weight", "bias")}
    for number in range(config.layers):
        for part in ("weight", "bias"):
            for theirs, mine in names.items():
                weights[f"layers.{number}.{theirs}.{part}"] = ours[f"blocks.{number}.{mine}.{part}"]
            own = [ours[f"blocks.{number}.attention.{mine}.{part}"] for mine in ("query", "key_value")]
            weights[f"layers.{number}.self_attn.in_proj_{part}"] = torch.cat(own)
    assert weights.keys() == dict(twin.named_parameters()).keys()
    x = embedding(ids, ours["tokens.table.weight"]) + ours["tokens.positions.table"][: ids.size(1)]
    x = x + embedding(segments, ours["tokens.segments.weight"])
    if post:
        x = layer_norm(x, (D,), ours["tokens.norm.weight"], ours["tokens.norm.bias"], config.epsilon)
    padding = torch.arange(ids.size(1)) >= lengths[:, None]
    return functional_call(twin, weights, (x,), {"src_key_padding_mask": padding})


def hand_logits(model: Bert, vectors: Tensor) -> Tensor:
    """A layer, activation and norm, then the table of embeddings with a bias of its own."""
    head, config = model.head, model.config
    assert head is not None
    activation = gelu if config.activation == "gelu" else torch.relu
    x = activation(linear(vectors, head.layer.weight, head.layer.bias))
    x = layer_norm(x, (D,), head.norm.weight, head.norm.bias, config.epsilon)
    return x @ model.encoder.tokens.table.weight.T + head.bias


def hand_losses(model: Bert, batch: MaskedBatch, smoothing: float) -> dict[str, Tensor]:
    assert batch.segments is not None and batch.follows is not None
    vectors = hand_vectors(model, batch.ids, batch.lengths, batch.segments)
    at_gaps = hand_logits(model, vectors)[batch.places]
    losses = {
        "loss": cross_entropy(at_gaps, batch.wanted, reduction="sum", label_smoothing=smoothing),
        "nll": cross_entropy(at_gaps, batch.wanted, reduction="sum"),
    }
    if model.follows is not None and model.encoder.pooler is not None:
        first = torch.tanh(linear(vectors[:, 0], model.encoder.pooler.weight, model.encoder.pooler.bias))
        logs = linear(first, model.follows.weight, model.follows.bias).log_softmax(dim=-1)
        # In the released code class 0 is "is next" and class 1 is a random text.
        losses["next"] = -(logs[0, 0] + logs[1, 1] + logs[2, 1])
    return losses


@VARIED
@pytest.mark.parametrize("lengths", [(7, S, 4), (S, S, S)], ids=["padded", "full"])
def test_vectors_losses_and_gradients_are_those_of_torch(lengths: tuple[int, ...], changes: dict[str, Any]) -> None:
    model, batch = make(0.2, **changes).train(), batch_of(lengths)
    assert batch.segments is not None
    real = torch.arange(S) < batch.lengths[:, None]
    vectors = model.encoder(batch.ids, batch.lengths, batch.segments).vectors
    expected = hand_vectors(model, batch.ids, batch.lengths, batch.segments)
    assert torch.allclose(vectors[real], expected[real], rtol=0, atol=1e-10)
    assert torch.allclose(model.logits(batch)[real], hand_logits(model, expected)[real], rtol=0, atol=1e-10)
    parts, losses = model(batch).parts, hand_losses(model, batch, 0.2)
    assert {name: part.sum.item() for name, part in parts.items()} == {
        name: pytest.approx(loss.item(), rel=1e-11) for name, loss in losses.items()
    }
    totals = {"loss": 7, "nll": 7, "next": 3}
    assert {name: part.count for name, part in parts.items()} == {name: totals[name] for name in losses}
    assert batch.counts == totals
    names, parameters = zip(*model.named_parameters(), strict=True)
    objective = losses["loss"] / 7 + (losses["next"] / 3 if "next" in losses else 0)
    ours = torch.autograd.grad(model(batch).objective(batch.counts), parameters)
    theirs = torch.autograd.grad(objective, parameters)
    for name, mine, other in zip(names, ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=0, atol=1e-10), name


def test_label_smoothing_is_for_training_only() -> None:
    model, batch = make(0.2), batch_of()
    plain = hand_losses(model, batch, 0.0)["nll"].item()
    assert model.eval()(batch).parts["loss"].sum.item() == pytest.approx(plain, rel=1e-11)
    assert abs(model.train()(batch).parts["loss"].sum.item() - plain) > 1e-3


# --- What it sees


@torch.no_grad()
def test_every_token_sees_both_sides() -> None:
    model, batch = make(), batch_of((S, S, S))
    before = model.encoder(batch.ids, batch.lengths).vectors
    for s in range(S):
        ids = batch.ids.clone()
        ids[:, s] = (ids[:, s] + 5) % V
        assert (model.encoder(ids, batch.lengths).vectors - before).abs().amax(dim=-1).min() > 1e-6


@torch.no_grad()
def test_padding_is_not_seen() -> None:
    """Whatever stands there; and a row in a padded batch is the row alone."""
    model, batch = make(), batch_of()
    together = model.encoder(batch.ids, batch.lengths, batch.segments).vectors
    spoilt = batch.ids.masked_fill(torch.arange(S) >= batch.lengths[:, None], 17)
    other = model.encoder(spoilt, batch.lengths, batch.segments).vectors
    assert batch.segments is not None
    for b, length in enumerate(batch.lengths.tolist()):
        row = slice(b, b + 1)
        alone = model.encoder(batch.ids[row, :length], torch.tensor([length]), batch.segments[row, :length]).vectors[0]
        assert torch.allclose(together[b, :length], alone, rtol=0, atol=1e-12)
        assert torch.allclose(other[b, :length], alone, rtol=0, atol=1e-12)


@torch.no_grad()
def test_segments_are_seen_and_none_is_the_first() -> None:
    model, batch = make(), batch_of()
    plain = model.encoder(batch.ids, batch.lengths).vectors
    first = model.encoder(batch.ids, batch.lengths, torch.zeros_like(batch.ids)).vectors
    both = model.encoder(batch.ids, batch.lengths, batch.segments).vectors
    assert torch.equal(plain, first)
    assert (both - first).abs().amax(dim=-1).min() > 1e-6


@torch.no_grad()
def test_swapped_tokens_are_told_apart() -> None:
    model, ids = make(), torch.tensor([[3, 4, 5, 6]])
    straight, swapped = (model.encoder(x, torch.tensor([4])).vectors for x in (ids, ids[:, [0, 2, 1, 3]]))
    assert (swapped - straight[:, [0, 2, 1, 3]]).abs().amax(dim=-1).min() > 1e-3


def test_too_long_a_text_is_told() -> None:
    with pytest.raises(RegardError, match=r"20 tokens is longer than the 19 learned positions"):
        make().encoder(torch.zeros(1, 20, dtype=torch.long), torch.tensor([20]))
    assert BertConfig(**SIZES).longest == 19


# --- The losses


def test_only_chosen_places_are_guessed() -> None:
    """Each wanted token belongs to its place, row by row: the loss is the sum of what each costs alone."""
    model, batch = make(), batch_of()
    total = 0.0
    for number, (row, place) in enumerate(batch.places.nonzero().tolist()):
        alone = torch.zeros_like(batch.places)
        alone[row, place] = True
        part = model(replace(batch, places=alone, wanted=batch.wanted[number : number + 1])).parts["loss"]
        logits = model.logits(batch)[row, place]
        assert part.sum.item() == pytest.approx(-logits.log_softmax(dim=-1)[batch.wanted[number]].item(), rel=1e-11)
        assert part.count == 1
        total += part.sum.item()
    assert model(batch).parts["loss"].sum.item() == pytest.approx(total, rel=1e-12)


def test_the_table_is_tied_and_has_a_bias() -> None:
    """One token made likelier by its bias alone; the table learns from its rows as words and as answers."""
    model, batch = make(), batch_of()
    assert model.head is not None
    before = model.logits(batch)
    with torch.no_grad():
        model.head.bias[5] += 2.5
    shift = model.logits(batch) - before
    assert torch.allclose(shift[..., 5], torch.tensor(2.5, dtype=torch.float64), rtol=0, atol=1e-12)
    assert not shift[..., :5].any() and not shift[..., 6:].any()
    assert model.table is model.encoder.tokens.table.weight
    model(batch).parts["loss"].sum.backward()
    gradient = model.table.grad
    assert gradient is not None
    unread = [token for token in range(V) if token not in batch.ids]
    assert unread and all(gradient[token].any() for token in unread)
    assert not [name for name, p in model.named_parameters() if p.shape == (V, D) and "tokens.table" not in name]


def test_the_second_loss_needs_the_batch_to_tell() -> None:
    model, batch = make(next_sentence=True), batch_of()
    assert set(model(batch).parts) == {"loss", "nll", "next"}
    assert set(model(replace(batch, follows=None)).parts) == {"loss", "nll"}
    assert set(make()(batch).parts) == {"loss", "nll"}
    turned = replace(batch, follows=1 - batch.follows)  # type: ignore[operator]
    assert model(turned).parts["next"].sum.item() != pytest.approx(model(batch).parts["next"].sum.item())


@torch.no_grad()
def test_a_text_is_its_first_token_through_the_pooler() -> None:
    model, batch = make(pooler=True), batch_of()
    vectors = model.encoder(batch.ids, batch.lengths).vectors
    pooler = model.encoder.pooler
    assert pooler is not None
    expected = [torch.tanh(pooler.weight @ vector + pooler.bias) for vector in vectors[:, 0]]
    assert torch.allclose(model.encoder.pooled(vectors), torch.stack(expected), rtol=0, atol=1e-12)
    assert torch.equal(make().encoder.pooled(vectors), vectors[:, 0])


def test_embeddings_are_normed_before_they_are_dropped() -> None:
    """In training only; a zero is a dropped element, as no normed one is exactly zero."""
    model = make(dropout=0.25).train()
    ids = torch.randint(V, (59, 19), generator=torch.Generator().manual_seed(3))
    with noise(1):
        dropped = model.encoder.tokens(ids)
    plain = model.encoder.tokens.eval()(ids)
    zeros = dropped == 0
    assert abs(zeros.double().mean().item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / zeros.numel())
    assert torch.allclose(dropped[~zeros], plain[~zeros] * 4 / 3, rtol=1e-12, atol=0)


# --- Sizes, fresh weights, depths, configurations


@pytest.mark.parametrize(
    "changes",
    [{}, {"head": False}, {"pooler": True}, {"next_sentence": True}, {"norm": "pre"}, {"segments": 5}],
    ids=str,
)
def test_parameters_are_as_many_as_the_formula_says(changes: dict[str, Any]) -> None:
    model = Bert(BertConfig(**SIZES | changes), V)
    block = 4 * (D * D + D) + 2 * D * F + F + D + 2 * 2 * D
    expected = (V + 19 + changes.get("segments", 2)) * D + 2 * D + 3 * block  # 2 D: one norm, below or above the blocks
    expected += 0 if changes.get("head") is False else D * D + D + 2 * D + V
    expected += D * D + D if changes.get("pooler") or changes.get("next_sentence") else 0
    expected += 2 * D + 2 if changes.get("next_sentence") else 0
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.fixture
def nothing_allocated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Models have shapes but no numbers."""
    monkeypatch.setattr(nn.init, "normal_", lambda tensor, *_, **__: tensor)
    with torch.device("meta"):
        yield


@pytest.mark.usefixtures("nothing_allocated")
def test_the_published_size() -> None:
    """BERT base, uncased, as released: 109,482,240 without the heads of its tasks."""
    config = BertConfig(**preset("base", "bert"), head=False, pooler=True)
    assert sum(p.numel() for p in Bert(config, 30522).parameters()) == 109_482_240


def test_fresh_weights_are_normal() -> None:
    """Devlin et al. 2019's code: 0.02 for every matrix, zero biases, norms that change nothing. Nothing is scaled."""
    torch.manual_seed(3)
    model = Bert(BertConfig(layers=4, width=64, heads=4, feed_forward=96, next_sentence=True), 257)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name))), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=5 / math.sqrt(2 * parameter.numel())), name


@pytest.mark.parametrize("size", ["demo", "tiny", "small"])
def test_presets_build_and_begin_at_chance(size: str) -> None:
    torch.manual_seed(4)
    model: Any = build("fill", BertConfig(**preset(size, "bert")), (V,))
    assert type(model) is Bert
    part = model.eval()(batch_of()).parts["loss"]
    assert (part.sum / part.count).item() == pytest.approx(math.log(V), rel=0.15)


@VARIED
def test_depths_name_every_parameter_and_grow_from_input_to_output(changes: dict[str, Any]) -> None:
    """Measured: with a block cut off from what is below it, only what is deeper still learns (and the tied table)."""
    model, batch = make(**changes), batch_of()
    depths = model.depths()
    assert depths.keys() == dict(model.named_parameters()).keys()
    assert set(depths.values()) == {0, 1, 2, 3, 4}
    assert {depths[name] for name in depths if name.startswith("encoder.tokens")} == {0}
    assert {f"encoder.{name}": depth for name, depth in model.encoder.depths().items()}.items() <= depths.items()
    for cut, block in enumerate(model.encoder.blocks):
        handle = block.register_forward_pre_hook(lambda _, given: (given[0].detach(), *given[1:]))
        model(batch).objective(batch.counts).backward()
        handle.remove()
        learning = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
        assert {depths[name] for name in learning - {"encoder.tokens.table.weight"}} == set(range(cut + 1, 5))
        model.zero_grad()


def test_without_its_head_it_gives_vectors_only() -> None:
    config = BertConfig(**SIZES, head=False)
    model = Bert(config, V)
    assert model.head is None
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder"}
    assert isinstance(model.encoder, BertEncoder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 10, "heads": 4}, "width 10 cannot be split into 4 heads; choose a divisor"),
        ({"segment": 2}, "no key segment; did you mean segments"),
        ({"pooling": "max"}, "'cls' or 'mean'"),
        ({"segments": 0}, "segments: must be 1 or more, not 0"),
        ({"band": 4}, "no key band"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match="here: ") as error:
        check(BertConfig, values, "here")
    assert message in str(error.value)


def test_bert_does_not_generate() -> None:
    with pytest.raises(UsageError, match="a bert does not generate"):
        build("generate", BertConfig(), (13,))
