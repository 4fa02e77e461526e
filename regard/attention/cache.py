"""Key-value caches: what a decoder has already computed. They are passed along as state, never kept on a module."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks import Dense, Mask


@dataclass
class StepCache:
    """Keys and values of one hypothesis after another, in buffers that are filled position by position.

    The buffers have room for more positions than are filled, so that a step writes one column and copies nothing.
    """

    keys: Tensor  # (B * W, G, room, E)
    values: Tensor  # (B * W, G, room, E)
    filled: int = 0
    padding: Tensor | None = None  # (B * W,): first positions of each row that are nobody's; None: none are

    @classmethod
    def empty(cls, rows: int, groups: int, width: int, like: Tensor, room: int = 32) -> StepCache:
        return cls(like.new_empty(rows, groups, room, width), like.new_empty(rows, groups, room, width))

    def append(self, k: Tensor, v: Tensor) -> None:
        """Write the next positions: k and v are (B * W, G, T, E)."""
        start, end = self.filled, self.filled + k.size(2)
        if end > self.keys.size(2):
            self._grow(end)
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v
        self.filled = end

    def seen(self, last: int = 0) -> tuple[Tensor, Tensor]:
        """All that is filled, or only the last so many positions."""
        first = max(0, self.filled - last) if last else 0
        return self.keys[:, :, first : self.filled], self.values[:, :, first : self.filled]

    def real(self) -> Mask | None:
        """Which of the filled positions are no padding."""
        if self.padding is None:
            return None
        places = torch.arange(self.filled, device=self.padding.device)
        return Dense((places >= self.padding[:, None])[:, None, None])  # (B * W, 1, 1, S)

    def select(self, rows: Tensor) -> StepCache:
        """The cache of the hypotheses `rows`, copied: only what is filled."""
        keys = self.keys.new_empty(len(rows), *self.keys.shape[1:])
        values = torch.empty_like(keys)
        old_keys, old_values = self.seen()
        keys[:, :, : self.filled] = old_keys.index_select(0, rows)
        values[:, :, : self.filled] = old_values.index_select(0, rows)
        return StepCache(keys, values, self.filled, None if self.padding is None else self.padding[rows])

    def _grow(self, needed: int) -> None:
        room = max(needed, 2 * self.keys.size(2))
        rows, groups, _, width = self.keys.shape
        grown = StepCache.empty(rows, groups, width, self.keys, room)
        grown.append(*self.seen())
        self.keys, self.values = grown.keys, grown.values


@dataclass(frozen=True)
class MemoryKeys:
    """Keys and values of a memory, projected once for a source and shared by all its hypotheses.

    Where there is but one head, (B, S, E) without G.
    """

    keys: Tensor  # (B, G, S, E)
    values: Tensor  # (B, G, S, E)
    mask: Mask | None

    def keep(self, rows: Tensor) -> MemoryKeys:
        mask = None if self.mask is None else self.mask.keep(rows)
        return MemoryKeys(self.keys.index_select(0, rows), self.values.index_select(0, rows), mask)
