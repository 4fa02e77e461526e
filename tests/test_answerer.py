"""The answerer against torch's own layers and plain loops, and what must hold of its batches, maps and loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from regard.attention import record
from regard.data.pictures.batch import AnswerBatch
from regard.data.pictures.config import PictureFormat
from regard.models.configs.pictures import AnswererConfig
from regard.models.pictures.answerer import Answerer
from regard.models.pictures.encoder import PictureEncoder, View
from regard.noise import noise

VOCABULARY, LABELS, WIDTH, HEADS, INNER, K, P = 17, 3, 10, 2, 11, 5, 6


class Eye(PictureEncoder):
    """Sees patches of 2 x 2 pixels of pictures of 4 x 6, and attends to nothing unless told to."""

    width, grid = K, (2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, K, kernel_size=2, stride=2)

    def forward(self, pixels: Tensor) -> View:
        places = pixels if pixels.dim() == 3 else self.patches(pixels).flatten(2).mT  # (B, P, K)
        return View(places.mean(dim=1), places)


@pytest.fixture(autouse=True)
def eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model here sees with an `Eye`; that of efficientnet-lite0 does not learn."""

    def make_encoder(config: Any, format: PictureFormat) -> PictureEncoder:
        return Eye().requires_grad_(config.kind != "efficientnet-lite0")

    monkeypatch.setattr("regard.models.pictures.answerer.make_encoder", make_encoder)


def build(smoothing: float = 0.0, **changes: Any) -> Answerer:
    """In float64, with random biases, so that none can be forgotten."""
    torch.manual_seed(5)
    sizes = {"width": WIDTH, "layers": 2, "heads": HEADS, "feed_forward": INNER, "dropout": 0.0}
    model = Answerer(AnswererConfig(**{**sizes, **changes}), PictureFormat(), VOCABULARY, LABELS, smoothing)
    model.double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.3, std=0.5)
    for block in model.blocks:
        for linear_layer in (block.attention.query, block.cross.query):  # type: ignore[union-attr]
            nn.init.normal_(linear_layer.weight, std=0.9)  # type: ignore[union-attr]
    return model


def batch_of(lengths: Sequence[int], seed: int = 3) -> AnswerBatch:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(len(lengths), 3, 4, 6, generator=generator, dtype=torch.float64)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(3, VOCABULARY, (length,), generator=generator)
    labels = torch.randint(LABELS, (len(lengths),), generator=generator)
    return AnswerBatch(pixels, ids, torch.tensor(lengths), labels)


def rows_of(batch: AnswerBatch, rows: Sequence[int]) -> AnswerBatch:
    chosen = list(rows)
    lengths = batch.lengths[chosen]
    return AnswerBatch(batch.pixels[chosen], batch.ids[chosen, : int(lengths.max())], lengths, batch.labels[chosen])


LENGTHS = (5, 2, 7, 1)
BATCH = batch_of(LENGTHS)


def sinusoid_by_hand(places: Sequence[int], width: int) -> Tensor:
    rows = []
    for place in places:
        angles = [place / 10000 ** ((i - i % 2) / width) for i in range(width)]
        rows.append([math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)])
    return torch.tensor(rows, dtype=torch.float64)


def copied(block: Any) -> nn.TransformerDecoderLayer:
    """torch's own layer, norms first, with the weights of a block."""
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, 0.0, batch_first=True, norm_first=True).double().eval()
    for theirs, ours in ((layer.self_attn, block.attention), (layer.multihead_attn, block.cross)):
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    layer.linear1.load_state_dict(block.feed_forward.up.state_dict())
    layer.linear2.load_state_dict(block.feed_forward.down.state_dict())
    layer.norm1.load_state_dict(block.around_attention.norm.state_dict())
    layer.norm2.load_state_dict(block.around_cross.norm.state_dict())
    layer.norm3.load_state_dict(block.around_feed_forward.norm.state_dict())
    return layer


def one_by_torch(model: Any, pixels: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of one question (S,) about one picture, and where the last layer looked: (H, S, P)."""
    part = model.projection
    places = linear(model.encoder(pixels[None]).places, part.linear.weight, part.linear.bias)
    grid = list(itertools.product(range(2), range(3)))
    rows, columns = (sinusoid_by_hand([place[axis] for place in grid], WIDTH // 2) for axis in (0, 1))
    memory = layer_norm(places, (WIDTH,), part.norm.weight, part.norm.bias) + torch.cat([rows, columns], dim=-1)
    x = model.tokens.table.weight[ids][None] * math.sqrt(WIDTH) + sinusoid_by_hand(range(len(ids)), WIDTH)
    for block in model.blocks:
        layer = copied(block)
        own = layer.norm1(x)
        asked = layer.norm2(x + layer.self_attn(own, own, own, need_weights=False)[0])
        _, looked = layer.multihead_attn(asked, memory, memory, average_attn_weights=False)
        x = layer(x, memory)
    pooled = layer_norm(x, (WIDTH,), model.norm.weight, model.norm.bias)[0].mean(dim=0)
    return model.head.weight @ pooled + model.head.bias, looked[0]


@torch.no_grad()
def test_a_padded_batch_gives_what_torch_gives_each_question() -> None:
    """Logits, the recorded weights of real tokens, and `looked`: the last cross-attention's mean over heads and tokens."""
    model = build()
    with record(model) as seen:
        logits = model.logits(BATCH)
    assert [(call.role, call.path) for call in seen.calls] == [
        (role, f"blocks.{number}.{name}")
        for number in range(2)
        for role, name in (("self", "attention"), ("cross", "cross"))
    ]
    assert seen.check() < 1e-10
    found = model.looked(seen)
    assert found.shape == (4, P) and torch.allclose(found.sum(dim=-1), torch.ones(4).double(), rtol=0, atol=1e-12)
    for b, length in enumerate(LENGTHS):
        expected, looked = one_by_torch(model, BATCH.pixels[b], BATCH.ids[b, :length])
        assert torch.allclose(logits[b], expected, rtol=0, atol=1e-12)
        assert torch.allclose(seen.calls[-1].weights()[b, :, :length], looked, rtol=0, atol=1e-12)
        assert torch.allclose(found[b], looked.mean(dim=(0, 1)), rtol=0, atol=1e-12)


@torch.no_grad()
def test_looked_without_padding_and_without_a_pass() -> None:
    model, even = build(), batch_of((4, 4))
    with record(model) as seen:
        model.logits(even)
    expected = [one_by_torch(model, even.pixels[b], even.ids[b])[1].mean(dim=(0, 1)) for b in range(2)]
    assert torch.allclose(model.looked(seen), torch.stack(expected), rtol=0, atol=1e-12)
    with record(model) as nothing:
        pass
    with pytest.raises(ValueError, match="call `logits` once inside"):
        model.looked(nothing)


@torch.no_grad()
def test_padding_and_company_change_nothing() -> None:
    model = build()
    logits = model.logits(BATCH)
    for b in range(4):
        assert torch.allclose(model.logits(rows_of(BATCH, [b]))[0], logits[b], rtol=0, atol=1e-12)
    noisy = torch.cat([BATCH.ids, torch.full((4, 3), 9)], dim=1)
    noisy[1, 2:] = 11
    assert torch.allclose(
        model.logits(AnswerBatch(BATCH.pixels, noisy, BATCH.lengths, BATCH.labels)), logits, rtol=0, atol=1e-12
    )


def test_a_picture_that_several_questions_share_is_as_good_as_one_for_each() -> None:
    model, which = build().train(), torch.tensor([1, 0, 1, 1])
    apart = replace(BATCH, pixels=BATCH.pixels[:2][which])
    shared = replace(BATCH, pixels=BATCH.pixels[:2], pictures=which)
    torch.testing.assert_close(model.logits(shared), model.logits(apart), rtol=0, atol=1e-12)
    weight = next(model.projection.parameters())
    grads = [torch.autograd.grad(model(batch).objective(batch.counts), weight)[0] for batch in (shared, apart)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_loss_is_summed_and_smoothed_only_in_training() -> None:
    model = build(smoothing=0.2)
    logs = model.logits(BATCH).log_softmax(dim=-1)
    plain = -sum(float(logs[b, label]) for b, label in enumerate(BATCH.labels.tolist()))
    uniform = -sum(float(row.mean()) for row in logs)
    right = sum(int(row.argmax()) == label for row, label in zip(logs, BATCH.labels.tolist(), strict=True))
    for training, loss in ((False, plain), (True, 0.8 * plain + 0.2 * uniform)):
        parts = model.train(training)(BATCH).parts
        found = {name: (part.sum.item(), part.count, part.weight) for name, part in parts.items()}
        assert found == {
            "loss": (pytest.approx(loss), 4, 1.0),
            "nll": (pytest.approx(plain), 4, 0.0),
            "correct": (right, 4, 0.0),
        }


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    model = build(smoothing=0.1).train()

    def gradients(batches: Sequence[AnswerBatch]) -> dict[str, Tensor]:
        model.zero_grad(set_to_none=True)
        totals = {name: sum(batch.counts[name] for batch in batches) for name in batches[0].counts}
        for batch in batches:
            model(batch).objective(totals).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    whole, parts = gradients([BATCH]), gradients([rows_of(BATCH, rows) for rows in ((0, 3), (1,), (2,))])
    assert whole.keys() == parts.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in whole.items():
        assert torch.allclose(gradient, parts[name], rtol=0, atol=1e-12) and gradient.any(), name
    assert not whole["tokens.table.weight"][0].any()  # padding learns nothing


def test_dropout_is_seeded_and_only_for_training() -> None:
    model = build(dropout=0.3)

    def loss(key: int) -> float:
        with noise(key):
            return model(BATCH).parts["loss"].sum.item()

    assert loss(1) == loss(2) == build()(BATCH).parts["loss"].sum.item()
    model.train()
    assert loss(1) == loss(1) and loss(1) != loss(2)


@torch.no_grad()
def test_features_computed_before_give_the_same_answers() -> None:
    model = build(encoder={"kind": "efficientnet-lite0"})
    features = model.encoder(BATCH.pixels).places
    known = AnswerBatch(features, BATCH.ids, BATCH.lengths, BATCH.labels)
    assert torch.equal(model.logits(known), model.logits(BATCH))


def test_it_learns_to_compare_a_question_with_a_place() -> None:
    """Which colour is at the place that the question names? Neither picture nor question alone tells it."""
    torch.manual_seed(1)
    config = AnswererConfig(width=16, layers=1, heads=2, feed_forward=32, dropout=0.0)
    model = Answerer(config, PictureFormat(), 3 + P, LABELS).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(2)

    def lesson(rows: int = 64) -> AnswerBatch:
        colours = torch.randint(LABELS, (rows, P), generator=generator)
        asked = torch.randint(P, (rows, 1), generator=generator)
        bright = torch.eye(3)[colours].mT.unflatten(-1, (2, 3))  # (B, 3, 2, 3)
        pixels = bright.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        return AnswerBatch(pixels, 3 + asked, torch.ones(rows).long(), colours.gather(1, asked)[:, 0])

    for _ in range(200):
        batch = lesson()
        optimiser.zero_grad()
        model(batch).objective(batch.counts).backward()
        optimiser.step()
    test = lesson(200)
    with torch.no_grad(), record(model.eval()) as seen:
        right = model(test).parts["correct"]
    assert float(right.sum) / right.count > 0.9  # a third by guessing
    looked = model.looked(seen).gather(1, test.ids - 3).mean()
    assert looked > 0.5  # a sixth by looking anywhere
