"""Relative positions of keys and values (Shaw et al. 2018, eq. 3 to 5), one pair of tables for all heads:

    e_ts = q_t · (k_s + a^K_ts) / √E,   z_t = Σ_s w_ts (v_s + a^V_ts),   a_ts = table[clip(s - t, -reach, reach)]

A (T, S, E) tensor is never made: q meets every row of the table in one product, and each key takes the one of its
distance (section 3.3); weights are summed by distance before they meet the table of values.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from regard.attention.distances import text_distances
from regard.attention.relative import RelativeValues

SPREAD = 0.02  # of fresh tables


class DistanceTables(RelativeValues):
    """A vector for keys and one for values, for each of `size` distances; a sub-class says which is whose."""

    def __init__(self, head_width: int, size: int) -> None:
        super().__init__()
        self.key_table = nn.Parameter(torch.empty(size, head_width))
        self.value_table = nn.Parameter(torch.empty(size, head_width))
        for table in (self.key_table, self.value_table):
            nn.init.normal_(table, std=SPREAD)

    @abstractmethod
    def rows(self, queries: int, keys: int, start: int, distances: Tensor | None) -> Tensor:
        """Which row of the tables each query and key take: it broadcasts to (B, H, T, S)."""

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        rows = self.rows(q.size(-2), keys, start, distances)
        products = q @ self.key_table.T / math.sqrt(q.size(-1))  # (B, H, T, size)
        return products.gather(-1, rows.expand(*q.shape[:3], keys))  # (B, H, T, S)

    def values(self, weights: Tensor, start: int = 0, distances: Tensor | None = None) -> Tensor:
        rows = self.rows(weights.size(-2), weights.size(-1), start, distances)
        summed = weights.new_zeros(*weights.shape[:3], len(self.value_table))
        summed = summed.scatter_add(-1, rows.expand(weights.shape), weights)  # (B, H, T, size)
        return summed @ self.value_table.to(summed.dtype)  # (B, H, T, E)


class Shaw(DistanceTables):
    """Distances in the text. A causal one needs no rows for keys to the right."""

    def __init__(self, head_width: int, reach: int, *, causal: bool) -> None:
        super().__init__(head_width, reach + 1 if causal else 2 * reach + 1)
        self.reach, self.right = reach, 0 if causal else reach

    def rows(self, queries: int, keys: int, start: int, distances: Tensor | None) -> Tensor:
        apart = text_distances(queries, keys, start, self.key_table.device)
        return apart.clamp(-self.reach, self.right) + self.reach  # (T, S)
