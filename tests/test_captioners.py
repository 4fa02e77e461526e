"""Writers of captions against their papers in plain loops, torch's own modules and enumeration, and what holds of any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from regard.attention import record, softness
from regard.data.pictures.batch import CaptionBatch
from regard.data.pictures.config import PictureFormat
from regard.decode.config import DecodeConfig
from regard.decode.search import generate
from regard.errors import RegardError
from regard.models.configs.pictures import CaptionTransformerConfig, ShowAndTellConfig, ShowAttendTellConfig
from regard.models.pictures import show_attend_tell
from regard.models.pictures.captioner import CaptionTransformer, ShowAndTell
from regard.models.pictures.classifier import make_encoder
from regard.models.pictures.encoder import PictureEncoder, View
from regard.models.pictures.show_attend_tell import ShowAttendTell, one_drawn, spread
from regard.noise import noise

VOCABULARY, PAD, BEGIN, END = 13, 0, 1, 2
WIDTH, HIDDEN, K, P = 10, 7, 5, 6
Weights = dict[str, Tensor]


class Eye(PictureEncoder):
    """Sees patches of 2 x 2 pixels of pictures of 4 x 6; its vector is not the mean of its places."""

    width, grid = K, (2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, K, kernel_size=2, stride=2)
        self.last = nn.Linear(K, K)
        nn.init.constant_(self.last.weight, 0.125)

    def forward(self, pixels: Tensor) -> View:
        if pixels.dim() == 3:
            return View(pixels.mean(dim=1), pixels)
        places = self.patches(pixels).flatten(2).mT  # (B, P, K)
        return View(self.last(places).amax(dim=1), places)


@pytest.fixture(autouse=True)
def eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model here sees with an `Eye`; that of efficientnet-lite0 does not learn."""

    def make_encoder(config: Any, format: PictureFormat) -> PictureEncoder:
        return Eye().requires_grad_(config.kind != "efficientnet-lite0")

    monkeypatch.setattr("regard.models.pictures.captioner.make_encoder", make_encoder)


CONFIGS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "soft": (ShowAttendTell, ShowAttendTellConfig, {"hidden": HIDDEN, "attention": 9, "spread": 0.3}),
    "hard": (ShowAttendTell, ShowAttendTellConfig, {"hidden": HIDDEN, "attention": 9, "hard": True}),
    "show-and-tell": (ShowAndTell, ShowAndTellConfig, {"hidden": HIDDEN}),
    "transformer": (CaptionTransformer, CaptionTransformerConfig, {"layers": 2, "heads": 2, "feed_forward": 11}),
}
KINDS = pytest.mark.parametrize("kind", CONFIGS)


def build(kind: str, smoothing: float = 0.0, vocabulary: int = VOCABULARY, **changes: Any) -> Any:
    """A model in float64, all of whose weights are random, so that none can be forgotten."""
    torch.manual_seed(7)
    model, config, sizes = CONFIGS[kind]
    settings = {"width": WIDTH, "dropout": 0.0, "tied": "none", **sizes, **changes}
    made = model(config(**settings), PictureFormat(), vocabulary, smoothing).double().eval()
    for name, parameter in made.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.3, std=0.5)
        elif "attention" in name or "gate" in name:
            nn.init.normal_(parameter, std=0.8)  # so that some places are preferred
    return made


def batch_of(lengths: Sequence[int], seed: int = 3, vocabulary: int = VOCABULARY) -> CaptionBatch:
    """Captions of so many tokens to predict, the end included."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(len(lengths), 3, 4, 6, generator=generator, dtype=torch.float64)
    target = torch.full((len(lengths), max(lengths) + 1), PAD)
    for row, length in zip(target, lengths, strict=True):
        row[0], row[length] = BEGIN, END
        row[1:length] = torch.randint(3, vocabulary, (length - 1,), generator=generator)
    return CaptionBatch(pixels, target, torch.tensor(lengths), sum(lengths))


def rows_of(batch: CaptionBatch, rows: Sequence[int]) -> CaptionBatch:
    """Some rows alone, without the padding that they do not need."""
    lengths = batch.target_lengths[list(rows)]
    target = batch.target[list(rows), : int(lengths.max()) + 1]
    return CaptionBatch(batch.pixels[list(rows)], target, lengths, int(lengths.sum()))


LENGTHS = (5, 2, 7, 1)
BATCH = batch_of(LENGTHS)


# --- Xu et al. 2015, one picture and one word after another


def annotations(w: Weights, pixels: Tensor) -> Tensor:
    """a (P, D): each patch of 2 x 2 pixels (3, 4, 6) through the eye, the layer and its norm."""
    places = []
    for row, column in itertools.product(range(2), range(3)):
        patch = pixels[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        seen = (w["encoder.patches.weight"] * patch).sum(dim=(1, 2, 3)) + w["encoder.patches.bias"]
        x = w["projection.linear.weight"] @ seen + w["projection.linear.bias"]
        x = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()
        places.append(x * w["projection.norm.weight"] + w["projection.norm.bias"])
    return torch.stack(places)


def chances(w: Weights, a: Tensor, h: Tensor) -> Tensor:
    """Eq. 4 and 5: α (P,)."""
    query, key, value = (w[f"attention.score.{name}.weight"] for name in ("query", "key", "value"))
    e = torch.stack([value[0] @ torch.tanh(query @ h + key @ place) for place in a])
    return e.exp() / e.exp().sum()


def lstm(w: Weights, x: Tensor, fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    name = "decoder.layers.0"
    gates = w[f"{name}.weight_x"] @ x + w["decoder.feed.weight"] @ fed + w[f"{name}.weight_h"] @ h
    i, f, g, o = (gates + w[f"{name}.bias_x"] + w[f"{name}.bias_h"]).split(HIDDEN)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def paper(w: Weights, pixels: Tensor, ids: Sequence[int], path: Sequence[int] | str) -> tuple[Tensor, Tensor]:
    """Logits (T, V) after each of `ids`, and every α (T, P). `path`: "soft", "best", or the places to look at."""
    a = annotations(w, pixels)
    mean = sum(a) / len(a)
    h = torch.tanh(w["first_state.weight"] @ mean + w["first_state.bias"])
    c = torch.tanh(w["first_cell.weight"] @ mean + w["first_cell.bias"])
    logits, looked = [], []
    for t, token in enumerate(ids):
        alpha = chances(w, a, h)
        if path == "soft":
            beta = torch.sigmoid(w["gate.weight"][0] @ h + w["gate.bias"][0])
            z = beta * sum(alpha[i] * a[i] for i in range(P))
        else:
            z = a[int(alpha.argmax()) if path == "best" else path[t]]
        y = w["target.table.weight"][token] * math.sqrt(WIDTH)
        h, c = lstm(w, y, z, h, c)
        logits.append(w["output.weight"] @ (y + w["state_out.weight"] @ h + w["context_out.weight"] @ z))
        looked.append(alpha)
    return torch.stack(logits), torch.stack(looked)


def weights_of(model: nn.Module) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters(remove_duplicate=False)}


@torch.no_grad()
@pytest.mark.parametrize("tied", ["none", "target"])
@pytest.mark.parametrize(("kind", "path"), [("soft", "soft"), ("hard", "best")])
def test_a_padded_batch_gives_what_the_paper_gives_each_picture(kind: str, path: str, tied: str) -> None:
    model = build(kind, tied=tied)
    with record(model) as seen:
        logits = model.logits(BATCH)
    (call,) = seen.calls
    assert (call.path, call.role) == ("attention", "cross")
    assert call.weights().shape == (4, 1, 7, P) and seen.check() < 1e-12
    for b, length in enumerate(LENGTHS):
        expected, alpha = paper(weights_of(model), BATCH.pixels[b], BATCH.target[b, :length].tolist(), path)
        assert torch.allclose(logits[b, :length], expected, rtol=0, atol=1e-12)
        if path == "best":
            alpha = (alpha == alpha.amax(dim=-1, keepdim=True)).double()
        assert torch.allclose(call.weights()[b, 0, :length], alpha, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_shut_gate_hides_the_places() -> None:
    """β = σ(-800) = 0: only the first state still knows the picture, so that places may stand in any order."""
    model = build("soft")
    model.gate.weight.zero_()
    model.gate.bias.fill_(-800.0)
    memory = model.encode(BATCH.pixels)
    turned = type(memory)(memory.vectors * torch.tensor([2.0, 0.0] * 3).double()[:, None], None, "grid")
    open_model = build("soft")
    for each, same in ((model, True), (open_model, False)):
        state, other = each.begin(memory), each.begin(turned)
        mixed = type(state)(state.layers, other.source)
        y = each.target(BATCH.target[:, :-1])
        assert torch.allclose(each.read(y, state), each.read(y, mixed), atol=1e-9) == same


@torch.no_grad()
@pytest.mark.parametrize("hard", [False, True])
def test_softness_reaches_show_attend_tell(hard: bool) -> None:
    """A model trained to look softly can be made to look at the best place only: its context is that annotation."""
    model = build("soft")
    with softness(hard=hard), record(model) as seen:
        model.logits(BATCH)
    ones = seen.calls[0].weights().amax(dim=-1) == 1.0
    assert bool(ones.all()) == hard


# --- The other two against torch's own modules


@torch.no_grad()
def test_show_and_tell_reads_the_picture_as_a_word_before_the_first() -> None:
    """Vinyals et al. 2015, eq. 10 to 12, with torch.nn.LSTM from zeros over [picture, words]."""
    model = build("show-and-tell")
    oracle = nn.LSTM(WIDTH, HIDDEN, batch_first=True).double()
    layer = model.decoder.layers[0]
    for ours, theirs in (
        ("weight_x", "weight_ih"),
        ("weight_h", "weight_hh"),
        ("bias_x", "bias_ih"),
        ("bias_h", "bias_hh"),
    ):
        getattr(oracle, f"{theirs}_l0").copy_(getattr(layer, ours))
    part = model.projection
    x = linear(model.encoder(BATCH.pixels).vector, part.linear.weight, part.linear.bias)
    x = layer_norm(x, (WIDTH,), part.norm.weight, part.norm.bias)
    words = model.target.table.weight[BATCH.target[:, :-1]] * math.sqrt(WIDTH)
    out, _ = oracle(torch.cat([x[:, None], words], dim=1))
    expected = out[:, 1:] @ model.readout.weight.T @ model.output.weight.T
    assert torch.allclose(model.logits(BATCH), expected, rtol=0, atol=1e-12)
    assert model.encode(BATCH.pixels).vectors.shape == (4, 1, WIDTH)


def copied(block: Any, heads: int, inner: int) -> nn.TransformerDecoderLayer:
    """torch's own layer, norms first, with the weights of a block."""
    layer = nn.TransformerDecoderLayer(WIDTH, heads, inner, 0.0, batch_first=True, norm_first=True).double().eval()
    pairs = [(layer.self_attn, block.attention), (layer.multihead_attn, block.cross)]
    for theirs, ours in pairs:
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key_value.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    layer.linear1.load_state_dict(block.feed_forward.up.state_dict())
    layer.linear2.load_state_dict(block.feed_forward.down.state_dict())
    for norm, around in zip(
        (layer.norm1, layer.norm2, layer.norm3),
        (block.around_attention, block.around_cross, block.around_feed_forward),
        strict=True,
    ):
        norm.load_state_dict(around.norm.state_dict())
    return layer


def grid_by_hand(width: int) -> Tensor:
    """Of a grid of 2 x 3: sines and cosines of the row in the first half, of the column in the second."""
    table = []
    for row, column in itertools.product(range(2), range(3)):
        vector = []
        for place, half in ((row, width // 2), (column, width - width // 2)):
            for i in range(half):
                angle = place / 10000 ** ((i - i % 2) / half)
                vector.append(math.cos(angle) if i % 2 else math.sin(angle))
        table.append(vector)
    return torch.tensor(table, dtype=torch.float64)


@torch.no_grad()
def test_the_transformer_is_torchs_own_decoder_over_places() -> None:
    model = build("transformer")
    part = model.projection
    places = linear(model.encoder(BATCH.pixels).places, part.linear.weight, part.linear.bias)
    memory = layer_norm(places, (WIDTH,), part.norm.weight, part.norm.bias) + grid_by_hand(WIDTH)
    t = torch.arange(7.0, dtype=torch.float64)[:, None]
    angle = t / 10000 ** (torch.arange(0, WIDTH, 2).double() / WIDTH)
    x = model.target.table.weight[BATCH.target[:, :-1]] * math.sqrt(WIDTH)
    x = x + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    causal = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    for block in model.decoder:
        x = copied(block, 2, 11)(x, memory, tgt_mask=causal)
    norm = model.decoder_norm
    expected = layer_norm(x, (WIDTH,), norm.weight, norm.bias) @ model.output.weight.T
    with record(model) as seen:
        logits = model.logits(BATCH)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-12)
    assert [call.role for call in seen.calls] == ["causal", "cross"] * 2
    assert seen.only("cross")[0].weights().shape == (4, 2, 7, P) and seen.check() < 1e-10


# --- What holds of every kind


@torch.no_grad()
@KINDS
def test_a_batch_is_its_rows_and_padding_changes_nothing(kind: str) -> None:
    model = build(kind)
    logits, loss = model.logits(BATCH), model(BATCH).parts["loss"]
    alone = [rows_of(BATCH, [b]) for b in range(4)]
    for b, (one, length) in enumerate(zip(alone, LENGTHS, strict=True)):
        assert torch.allclose(model.logits(one)[0], logits[b, :length], rtol=0, atol=1e-12)
    longer = torch.cat([BATCH.target, torch.full((4, 3), PAD)], dim=1)
    padded = CaptionBatch(BATCH.pixels, longer, BATCH.target_lengths, BATCH.target_tokens)
    wanted = sum(-logits[b].log_softmax(-1)[t, BATCH.target[b, t + 1]] for b in range(4) for t in range(LENGTHS[b]))
    for sums in ([loss.sum], [model(one).parts["loss"].sum for one in alone], [model(padded).parts["nll"].sum]):
        assert sum(sums).item() == pytest.approx(float(wanted), rel=1e-12)
    assert loss.count == 15 and set(model(BATCH).parts) == {"loss", "nll"}


@torch.no_grad()
@KINDS
def test_steps_are_the_whole_caption(kind: str) -> None:
    model = build(kind)
    with record(model) as whole:
        logits = model.logits(BATCH)
    with record(model) as steps:
        found, state = model.start(BATCH.source_parts, BATCH.target[:, :2])
        stepped = [found]
        for t in range(2, 7):
            found, state = model.step(BATCH.target[:, t : t + 1], state)
            stepped.append(found)
    assert torch.allclose(torch.cat(stepped, dim=1), logits[:, 1:], rtol=0, atol=1e-12)
    if kind in ("soft", "hard"):
        (call,) = whole.calls
        assert len(steps.calls) == 7 and steps.check() < 1e-12
        for t, step in enumerate(steps.calls):
            assert torch.allclose(step.weights(), call.weights()[:, :, t : t + 1], rtol=0, atol=1e-12)
            assert torch.allclose(step.q, call.q[:, :, t : t + 1], rtol=0, atol=1e-12)


@torch.no_grad()
@KINDS
def test_a_walk_of_steps_gives_each_hypothesis_its_own_caption(kind: str) -> None:
    """Beams of changing width; one picture leaves on the way. Each hypothesis is compared with its caption alone."""
    model, dice = build(kind), torch.Generator().manual_seed(5)
    rows, read = [0, 1, 2, 3], [[[BEGIN]] for _ in range(4)]
    logits, state = model.start(BATCH.source_parts, torch.full((4, 1), BEGIN))
    for turn, width in enumerate((3, 2, 4)):
        if turn == 1:
            rows, read = [rows[0], *rows[2:]], [read[0], *read[2:]]
            state = model.keep(state, torch.tensor([0, 2, 3]))
        parents = torch.randint(len(read[0]), (len(rows), width), generator=dice)
        tokens = torch.randint(3, VOCABULARY, (len(rows), width), generator=dice)
        state = model.reorder(state, parents)
        read = [
            [[*read[b][p], token] for p, token in zip(chosen, new, strict=True)]
            for b, (chosen, new) in enumerate(zip(parents.tolist(), tokens.tolist(), strict=True))
        ]
        logits, state = model.step(tokens, state)
    for b, row in enumerate(rows):
        for w, ids in enumerate(read[b]):
            memory = model.encode(BATCH.pixels[row : row + 1])
            expected = model.output(model.decode(torch.tensor([ids]), memory))[0, -1]
            assert torch.allclose(logits[b, w], expected, rtol=0, atol=1e-12)


@torch.no_grad()
@KINDS
def test_a_wide_beam_finds_the_best_of_all_captions(kind: str) -> None:
    """Three words, at most three in a caption: 40 of them, each scored alone."""
    model, limit, words = build(kind, vocabulary=6), 3, (3, 4, 5)
    nn.init.normal_(model.output.weight, std=0.8)
    every = [ids for length in range(limit + 1) for ids in itertools.product(words, repeat=length)]
    pixels = batch_of((1, 1)).pixels
    found = generate(
        model, (pixels,), torch.full((2, 1), BEGIN), end=END, limits=[limit] * 2,
        options=DecodeConfig(beam=len(every), n_best=5, length_penalty="none"), forbidden=(PAD, BEGIN),
    )  # fmt: skip
    for b in range(2):
        ranked = []
        for ids in every:
            memory = model.encode(pixels[b : b + 1])
            logs = model.output(model.decode(torch.tensor([[BEGIN, *ids]]), memory))[0].log_softmax(-1)
            ranked.append((sum(float(logs[t, token]) for t, token in enumerate([*ids, END])), ids))
        ranked.sort(reverse=True)
        for one, (total, ids) in zip(found[b], ranked, strict=False):
            assert tuple(one.ids) == ids
            assert one.log_probability == pytest.approx(total, abs=1e-10)


def gradients(model: nn.Module, batches: Sequence[CaptionBatch]) -> Weights:
    """As the loop does it: the counts of all batches, then one backward pass for each."""
    model.zero_grad(set_to_none=True)
    totals = {name: sum(batch.counts[name] for batch in batches) for name in batches[0].counts}
    for batch in batches:
        model(batch).objective(totals).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", ["soft", "show-and-tell", "transformer"])
def test_accumulated_gradients_are_those_of_the_large_batch(kind: str) -> None:
    model = build(kind, smoothing=0.1, tied="target").train()
    whole = gradients(model, [BATCH])
    parts = gradients(model, [rows_of(BATCH, rows) for rows in ((0,), (1, 3), (2,))])
    learned = {name for name, _ in model.named_parameters()}
    unused = {"encoder.last.weight", "encoder.last.bias"} if kind != "show-and-tell" else set()
    assert whole.keys() == parts.keys() == learned - unused
    for name, gradient in whole.items():
        assert torch.allclose(gradient, parts[name], rtol=0, atol=1e-12) and gradient.any(), name


@KINDS
def test_dropout_and_drawing_are_seeded_and_only_for_training(kind: str) -> None:
    model = build(kind, dropout=0.3)

    def loss(key: int) -> float:
        with noise(key):
            return model(BATCH).parts["loss"].sum.item()

    assert loss(1) == loss(2) == build(kind)(BATCH).parts["loss"].sum.item()
    model.train()
    assert loss(1) == loss(1) and loss(1) != loss(2)


@KINDS
def test_the_encoder_keeps_its_own_fresh_weights(kind: str) -> None:
    model, config, sizes = CONFIGS[kind]
    made = model(config(**sizes, width=WIDTH), PictureFormat(), VOCABULARY)
    assert torch.equal(made.encoder.last.weight, torch.full((K, K), 0.125))
    assert made.output.weight is made.target.table.weight  # tied = "target"


@KINDS
@pytest.mark.parametrize("encoder", ["convnet", "vit"])
def test_it_learns_with_a_real_encoder(kind: str, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what sees learns, and what it sees is a grid of the size that it says."""
    monkeypatch.setattr("regard.models.pictures.captioner.make_encoder", make_encoder)
    model, config, sizes = CONFIGS[kind]
    small = {"convnet": {"channels": (4, 6)}, "vit": {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8}}[encoder]
    made = model(
        config(**sizes, width=WIDTH, encoder={"kind": encoder, **small}), PictureFormat(size=16), VOCABULARY
    ).train()
    pixels = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    batch = CaptionBatch(pixels, BATCH.target, BATCH.target_lengths, BATCH.target_tokens)
    made(batch).objective(batch.counts).backward()
    assert any(p.grad is not None and p.grad.any() for p in made.encoder.parameters())
    rows, columns = made.encoder.grid
    assert made.encode(pixels).vectors.shape == (4, 1 if kind == "show-and-tell" else rows * columns, WIDTH)


# --- Features that were computed before


@torch.no_grad()
@pytest.mark.parametrize("kind", ["soft", "transformer", "show-and-tell"])
def test_an_encoder_that_does_not_learn_takes_its_features(kind: str) -> None:
    model = build(kind, encoder={"kind": "efficientnet-lite0"})
    features = model.encoder(BATCH.pixels).places
    known = CaptionBatch(features, BATCH.target, BATCH.target_lengths, BATCH.target_tokens)
    model.encoder.forward = lambda pixels: View(features.mean(dim=1), features)
    assert torch.equal(model.logits(known), model.logits(BATCH))


def test_features_that_do_not_fit_are_refused_in_words() -> None:
    with pytest.raises(RegardError, match=r"an encoder that learns; give pixels .* efficientnet-lite0"):
        build("soft").encode(torch.zeros(2, P, K))
    frozen = build("soft", encoder={"kind": "efficientnet-lite0"})
    with pytest.raises(RegardError, match=r"\(2, 9, 5\) are not of this encoder, which gives 6 places of width 5"):
        frozen.encode(torch.zeros(2, 9, K))
    with pytest.raises(RegardError, match="6 places of width 5"):
        frozen.encode(torch.zeros(2, P, 7))


# --- Doubly stochastic attention


def test_spread_by_hand() -> None:
    """Three places, two words: each place once is (1 - 0.7)² + (1 - 0.5)² + (1 - 0.8)² = 0.09 + 0.25 + 0.04 = 0.38.

    The second caption has one word; the first place alone has all of it: 0 + 1 + 1 = 2. Together 2.38.
    """
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.2, 0.25, 0.55]], [[1.0, 0.0, 0.0], [0.3, 0.3, 0.4]]])
    part = spread(weights, torch.tensor([2, 1]), 0.7)
    assert part.sum.item() == pytest.approx(2.38, abs=1e-6)
    assert (part.count, part.weight) == (3, 0.7)


def test_spread_joins_the_loss_in_training_over_real_words_only() -> None:
    model = build("soft").train()
    loss = model(BATCH)
    assert set(loss.parts) == {"loss", "nll", "spread"}
    expected = 0.0
    for b, length in enumerate(LENGTHS):
        _, alpha = paper(weights_of(model), BATCH.pixels[b], BATCH.target[b, :length].tolist(), "soft")
        expected += sum((1 - float(alpha[:, i].sum())) ** 2 for i in range(P))
    part = loss.parts["spread"]
    assert part.sum.item() == pytest.approx(expected, rel=1e-12) and (part.count, part.weight) == (15, 0.3)
    total = (loss.parts["loss"].sum + 0.3 * part.sum) / 15
    assert loss.objective(BATCH.counts).item() == pytest.approx(total.item(), rel=1e-12)


# --- Hard attention


def paths(words: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(P), repeat=words)


def log_likelihood(w: Weights, path: Sequence[int], batch: CaptionBatch, row: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Of one caption: log p(y | s), log p(s), and Σ_t H[α_t]."""
    ids = batch.target[row, : int(batch.target_lengths[row]) + 1].tolist()
    logits, alpha = paper(w, batch.pixels[row], ids[:-1], path)
    logs = logits.log_softmax(dim=-1)
    told = sum(logs[t, token] for t, token in enumerate(ids[1:]))
    drawn = sum(alpha[t, place].log() for t, place in enumerate(path))
    return told, drawn, -(alpha * alpha.log()).sum()


def at(monkeypatch: pytest.MonkeyPatch, path: Sequence[int]) -> None:
    """Let the next forward pass draw these places, word by word."""
    left = iter(path)
    ones = torch.eye(P, dtype=torch.float64)
    monkeypatch.setattr(show_attend_tell, "one_drawn", lambda chances: ones[next(left)].expand_as(chances))


@pytest.mark.parametrize("baseline", [-2.5, 40.0])
def test_the_estimator_of_hard_attention_is_unbiased(baseline: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its expectation over all 36 paths of two words is the gradient of E_s[log p(y | s)], whatever the baseline."""
    batch = batch_of((2,), seed=11)
    model = build("hard", entropy=0.0).train()
    w = {name: parameter.requires_grad_() for name, parameter in weights_of(model).items()}
    expected_log, estimate = torch.zeros(()).double(), {name: torch.zeros_like(value) for name, value in w.items()}
    for path in paths(2):
        told, drawn, _ = log_likelihood(w, path, batch)
        expected_log = expected_log + drawn.exp() * told
        model.baseline.fill_(baseline)
        at(monkeypatch, path)
        found = gradients(model, [batch])
        for name, gradient in found.items():
            estimate[name] += drawn.exp().item() * gradient
    exact = torch.autograd.grad(-expected_log / 2, list(w.values()), allow_unused=True)  # the loss is a mean over words
    for (name, value), gradient in zip(w.items(), exact, strict=True):
        wanted = torch.zeros_like(value) if gradient is None else gradient
        assert torch.allclose(estimate[name], wanted, rtol=0, atol=1e-11), name
    assert estimate["attention.score.query.weight"].abs().max() > 1e-4


def test_the_parts_of_hard_attention_by_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 11 with its entropy, of two captions that share the baseline; then eq. 12. Padding counts nowhere."""
    batch = batch_of((3, 1), seed=4)
    model = build("hard", entropy=0.25).train()
    model.baseline.fill_(-1.5)
    both = torch.eye(P, dtype=torch.float64)[torch.tensor([[4, 0, 3], [2, 5, 5]])]  # (B, T, P)
    left = iter(range(3))
    monkeypatch.setattr(show_attend_tell, "one_drawn", lambda chances: both[:, next(left)][:, None])
    with record(model) as seen:
        parts = model(batch).parts
    w = weights_of(model)
    (first, drawn, entropy), (second, other, less) = (
        log_likelihood(w, [4, 0, 3], batch), log_likelihood(w, [2], batch, row=1)
    )  # fmt: skip
    gain = (first + 3 * 1.5) * drawn + (second + 1.5) * other + 0.25 * (entropy + less)
    assert parts["loss"].sum.item() == pytest.approx(-(first + second).item(), rel=1e-12)
    assert parts["chosen"].sum.item() == pytest.approx(-gain.item(), rel=1e-12)
    assert (parts["chosen"].count, parts["chosen"].weight) == (4, 1.0)
    assert parts["baseline"].sum.item() == pytest.approx(-1.5 * 4)
    assert (parts["baseline"].count, parts["baseline"].weight) == (4, 0.0)
    assert model.baseline.item() == pytest.approx(0.9 * -1.5 + 0.1 * (first + second).item() / 4, rel=1e-12)
    assert torch.equal(seen.calls[0].weights()[:, 0], both) and seen.check() < 1e-12


def test_the_baseline_is_saved_and_rests_in_evaluation() -> None:
    model = CONFIGS["hard"][0](ShowAttendTellConfig(hard=True), PictureFormat(), VOCABULARY)
    assert model.state_dict()["baseline"].dtype == torch.float32
    assert model.baseline.item() == pytest.approx(-math.log(VOCABULARY))
    pixels, before = BATCH.pixels.float(), model.baseline.item()
    batch = CaptionBatch(pixels, BATCH.target, BATCH.target_lengths, BATCH.target_tokens)
    model.eval()(batch)
    assert model.baseline.item() == before
    model.train()(batch)
    assert model.baseline.item() != before
    assert "baseline" not in build("soft").state_dict() and build("hard").gate is None


def test_places_are_drawn_with_their_chances() -> None:
    """20,000 draws of each of two words: shares within 5 standard deviations, never a place without a chance."""
    shares, draws = torch.tensor([[0.5, 0.2, 0.0, 0.3], [0.0, 0.0, 1.0, 0.0]]), 20_000
    torch.manual_seed(3)
    drawn = one_drawn(shares.expand(draws, 2, 4))
    assert torch.equal(drawn.sum(dim=-1), torch.ones(draws, 2)) and set(drawn.unique().tolist()) == {0.0, 1.0}
    allowed = 5 * (shares * (1 - shares) / draws).sqrt()
    assert ((drawn.mean(dim=0) - shares).abs() <= allowed).all()


def test_hard_attention_learns_where_to_look() -> None:
    """One of three words is told by one place of six, the first state is kept from knowing it. REINFORCE finds it."""
    torch.manual_seed(0)
    model = ShowAttendTell(
        ShowAttendTellConfig(width=8, hidden=8, attention=8, hard=True, dropout=0.0, tied="none"), PictureFormat(), 6
    ).train()
    for first in (model.first_state, model.first_cell):
        nn.init.zeros_(first.weight).requires_grad_(False)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    generator = torch.Generator().manual_seed(1)

    def lesson() -> CaptionBatch:
        pixels = torch.randn(32, 3, 4, 6, generator=generator) * 0.3
        word = torch.randint(3, (32,), generator=generator)
        pixels[:, :, 2:, 2:4] = 2.0 * torch.eye(3)[word][:, :, None, None]  # place 4: one channel is bright
        target = torch.stack([torch.full((32,), BEGIN), 3 + word], dim=1)
        return CaptionBatch(pixels, target, torch.ones(32, dtype=torch.long), 32)

    for step in range(60):
        with noise(step):
            batch = lesson()
            optimiser.zero_grad()
            model(batch).objective(batch.counts).backward()
            optimiser.step()
    batch = lesson()
    with torch.no_grad(), record(model.eval()) as seen:
        nll = model(batch).parts["nll"]
    assert float(nll.sum) / nll.count < 0.1
    assert seen.calls[0].weights()[:, 0, 0, 4].mean() > 0.95
