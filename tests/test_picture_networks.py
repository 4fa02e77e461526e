"""Networks that see, against plain functions written from their papers with the same weights; the picture classifier."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.data.pictures.batch import PictureBatch
from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError
from regard.models.config import ConvMixerConfig, ConvNetConfig, MixerConfig, ResNetConfig
from regard.models.loss import Loss
from regard.models.pictures.classifier import PictureClassifier
from regard.models.pictures.convolutional import ConvNet, ResNet
from regard.models.pictures.encoder import PictureEncoder
from regard.models.pictures.mixer import ConvMixer, Mixer
from regard.noise import noise

B, LABELS = 3, 7
FORMAT = PictureFormat(size=14)
GREY = PictureFormat(size=14, channels=1)
CONVNET = ConvNetConfig(channels=(5, 11, 7), layers=2)
RESNET = ResNetConfig(channels=(5, 11, 7), blocks=2)
CONVMIXER = ConvMixerConfig(patch=2, layers=3, width=11, kernel=5)
MIXER = MixerConfig(patch=2, layers=3, width=11, places=17, feed_forward=23, dropout=0.2)
KINDS: dict[str, tuple[Any, Any]] = {
    "convnet": (ConvNet, CONVNET),
    "convnet-se": (ConvNet, CONVNET.model_copy(update={"attention": "se"})),
    "convnet-cbam": (ConvNet, CONVNET.model_copy(update={"attention": "cbam", "kernel": 2})),
    "resnet": (ResNet, RESNET),
    "resnet-se": (ResNet, RESNET.model_copy(update={"attention": "se"})),
    "resnet-cbam": (ResNet, RESNET.model_copy(update={"attention": "cbam"})),
    "convmixer": (ConvMixer, CONVMIXER),
    "convmixer-even": (ConvMixer, CONVMIXER.model_copy(update={"kernel": 4})),
    "mixer": (Mixer, MIXER),
}
GRIDS = {
    "convnet": (3, 3),
    "resnet": (4, 4),
    "convmixer": (7, 7),
    "mixer": (7, 7),
}  # 14 -> 7 -> 3 by pools, -> 4 by strides
EVERY = pytest.mark.parametrize("kind", KINDS)


def build(kind: str, format: PictureFormat = FORMAT) -> PictureEncoder:
    """With weights, biases and running statistics of any size, so that none of them can be left out unseen."""
    torch.manual_seed(5)
    family, config = KINDS[kind]
    model = family(config, format).double()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        with torch.no_grad():
            if name.endswith("variance"):
                tensor.uniform_(0.5, 2.0)
            elif tensor.dim() == 1:
                tensor.normal_(0.5, 0.5)
    return model.eval()


def pixels(count: int = B, channels: int = 3) -> Tensor:
    return torch.randn(count, channels, 14, 14, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def assert_same(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < tolerance


# --- What all have in common


@torch.no_grad()
@EVERY
@pytest.mark.parametrize("format", [FORMAT, GREY], ids=["colour", "grey"])
def test_shapes_and_the_mean(kind: str, format: PictureFormat) -> None:
    model = build(kind, format)
    view = model(pixels(channels=format.channels))
    rows, columns = GRIDS[kind.split("-")[0]]
    assert model.grid == (rows, columns)
    assert model.width == KINDS[kind][1].width
    assert view.vector.shape == (B, model.width)
    assert view.places.shape == (B, rows * columns, model.width)
    assert_same(view.vector, sum(view.places[:, p] for p in range(rows * columns)) / (rows * columns))


@torch.no_grad()
@EVERY
def test_a_picture_is_seen_alike_in_any_company(kind: str) -> None:
    model, x = build(kind), pixels()
    together = model(x)
    for row in range(B):
        alone = model(x[row : row + 1])
        assert_same(alone.vector[0], together.vector[row])
        assert_same(alone.places[0], together.places[row])


@torch.no_grad()
@EVERY
def test_layout_of_memory_changes_nothing(kind: str) -> None:
    model, x = build(kind), pixels()
    assert_same(model(x.contiguous(memory_format=torch.channels_last)).places, model(x).places)


@EVERY
def test_gradients_reach_every_parameter(kind: str) -> None:
    model = build(kind).train()
    with noise(1):
        view = model(pixels())
    # Not the plain mean: a batch norm makes that one constant.
    (view.places * torch.randn_like(view.places)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@EVERY
def test_statistics_are_saved_and_weights_lie_as_usual(kind: str) -> None:
    model = build(kind)
    state = model.state_dict()
    assert set(state) == {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    assert all(tensor.is_contiguous() for tensor in state.values())
    assert not any("num_batches" in name for name in state)


@EVERY
def test_pictures_of_another_format_are_refused(kind: str) -> None:
    with pytest.raises(RegardError, match=r"3 x 15 x 14 .*do not fit a model of 3 x 14 x 14"):
        build(kind)(torch.zeros(1, 3, 15, 14, dtype=torch.float64))
    with pytest.raises(RegardError, match=r"do not fit a model of 3 x 14 x 14"):
        build(kind)(torch.zeros(1, 1, 14, 14, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["convnet", "resnet", "convmixer", "mixer"])
def test_fresh_signals_neither_vanish_nor_explode(kind: str) -> None:
    torch.manual_seed(1)
    family, _ = KINDS[kind]
    config = KINDS[kind][1].__class__()
    model = family(config, PictureFormat(size=32)).train()
    view = model(torch.randn(8, 3, 32, 32))
    assert 0.05 < float(view.places.detach().std()) < 5
    view.vector.square().mean().backward()
    norms = [float(p.grad.norm()) for p in model.parameters() if p.dim() > 1 and p.grad is not None]
    assert all(math.isfinite(norm) for norm in norms)


# --- Plain networks


def normed(state: dict[str, Tensor], name: str, x: Tensor, training: bool) -> Tensor:
    """Batch norm from its definition (Ioffe & Szegedy 2015, algorithm 1)."""
    if training:
        mean, variance = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=False)
    else:
        mean, variance = state[f"{name}.mean"], state[f"{name}.variance"]
    scale = state[f"{name}.weight"] / (variance + 1e-5).sqrt()
    return (x - mean.view(1, -1, 1, 1)) * scale.view(1, -1, 1, 1) + state[f"{name}.bias"].view(1, -1, 1, 1)


def convolved(state: dict[str, Tensor], name: str, x: Tensor, training: bool, stride: int = 1) -> Tensor:
    """Convolution and norm; a kernel of k has (k - 1) / 2 zeros on each side."""
    weight = state[f"{name}.convolution.weight"]
    y = F.conv2d(x, weight, stride=stride, padding=weight.size(-1) // 2)
    return normed(state, f"{name}.norm", y, training)


def plain_convnet(state: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
    for stage in range(3):
        if stage:
            x = F.max_pool2d(x, 2)
        for layer in range(2):
            x = F.relu(convolved(state, f"stages.{stage}.layers.{layer}", x, training))
    return x


def excited(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    if f"{name}.network.down.weight" not in state:
        return x
    z = F.relu(x.mean(dim=(2, 3)) @ state[f"{name}.network.down.weight"].T) @ state[f"{name}.network.up.weight"].T
    return x / (1 + torch.exp(-z))[:, :, None, None]


def plain_resnet(state: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
    """He et al. 2016, section 4.2 with eq. 1 and 2: y = F(x) + x, or F(x) + W x where the shape changes."""
    x = F.relu(convolved(state, "stem", x, training))
    for stage in range(3):
        for block in range(2):
            name, stride = f"stages.{stage}.{block}", 2 if stage and not block else 1
            y = F.relu(convolved(state, f"{name}.first", x, training, stride))
            y = excited(state, f"{name}.attention", convolved(state, f"{name}.second", y, training))
            if stage and not block:
                x = convolved(state, f"{name}.shortcut", x, training, stride)
            x = F.relu(x + y)
    return x


def plain_convmixer(state: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
    """Trockman & Kolter 2022, figure 3: their code in functions."""
    x = F.conv2d(x, state["patches.weight"], state["patches.bias"], stride=2)
    x = normed(state, "norm", F.gelu(x), training)
    for block in range(3):
        for part in ("depthwise", "pointwise"):
            name = f"blocks.{block}.{part}"
            weight, bias = state[f"{name}.convolution.weight"], state[f"{name}.convolution.bias"]
            groups = 11 if part == "depthwise" else 1
            total = weight.size(-1) - 1
            padded = F.pad(x, (total // 2, total - total // 2) * 2)
            y = normed(state, f"{name}.norm", F.gelu(F.conv2d(padded, weight, bias, groups=groups)), training)
            x = x + y if part == "depthwise" else y
    return x


PLAIN = {
    "convnet": plain_convnet,
    "resnet": plain_resnet,
    "resnet-se": plain_resnet,
    "convmixer": plain_convmixer,
    "convmixer-even": plain_convmixer,
}


@torch.no_grad()
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("kind", PLAIN)
def test_it_is_the_network_of_the_paper(kind: str, training: bool) -> None:
    model = build(kind).train(training)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = PLAIN[kind](state, pixels(), training)  # (B, D, rows, columns)
    found = model(pixels()).places
    for row, column in ((0, 0), (1, 2), (2, 1)):
        assert_same(found[:, row * model.grid[1] + column], expected[:, :, row, column])
    assert_same(found, expected.flatten(2).mT)


@torch.no_grad()
def test_mixer_is_the_network_of_the_paper() -> None:
    """Tolstikhin et al. 2021, eq. 1, by named indices: p, q places; c, d channels; i, j inner."""
    model = build("mixer")
    state = model.state_dict()

    def norm(name: str, x: Tensor) -> Tensor:
        mean, variance = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True, unbiased=False)
        return (x - mean) / (variance + 1e-6).sqrt() * state[f"{name}.weight"] + state[f"{name}.bias"]

    def gelu(x: Tensor) -> Tensor:
        return x * 0.5 * (1 + torch.erf(x / 2**0.5))

    cut = pixels().unfold(2, 2, 2).unfold(3, 2, 2)  # (B, 3, rows, columns, 2, 2)
    x = torch.einsum("bkrsuv,ckuv->brsc", cut, state["patches.weight"]).flatten(1, 2) + state["patches.bias"]
    for block in range(3):
        name = f"blocks.{block}"
        y = torch.einsum("ip,bpc->bic", state[f"{name}.places.up.weight"], norm(f"{name}.around_places.norm", x))
        y = gelu(y + state[f"{name}.places.up.bias"][:, None])
        y = torch.einsum("qi,bic->bqc", state[f"{name}.places.down.weight"], y)
        x = x + y + state[f"{name}.places.down.bias"][:, None]
        y = torch.einsum("jc,bpc->bpj", state[f"{name}.channels.up.weight"], norm(f"{name}.around_channels.norm", x))
        y = gelu(y + state[f"{name}.channels.up.bias"])
        x = x + torch.einsum("dj,bpj->bpd", state[f"{name}.channels.down.weight"], y)
        x = x + state[f"{name}.channels.down.bias"]
    assert_same(model(pixels()).places, norm("norm", x))


@torch.no_grad()
def test_mixing_is_what_a_block_does_to_places_without_its_gelu() -> None:
    model = build("mixer")
    matrices = model.mixing()
    assert [matrix.shape for matrix in matrices] == [(49, 49)] * 3
    for block, matrix in zip(model.blocks, matrices, strict=True):
        block.places.activation = nn.Identity()
        nothing, bright = torch.zeros(1, 49, dtype=torch.float64), torch.eye(49, dtype=torch.float64)
        assert_same(matrix.T, block.places(bright) - block.places(nothing))


def test_mixer_tells_no_attention_and_drops_only_in_training() -> None:
    model = build("mixer")
    with regard.record(model) as seen:
        assert_same(model(pixels()).places, model(pixels()).places, 1e-15)
    assert not seen.calls
    with noise(1):
        assert not torch.allclose(model.train()(pixels()).places, model.eval()(pixels()).places)


# --- Sizes and parts


@pytest.mark.parametrize(("size", "grid"), [(1, 1), (2, 2), (3, 3), (4, 2), (7, 3), (8, 2), (15, 3), (16, 2), (31, 3)])
@torch.no_grad()
def test_a_convnet_is_not_halved_below_two(size: int, grid: int) -> None:
    model = ConvNet(ConvNetConfig(channels=(2, 3, 2, 3)), PictureFormat(size=size)).eval()
    assert model.grid == (grid, grid)
    assert model(torch.zeros(1, 3, size, size)).places.shape == (1, grid * grid, 3)


@pytest.mark.parametrize(("size", "grid"), [(1, 1), (2, 1), (5, 2), (9, 3), (32, 8)])
@torch.no_grad()
def test_a_resnet_is_halved_upwards(size: int, grid: int) -> None:
    model = ResNet(ResNetConfig(channels=(2, 3, 2), blocks=1), PictureFormat(size=size)).eval()
    assert model.grid == (grid, grid)
    assert model(torch.zeros(1, 3, size, size)).places.shape == (1, grid * grid, 2)


@pytest.mark.parametrize("kind", ["convmixer", "mixer"])
def test_a_patch_must_divide_the_picture(kind: str) -> None:
    family, config = KINDS[kind]
    with pytest.raises(RegardError, match=r"patches of 4 x 4 .* 14 x 14.*1, 2, 7, 14"):
        family(config.model_copy(update={"patch": 4}), FORMAT)


def test_a_fresh_residual_block_is_its_shortcut() -> None:
    torch.manual_seed(3)
    block = ResNet(RESNET, FORMAT).eval().stages[0][1]
    x = torch.rand(2, 5, 7, 7)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("convnet", []),
        ("convnet-se", [f"stages.{s}.attention channel" for s in range(3)]),
        ("resnet-se", [f"stages.{s}.{b}.attention channel" for s in range(3) for b in range(2)]),
        (
            "convnet-cbam",
            [f"stages.{s}.attention.{part}" for s in range(3) for part in ("channels channel", "places spatial")],
        ),
    ],
)
def test_attention_is_seen_where_it_stands(kind: str, told: list[str]) -> None:
    model = build(kind)
    with regard.record(model) as seen:
        model(pixels())
    assert [f"{call.path} {call.role}" for call in seen.calls] == told
    assert not told or seen.check() < 1e-12


# --- The classifier


def classifier(kind: str = "convnet", smoothing: float = 0.0) -> PictureClassifier:
    torch.manual_seed(5)
    return PictureClassifier(KINDS[kind][1], FORMAT, LABELS, smoothing).double().eval()


def batch(mixed: bool = False) -> PictureBatch:
    labels, others = torch.tensor([2, 6, 0]), torch.tensor([5, 6, 1])
    if not mixed:
        return PictureBatch(pixels(), labels)
    return PictureBatch(pixels(), labels, others, torch.tensor([0.7, 0.25, 1.0], dtype=torch.float64))


@EVERY
def test_every_kind_classifies(kind: str) -> None:
    model = classifier(kind)
    loss = model(batch())
    assert isinstance(loss, Loss)
    assert {name: part.count for name, part in loss.parts.items()} == batch().counts
    logits = model.logits(batch())
    assert_same(logits, model.logits(pixels()))
    assert_same(logits, model.encoder(pixels()).vector @ model.head.weight.T + model.head.bias)
    rows = [-row.log_softmax(dim=-1) for row in logits]
    assert_same(loss.parts["loss"].sum, sum(row[label] for row, label in zip(rows, (2, 6, 0), strict=True)))
    right = sum(int(row.argmin()) == label for row, label in zip(rows, (2, 6, 0), strict=True))
    assert float(loss.parts["correct"].sum) == right
    assert [loss.parts[name].weight for name in ("loss", "nll", "correct")] == [1, 0, 0]


@pytest.mark.parametrize("training", [False, True])
def test_mixed_pictures_count_by_their_shares(training: bool) -> None:
    """Zhang et al. 2018; labels smoothed (by 0.3) in training only."""
    model = classifier(smoothing=0.3)
    model.rate = 0.0
    model.train(training)
    smoothing = 0.3 if training else 0.0
    parts = model(batch(mixed=True)).parts
    rows = [-row.log_softmax(dim=-1) for row in model.logits(batch()).detach()]
    loss = nll = right = 0.0
    for row, label, other, share in zip(rows, (2, 6, 0), (5, 6, 1), (0.7, 0.25, 1.0), strict=True):
        for wanted, part in ((label, share), (other, 1 - share)):
            loss += part * float((1 - smoothing) * row[wanted] + smoothing * row.mean())
            nll += part * float(row[wanted])
            right += part * (int(row.argmin()) == wanted)
    assert float(parts["loss"].sum.detach()) == pytest.approx(loss, abs=1e-10)
    assert float(parts["nll"].sum) == pytest.approx(nll, abs=1e-10)
    assert float(parts["correct"].sum) == pytest.approx(right, abs=1e-10)
    assert {name: part.count for name, part in parts.items()} == batch(mixed=True).counts
    assert parts["loss"].sum.requires_grad
    assert not parts["nll"].sum.requires_grad


def test_a_share_of_one_is_not_mixed() -> None:
    model, plain = classifier(smoothing=0.1), batch()
    whole = PictureBatch(plain.pixels, plain.labels, torch.tensor([1, 1, 1]), torch.ones(B))
    for name, part in model(plain).parts.items():
        assert_same(model(whole).parts[name].sum, part.sum)


def test_the_best_guesses() -> None:
    model = classifier()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.1, 0.5, 0.2, 0.05, 0.01, 0.04, 0.1]).log())
    shares, labels = model.top_k(pixels(), 3)
    assert labels[:, :2].tolist() == [[1, 2]] * B
    assert shares[0].tolist() == pytest.approx([0.5, 0.2, 0.1])
    assert model.top_k(batch(), 50)[1].shape == (B, LABELS)


def test_dropout_before_the_head_in_training() -> None:
    model = classifier()
    model.rate, model.encoder.width = 0.5, 7
    model.head = nn.Identity()
    before = model.encoder.train()(pixels()).vector
    with noise(1):
        dropped = model.train().logits(pixels())
    gone = dropped == 0
    assert 0.2 < float(gone.double().mean()) < 0.8
    assert_same(dropped[~gone], 2 * before[~gone])


@pytest.mark.parametrize("kind", ["convnet-cbam", "resnet-se", "convmixer", "mixer"])
def test_it_learns(kind: str) -> None:
    """Stripes that stand or lie: a few steps along the signs of the gradient tell them apart."""
    torch.manual_seed(3)
    lines, labels = torch.arange(14) // 2 % 2, torch.arange(12) % 2
    x = torch.stack([(lines[:, None] if label else lines[None]).expand(3, 14, 14) for label in labels]).float()
    batch = PictureBatch(x + 0.3 * torch.randn(x.shape), labels)
    model, losses = PictureClassifier(KINDS[kind][1], FORMAT, 2).train(), []
    for step in range(20):
        with noise(1, step):
            loss = model(batch).objective(batch.counts)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.01 * gradient.sign()
        losses.append(float(loss.detach()))
    assert sum(losses[-3:]) / 3 < 0.5 * losses[0]
