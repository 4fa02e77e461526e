"""Vectors that know their place: positions that are added to token embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import RegardError


def sinusoid(length: int, width: int, start: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5): (length, D).

    PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))
    """
    position = torch.arange(start, start + length, device=device, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = position * frequency  # (length, D / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :width]


class SinusoidalPositions(nn.Module):
    """Adds the fixed table; any length can be asked for. `size` rows are kept ready, more are computed when needed."""

    table: Tensor

    def __init__(self, width: int, size: int = 1024) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", sinusoid(size, width), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.size(-2)
        known = end <= self.table.size(0)
        table = self.table[start:end] if known else sinusoid(x.size(-2), self.width, start, x.device)
        return x + table.to(x.dtype)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (Gehring et al. 2017; the paper's table 3, row E)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(size, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.size(-2)
        if end > self.table.size(0):
            raise RegardError(
                f"a sequence of {end} tokens is longer than the {self.table.size(0)} learned positions; "
                f"train with model.max_length = {end} or more, or with sinusoidal positions"
            )
        return x + self.table[start:end]


class NoPositions(nn.Module):
    """Adds nothing: the model sees a set, not a sequence."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x


def positions(kind: str, width: int, size: int) -> nn.Module:
    """The positions a configuration names."""
    if kind == "sinusoidal":
        return SinusoidalPositions(width, size)
    return LearnedPositions(width, size) if kind == "learned" else NoPositions()
