"""Attention over channels and places against loops over them, and what a recording sees of it."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention.spatial import (
    CBAM,
    ChannelAttention,
    ChannelNetwork,
    SpatialAttention,
    SqueezeExcite,
    make_picture_attention,
)
from regard.errors import RegardError

B, C, H, W = 2, 13, 5, 7


def pixels(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(B, C, H, W, dtype=dtype, generator=torch.Generator().manual_seed(3))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def network(net: ChannelNetwork, z: list[float]) -> list[float]:
    """W2 δ(W1 z), number by number."""
    inner = [max(0.0, sum(w * v for w, v in zip(row, z, strict=True))) for row in net.down.weight.tolist()]
    return [sum(w * v for w, v in zip(row, inner, strict=True)) for row in net.up.weight.tolist()]


def over_places(x: Tensor) -> tuple[list[float], list[float]]:
    """Of one picture (C, H, W), the mean and the maximum of every channel."""
    flat = [[float(x[c, i, j]) for i in range(H) for j in range(W)] for c in range(C)]
    return [sum(values) / (H * W) for values in flat], [max(values) for values in flat]


def times_channels(x: Tensor, weights: list[float]) -> Tensor:
    out = torch.empty_like(x)
    for c, i, j in product(range(C), range(H), range(W)):
        out[c, i, j] = weights[c] * float(x[c, i, j])
    return out


def plain_squeeze(part: SqueezeExcite, x: Tensor) -> Tensor:
    mean, _ = over_places(x)
    return times_channels(x, [sigmoid(score) for score in network(part.network, mean)])


def plain_channels(part: ChannelAttention, x: Tensor) -> Tensor:
    mean, top = over_places(x)
    scores = zip(network(part.network, mean), network(part.network, top), strict=True)
    return times_channels(x, [sigmoid(a + b) for a, b in scores])


def plain_places(part: SpatialAttention, x: Tensor) -> Tensor:
    kernel = part.convolution.weight[0].tolist()  # [mean; max], rows, columns
    half, out = len(kernel[0]) // 2, torch.empty_like(x)
    maps = [
        [[sum(float(x[c, i, j]) for c in range(C)) / C for j in range(W)] for i in range(H)],
        [[max(float(x[c, i, j]) for c in range(C)) for j in range(W)] for i in range(H)],
    ]
    for i, j in product(range(H), range(W)):
        score = 0.0
        for m, u, v in product(range(2), range(2 * half + 1), range(2 * half + 1)):
            row, column = i + u - half, j + v - half
            if 0 <= row < H and 0 <= column < W:
                score += kernel[m][u][v] * maps[m][row][column]
        for c in range(C):
            out[c, i, j] = sigmoid(score) * float(x[c, i, j])
    return out


def plain_cbam(part: CBAM, x: Tensor) -> Tensor:
    return plain_places(part.places, plain_channels(part.channels, x))


PARTS = [
    (lambda: SqueezeExcite(C, 2), plain_squeeze),
    (lambda: ChannelAttention(C, 3), plain_channels),
    (lambda: SpatialAttention(), plain_places),
    (lambda: SpatialAttention(3), plain_places),
    (lambda: CBAM(C, 2), plain_cbam),
]


def fresh(make) -> nn.Module:
    torch.manual_seed(11)
    return make().double()


@torch.no_grad()
@pytest.mark.parametrize(("make", "plain"), PARTS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_its_formula(make, plain, layout: torch.memory_format) -> None:
    part, x = fresh(make), pixels().contiguous(memory_format=layout)
    expected = torch.stack([plain(part, picture) for picture in x])
    assert torch.allclose(part(x), expected, rtol=0, atol=1e-12)


def test_the_middle_is_narrow_but_never_nothing() -> None:
    assert SqueezeExcite(64).network.down.weight.shape == (8, 64)
    assert ChannelAttention(32, 16).network.up.weight.shape == (32, 4)
    assert SqueezeExcite(3).network.down.weight.shape == (4, 3)


def test_an_even_kernel_has_no_middle() -> None:
    with pytest.raises(RegardError, match="kernel of 4 has no middle"):
        SpatialAttention(4)


def test_a_configuration_names_it() -> None:
    assert make_picture_attention("none", C) is None
    assert isinstance(make_picture_attention("se", C), SqueezeExcite)
    assert isinstance(make_picture_attention("cbam", C), CBAM)


# --- Recording


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_recorded_weights_rebuild_what_was_given(dtype: torch.dtype, tolerance: float) -> None:
    model = nn.Sequential(SqueezeExcite(C), CBAM(C)).to(dtype)
    with regard.record(model) as seen:
        out = model(pixels(dtype))
    assert [(call.path, call.role) for call in seen.calls] == [
        ("0", "channel"),
        ("1.channels", "channel"),
        ("1.places", "spatial"),
    ]
    assert seen.check() < tolerance
    for call in seen.calls:
        size, width = (C, H * W) if call.role == "channel" else (H * W, C)
        assert call.weights().shape == call.allowed().shape == (B, 1, 1, size)
        assert call.v.shape == call.out.shape == (B, 1, size, width)
        assert call.gates
        assert not call.sums_to_one
        assert call.allowed().all()
        assert not call.out.requires_grad
    assert torch.equal(seen.calls[-1].out[:, 0].mT.reshape(B, C, H, W), out)
    assert torch.equal(seen.calls[0].v[:, 0].reshape(B, C, H, W), pixels(dtype))


def test_places_are_told_row_by_row() -> None:
    """One bright place far to the right of the second row: its weight stands at 1 · W + 5."""
    part = SpatialAttention(1).double()
    with torch.no_grad():
        part.convolution.weight.fill_(3.0)
    x = torch.zeros(1, C, H, W, dtype=torch.float64)
    x[0, :, 1, 5] = 2.0
    with regard.record(part) as seen:
        part(x)
    weights = seen.calls[0].weights().flatten()
    assert int(weights.argmax()) == W + 5
    assert float(weights[W + 5]) == pytest.approx(sigmoid(3 * 2 + 3 * 2))
    assert float(weights[0]) == 0.5


def test_what_is_not_recorded_is_not_told() -> None:
    one, other = SqueezeExcite(C), SqueezeExcite(C)
    with regard.record(one) as seen:
        other(pixels(torch.float32))
    assert not seen.calls


def test_gradients_reach_everything() -> None:
    part, x = fresh(lambda: CBAM(3, 2, 3)), torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(part, (x,))
    part(x).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in part.parameters())
