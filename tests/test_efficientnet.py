"""EfficientNet-Lite0: folded batch norms, the network of the paper's table, shapes, and weights from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError
from regard.models.config import EfficientNetConfig
from regard.models.pictures.convolutional import EfficientNetLite0, convolve, folded
from regard.tensors import write_tensors

FORMAT = PictureFormat(size=48, mean=(0.4, 0.5, 0.6), deviation=(0.2, 0.25, 0.3))


def network(depth: Any = "head", format: PictureFormat = FORMAT, weights: str = "") -> EfficientNetLite0:
    torch.manual_seed(3)
    found = EfficientNetLite0(EfficientNetConfig(depth=depth, weights=weights), format)
    if not weights:
        with torch.no_grad():
            for name, parameter in found.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(0.5, 0.5)  # else a picture's border would not differ from its middle
    return found.eval()


def test_a_folded_norm_is_a_norm() -> None:
    """Two convolutions, each with torch's batch norm behind it, one of them on each channel by itself."""
    torch.manual_seed(1)
    plain = [nn.Conv2d(3, 7, 3, bias=False), nn.BatchNorm2d(7, eps=1e-3), nn.ReLU6()]
    alone = [nn.Conv2d(7, 7, 5, bias=False, groups=7), nn.BatchNorm2d(7, eps=0.3)]
    stack = nn.Sequential(*plain, *alone).double().eval()
    for norm in (stack[1], stack[4]):
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean):
            tensor.normal_()
        norm.running_var.uniform_(0.01, 2.0)
    x, made = torch.randn(2, 3, 11, 11, dtype=torch.float64), []
    for convolution, norm in ((stack[0], stack[1]), (stack[3], stack[4])):
        parts = (convolution.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)
        made.append(folded(*parts, epsilon=norm.eps))
    y = conv2d(conv2d(x, *made[0]).clamp(0, 6), *made[1], groups=7)
    assert torch.allclose(y, stack(x), atol=1e-12)


def same(x: Tensor, weight: Tensor, bias: Tensor, stride: int, groups: int) -> Tensor:
    """TensorFlow's "same": ⌈size / stride⌉ results a side; of the zeros that takes, the smaller half goes before."""
    size, kernel = x.size(-1), weight.size(-1)
    out = (size + stride - 1) // stride
    total = max((out - 1) * stride + kernel - size, 0)
    before = total // 2
    padded = pad(x, (before, total - before, before, total - before))
    found = conv2d(padded, weight, bias, stride=stride, groups=groups)
    assert found.size(-1) == out
    return found


@pytest.mark.parametrize("size", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_tensorflows(size: int, kernel: int, stride: int) -> None:
    torch.manual_seed(size)
    x, bias = torch.randn(2, 3, size, size, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    for groups in (1, 3):
        weight = torch.randn(3, 3 // groups, kernel, kernel, dtype=torch.float64)
        wanted = same(x, weight, bias, stride, groups)
        assert torch.allclose(convolve(x, weight, bias, stride, groups), wanted, atol=1e-12)


def from_the_table(model: EfficientNetLite0, pixels: Tensor, depth: str) -> Tensor:
    """Table 1 of the paper, row by row, without squeeze-and-excitation and with ReLU6: (B, channels, rows, columns)."""
    weights = iter(dict(model.named_parameters()).values())

    def layer(x: Tensor, stride: int = 1, *, alone: bool = False, active: bool = True) -> Tensor:
        y = same(x, next(weights), next(weights), stride, x.size(1) if alone else 1)
        return y.clamp(min=0, max=6) if active else y

    x = layer(pixels, 2)  # 1: 3 x 3 to 32 channels
    rows = [  # operator's expansion, channels, layers, stride
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 40, 2, 2),
        (6, 80, 3, 2),
        (6, 112, 3, 1),
        (6, 192, 4, 2),
        (6, 320, 1, 1),
    ]
    for number, (expansion, channels, layers, stride) in enumerate(rows, start=1):
        for each in range(layers):
            y = layer(x) if expansion == 6 else x
            assert y.size(1) == expansion * x.size(1)
            y = layer(y, stride if each == 0 else 1, alone=True)
            y = layer(y, active=False)
            assert y.size(1) == channels
            x = x + y if each else y  # only the first of a row changes channels or size
        if depth == f"block-{number}":
            break
    x = layer(x) if depth == "head" else x
    assert next(weights, None) is None
    return x


KERNELS = [3, 3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3]  # of the stem and of each block, from the table


@pytest.mark.parametrize(("depth", "width"), [("block-5", 112), ("block-7", 320), ("head", 1280)])
@torch.no_grad()
def test_the_network_of_the_table(depth: str, width: int) -> None:
    model = network(depth).double()
    kernels = [each.size(-1) for each in model.parameters() if each.dim() == 4 and each.size(-1) > 1]
    assert kernels == (KERNELS[:12] if depth == "block-5" else KERNELS)
    pixels = torch.randn(2, 3, 48, 48, dtype=torch.float64)
    mean, deviation = (
        torch.tensor(each, dtype=torch.float64)[:, None, None] for each in (FORMAT.mean, FORMAT.deviation)
    )
    own = ((pixels * deviation + mean) * 255 - 127) / 128  # the bytes of the picture as its weights know them
    wanted = from_the_table(model, own, depth).flatten(2).mT  # (B, P, K)
    view = model(pixels)
    assert wanted.abs().max() > 0.1 and view.places.size(-1) == width == model.width
    assert torch.allclose(view.places, wanted, atol=1e-10)
    assert torch.allclose(view.vector, wanted.mean(dim=1), atol=1e-10)
    assert torch.allclose(model(pixels[1:]).places, view.places[1:], atol=1e-10)


@pytest.mark.parametrize(
    ("size", "depth", "grid", "width"),
    [
        (224, "head", (7, 7), 1280),
        (128, "head", (4, 4), 1280),
        (128, "block-7", (4, 4), 320),
        (128, "block-5", (8, 8), 112),
        (75, "block-5", (5, 5), 112),
    ],
)
@torch.no_grad()
def test_shapes(size: int, depth: str, grid: tuple[int, int], width: int) -> None:
    model = network(depth, PictureFormat(size=size))
    assert (model.grid, model.width) == (grid, width)
    assert model.features(torch.randn(1, 3, size, size)).shape == (1, grid[0] * grid[1], width)


def test_it_learns_nothing_and_takes_features() -> None:
    model = network("block-5")
    assert not any(each.requires_grad for each in model.parameters())
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    features = torch.randn(2, 16, 112)
    view = model(features)
    assert view.places is features and torch.allclose(view.vector, features.sum(dim=1) / 16, atol=1e-6)
    with pytest.raises(RegardError, match=r"features 320 wide .* block-5, whose are 112 wide"):
        model(torch.randn(2, 16, 320))


def test_pixels_are_left_as_they_are_and_have_gradients() -> None:
    """What a map of a picture's gradients needs, though no weight has any."""
    model, pixels = network("block-5"), torch.randn(1, 3, 48, 48, requires_grad=True)
    before = pixels.detach().clone()
    model(pixels).vector.sum().backward()
    assert torch.equal(pixels, before) and pixels.grad is not None and pixels.grad.abs().max() > 0


@torch.no_grad()
def test_weights_from_a_file(tmp_path: Path) -> None:
    whole, path = network(), tmp_path / "lite0.safetensors"
    write_tensors(path, dict(whole.named_parameters()))
    pixels = torch.randn(1, 3, 48, 48)
    assert torch.equal(network(weights=str(path)).features(pixels), whole.features(pixels))
    part = network("block-5", weights=str(path))  # deeper layers of the file are left out
    assert torch.equal(part.blocks[10].project.weight, whole.blocks[10].project.weight)  # type: ignore[union-attr]
    assert len(part.blocks) == 11 and part.head is None


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"there is no .*x.safetensors .* python tools/convert_efficientnet.py"):
        network(weights=str(tmp_path / "x.safetensors"))
    tensors, path = dict(network().named_parameters()), tmp_path / "lite0.safetensors"
    write_tensors(path, {name: each for name, each in tensors.items() if name != "head.bias"})
    with pytest.raises(RegardError, match=r"has no head.bias, and EfficientNet-Lite0 needs it as \(1280,\)"):
        network(weights=str(path))
    write_tensors(path, {**tensors, "stem.bias": torch.zeros(31)})
    with pytest.raises(RegardError, match=r"has stem.bias as \(31,\), and EfficientNet-Lite0 needs it as \(32,\)"):
        network(weights=str(path))
    with pytest.raises(RegardError, match="not grey"):
        network(format=PictureFormat(size=48, channels=1))
