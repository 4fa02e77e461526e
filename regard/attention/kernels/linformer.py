"""Linformer (Wang et al. 2020): keys and values are projected along their length, from S positions to a fixed size.

    head = softmax(Q (E K)ᵀ / √d) (F V),   E and F (size, longest)      (eq. 7)

A key is then a mixture of all positions, which is why this cannot be causal. Sequences shorter than the longest use the
first columns of E and F.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.attention.attend import attend, attention_weights
from regard.attention.kernels.kernel import Kernel, Placement, Support
from regard.attention.masks import Lengths
from regard.errors import RegardError, UsageError, nearest

SHARES = ("none", "heads", "key-value")


class Linformer(Kernel):
    """`size`: k of the paper. `share`: projections of their own for each head, one for all, one for keys and values too.

    Entries are normal with variance 1/size, so that projecting keeps products as they are on average (theorem 2).
    """

    name = "linformer"
    supports = Support(
        both_sides=True,
        padding=True,
        cross=True,
        otherwise="choose model.attention.kind = exact (its keys are mixtures of all positions: none lies in the past)",
    )
    sums_to_one = False  # a row of the map is a mixture of the rows of F, which may have any sum

    def __init__(self, placement: Placement, size: int = 64, share: str = "heads") -> None:
        super().__init__(placement)
        if share not in SHARES:
            raise UsageError(f"linformer attention cannot share {share!r}", nearest(share, SHARES))
        heads = placement.heads if share == "none" else 1
        self.project_keys = _projection(heads, size, placement.longest)
        self.project_values = None if share == "key-value" else _projection(heads, size, placement.longest)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        if lengths is not None:
            hidden = self._hidden(k, lengths)
            k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
        keys, values = self._matrices(k.size(2))
        return attend(q, _projected(keys, k), _projected(values, v))

    def weights(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        keys, values = self._matrices(k.size(2))  # (H or 1, size, S)
        q, k = q.to(keys.dtype), k.to(keys.dtype)
        if lengths is None:
            return attention_weights(q, keys @ k) @ values
        hidden = self._hidden(k, lengths)
        return (attention_weights(q, keys @ k.masked_fill(hidden, 0.0)) @ values).masked_fill(hidden.mT, 0.0)

    def _matrices(self, length: int) -> tuple[Tensor, Tensor]:
        """E and F for so many positions: (H or 1, size, S)."""
        longest = self.placement.longest
        if length > longest:
            raise RegardError(
                f"linformer attention has projections for {longest} positions, not for {length}; "
                f"set model.max_length = {length} and train, or give it shorter sequences"
            )
        values = self.project_keys if self.project_values is None else self.project_values
        return self.project_keys[:, :, :length], values[:, :, :length]

    def _hidden(self, k: Tensor, lengths: Tensor) -> Tensor:
        return ~Lengths(lengths).dense(1, k.size(2), k.device).mT  # (B, 1, S, 1)


def _projection(heads: int, size: int, longest: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(heads, size, longest) / math.sqrt(size))


def _projected(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix (H or 1, size, S) times x (B, H, S, E), a product for each matrix: (B, H, size, E)."""
    batch, heads, length, width = x.shape
    if len(matrix) == 1:  # heads side by side, as the projection to heads left them
        x = x.transpose(1, 2).reshape(batch, length, heads * width)
        both = torch.bmm(matrix.expand(batch, -1, -1), x)  # (B, size, H * E)
        return both.unflatten(-1, (heads, width)).transpose(1, 2)
    matrix = matrix.expand(batch, *matrix.shape).reshape(batch * heads, -1, length)
    return torch.bmm(matrix, x.flatten(0, 1)).unflatten(0, (batch, heads))
