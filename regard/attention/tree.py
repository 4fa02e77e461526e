"""Positions in a tree that is given with the data (Wang et al. 2019, "Self-attention with structural position
representations"): as Shaw's, but the distance of two tokens is the number of edges between them in their sentence's
dependency tree (section 3, relative structural positions, without their sign).
"""

from __future__ import annotations

from torch import Tensor

from regard.attention.shaw import DistanceTables
from regard.errors import UsageError


class Tree(DistanceTables):
    """One row for each distance 0 .. reach; what is farther, or in no common tree, is as `reach`."""

    def __init__(self, head_width: int, reach: int) -> None:
        super().__init__(head_width, reach + 1)
        self.reach = reach

    def rows(self, queries: int, keys: int, start: int, distances: Tensor | None) -> Tensor:
        if distances is None:
            raise UsageError(
                'tree positions need the tree of each text: give JSONL rows with a list "heads", each word\'s parent '
                "by its number, the root its own; or choose other positions, as model.positions = shaw"
            )
        if distances.shape[-2:] != (queries, keys):
            given = tuple(distances.shape[-2:])
            raise ValueError(f"the tree has distances for {given} queries and keys, and there are {(queries, keys)}")
        return distances.clamp(max=self.reach)[:, None]  # (B, 1, T, S)
