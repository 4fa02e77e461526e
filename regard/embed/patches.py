"""Patches of pictures as tokens, and vectors that tell where on the grid each of them lies."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, linear

from regard.data.pictures.config import PictureFormat
from regard.embed.tokens import LearnedPositions, NoPositions, sinusoid
from regard.errors import RegardError

Grid = tuple[int, int]  # rows, columns


class PatchEmbedding(nn.Module):
    """Pictures (B, C, height, width) -> (B, P, D), row by row: x_p E (Dosovitskiy et al. 2021, eq. 1).

    That is a convolution whose stride is its kernel, with weights (D, C, patch, patch). Patches do not overlap, so it is
    one matrix product once each lies in a row; on a CPU that is faster than `conv2d`, above all backwards.
    """

    def __init__(self, picture_format: PictureFormat, patch: int, width: int) -> None:
        super().__init__()
        size = picture_format.size
        if size % patch:
            raise RegardError(
                f"patches of {patch} x {patch} pixels do not fill a picture of {size} x {size}; choose a "
                f"patch from {', '.join(map(str, _divisors(size)))}, or a size that is a multiple of {patch}"
            )
        self.size, self.patch = size, patch
        self.grid: Grid = (size // patch, size // patch)
        self.weight = nn.Parameter(torch.empty(width, picture_format.channels, patch, patch))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.normal_(
            self.weight, std=(picture_format.channels * patch * patch) ** -0.5
        )  # LeCun's, as in the paper's code

    def forward(self, pixels: Tensor) -> Tensor:
        wanted = (self.weight.size(1), self.size, self.size)
        if pixels.shape[1:] != wanted:
            raise RegardError(
                f"pictures of {' x '.join(map(str, pixels.shape[1:]))} (channels, height, width) do not fit a model of "
                f"{' x '.join(map(str, wanted))}; fit them to its format first"
            )
        (rows, columns), patch = self.grid, self.patch
        lines = pixels.permute(0, 2, 3, 1).reshape(
            len(pixels), rows, patch, columns, -1
        )  # (B, rows, p, columns, p * C)
        patches = lines.transpose(2, 3).reshape(len(pixels), rows * columns, -1)  # (B, P, p * p * C)
        return linear(patches, self.weight.permute(0, 2, 3, 1).flatten(1), self.bias)  # (B, P, D)


class FixedPositions(nn.Module):
    """Adds a table (P, D) that is computed, not learned, nor saved."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table.to(x.dtype)


def grid_positions(kind: str, width: int, grid: Grid, *, before: int = 0) -> nn.Module:
    """Build the positions that a configuration names: a vector for each place is added to (B, before + P, D).

    `before` rows come first: a class token has a learned position too, and no sinusoidal one.
    """
    if kind == "sinusoidal":
        return FixedPositions(torch.cat([torch.zeros(before, width, dtype=torch.float64), grid_sinusoid(width, grid)]))
    if kind == "none":
        return NoPositions()
    learned = LearnedPositions(width, before + grid[0] * grid[1])
    nn.init.normal_(learned.table, std=0.02)  # as in the paper's code
    return learned


def grid_sinusoid(width: int, grid: Grid) -> Tensor:
    """2-D sinusoidal positions (Chen et al. 2021, "MoCo v3"): (P, D), row by row, in float64.

    The first half of a vector is the sinusoid of its row, the second half that of its column.
    """
    rows, columns = grid
    half = width // 2
    down = sinusoid(rows, half)[:, None].expand(-1, columns, -1)  # (rows, columns, D / 2)
    across = sinusoid(columns, width - half).expand(rows, -1, -1)  # (rows, columns, D / 2)
    return torch.cat([down, across], dim=-1).flatten(0, 1)


def resize_positions(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Learned positions for another grid, by bicubic interpolation (Dosovitskiy et al. 2021, section 3.2).

    `table` is (P, D), row by row; rows before the P of the old grid (a class token's) are kept as they are.
    """
    before = len(table) - old[0] * old[1]
    if before < 0:
        raise RegardError(f"a table of {len(table)} positions is too small for a grid of {old[0]} x {old[1]}")
    if old == new:
        return table
    places = table[before:].unflatten(0, old).permute(2, 0, 1)[None]  # (1, D, rows, columns)
    resized = interpolate(places, size=new, mode="bicubic", align_corners=False)
    return torch.cat([table[:before], resized[0].flatten(1).mT])  # (before + P', D)


def _divisors(size: int) -> list[int]:
    return [number for number in range(1, size + 1) if size % number == 0]
