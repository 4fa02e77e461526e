"""Rotary positions (Su et al. 2021, eq. 34): queries and keys are turned by an angle that grows with their position.

    (x_i, x_{i+E/2}) at position p is rotated by p · base^(-2i/E)

so that the product of a query and a key depends on their distance alone. Positions may be divided by a scale, so that a
longer text turns no farther than a shorter one did in training (Chen et al. 2023, "position interpolation"). The two
halves of a head are its pairs, as in LLaMA's weights of other libraries; the paper pairs neighbours, which is the same
up to the order of rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Rotary(nn.Module):
    """Turns (B, H, T, E) whose first position is `start`.

    Tables are kept ready for `size` positions; those beyond are computed when needed.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, head_width: int, base: float = 10_000.0, size: int = 1024, scale: float = 1.0) -> None:
        super().__init__()
        if head_width % 2:
            raise ValueError(f"rotary positions turn pairs, and a head of width {head_width} has no halves")
        self.head_width, self.base, self.scale = head_width, base, scale
        cosine, sine = self._table(0, size, torch.device("cpu"))
        self.register_buffer("cosine", cosine.to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sine", sine.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.size(-2)
        if end <= len(self.cosine):
            cosine, sine = self.cosine[start:end], self.sine[start:end]
        else:
            cosine, sine = self._table(start, end, x.device)
        cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
        first, second = x.chunk(2, dim=-1)  # each (B, H, T, E / 2)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)

    def _table(self, start: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines of each position and pair, (T, E / 2) in float64."""
        pairs = torch.arange(0, self.head_width, 2, dtype=torch.float64, device=device)
        places = torch.arange(start, end, dtype=torch.float64, device=device)
        angles = places[:, None] / self.scale * self.base ** (-pairs / self.head_width)
        return angles.cos(), angles.sin()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        """Where the model goes to another device or precision, the tables are computed anew, not rounded twice."""
        super()._apply(fn, recurse)
        cosine, sine = self._table(0, len(self.cosine), self.cosine.device)
        self.cosine, self.sine = cosine.to(self.cosine.dtype), sine.to(self.sine.dtype)
        return self
