"""Patches of pictures as tokens, and positions on their grid: against torch's convolution, loops, and hand-made examples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from regard.data.pictures.config import PictureFormat
from regard.embed.patches import PatchEmbedding, grid_positions, grid_sinusoid, resize_positions
from regard.errors import RegardError


@pytest.mark.parametrize(("size", "patch", "channels"), [(15, 5, 3), (12, 3, 1), (7, 7, 3), (6, 1, 3)])
@pytest.mark.parametrize("last", [False, True])
def test_patches_are_a_convolution(size: int, patch: int, channels: int, last: bool) -> None:
    torch.manual_seed(1)
    embed = PatchEmbedding(PictureFormat(size=size, channels=channels), patch, 11).double()
    torch.nn.init.normal_(embed.bias)
    pixels = torch.randn(2, channels, size, size, dtype=torch.float64, requires_grad=True)
    seen = pixels.contiguous(memory_format=torch.channels_last) if last else pixels
    wanted = conv2d(pixels, embed.weight, embed.bias, stride=patch).flatten(2).mT  # (B, P, D)
    found = embed(seen)
    assert found.shape == (2, (size // patch) ** 2, 11) and embed.grid == (size // patch, size // patch)
    assert torch.allclose(found, wanted, atol=1e-12)
    above = torch.randn_like(wanted)
    parts = (pixels, embed.weight, embed.bias)
    for ours, theirs in zip(
        torch.autograd.grad(found, parts, above), torch.autograd.grad(wanted, parts, above), strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_patches_that_do_not_fit() -> None:
    with pytest.raises(
        RegardError, match=r"patches of 5 x 5 pixels do not fill a picture of 12 x 12; choose .* 1, 2, 3, 4, 6, 12"
    ):
        PatchEmbedding(PictureFormat(size=12), 5, 8)
    embed = PatchEmbedding(PictureFormat(size=12), 4, 8)
    with pytest.raises(RegardError, match=r"3 x 12 x 16 .* model of 3 x 12 x 12"):
        embed(torch.zeros(2, 3, 12, 16))
    with pytest.raises(RegardError, match="1 x 12 x 12 "):
        embed(torch.zeros(2, 1, 12, 12))


@pytest.mark.parametrize("width", [8, 12, 14])
def test_sinusoids_of_rows_and_columns(width: int) -> None:
    rows, columns, half = 3, 5, width // 2
    table = grid_sinusoid(width, (rows, columns))
    assert table.shape == (rows * columns, width)
    for row in range(rows):
        for column in range(columns):
            wanted = []
            for place in (row, column):
                for i in range(half):
                    angle = place / 10000 ** (2 * (i // 2) / half)
                    wanted.append(math.cos(angle) if i % 2 else math.sin(angle))
            assert table[row * columns + column].tolist() == pytest.approx(wanted, abs=1e-12)


def test_positions_are_added_to_places() -> None:
    x = torch.randn(2, 1 + 6, 8)
    fixed = grid_positions("sinusoidal", 8, (2, 3), before=1)
    assert torch.equal(fixed(x)[:, 0], x[:, 0]) and not list(fixed.parameters()) and not fixed.state_dict()
    assert torch.allclose(fixed(x)[:, 1:] - x[:, 1:], grid_sinusoid(8, (2, 3)).float(), atol=1e-6)
    learned = grid_positions("learned", 8, (2, 3), before=1)
    assert {name: tuple(each.shape) for name, each in learned.named_parameters()} == {"table": (7, 8)}
    assert torch.equal(learned(x), x + learned.table)
    assert torch.equal(grid_positions("none", 8, (2, 3))(x), x)


def cubic(t: float) -> list[float]:
    """Weights of the four neighbours at distances 1 + t, t, 1 - t and 2 - t (Keys 1981, eq. 4, with a = -3/4)."""
    a = -0.75
    near = [(a + 2) * d**3 - (a + 3) * d**2 + 1 for d in (t, 1 - t)]
    far = [a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a for d in (1 + t, 2 - t)]
    return [far[0], *near, far[1]]


def bicubic(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """By loops: each place of the new grid from sixteen of the old, those beyond the border being the border's."""
    out = torch.zeros(new[0] * new[1], table.size(1), dtype=table.dtype)
    for row in range(new[0]):
        for column in range(new[1]):
            y, x = ((place + 0.5) * was / now - 0.5 for place, was, now in zip((row, column), old, new, strict=True))
            for j, down in enumerate(cubic(y - math.floor(y))):
                for i, across in enumerate(cubic(x - math.floor(x))):
                    r = min(max(math.floor(y) - 1 + j, 0), old[0] - 1)
                    c = min(max(math.floor(x) - 1 + i, 0), old[1] - 1)
                    out[row * new[1] + column] += down * across * table[r * old[1] + c]
    return out


@pytest.mark.parametrize(("old", "new"), [((3, 5), (7, 4)), ((4, 4), (2, 3)), ((2, 2), (5, 5)), ((3, 2), (2, 3))])
@pytest.mark.parametrize("before", [0, 1])
def test_positions_for_another_grid(old: tuple[int, int], new: tuple[int, int], before: int) -> None:
    table = torch.randn(before + old[0] * old[1], 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found = resize_positions(table, old, new)
    assert torch.equal(found[:before], table[:before])
    assert torch.allclose(found[before:], bicubic(table[before:], old, new), atol=1e-12)
    assert torch.equal(resize_positions(table, old, old), table)


def test_a_table_that_is_too_small() -> None:
    with pytest.raises(RegardError, match="15 positions is too small for a grid of 4 x 4"):
        resize_positions(torch.zeros(15, 3), (4, 4), (2, 2))
