"""Big Bird (Zaheer et al. 2020, section 2 and appendix D): blocks of positions see their neighbours, the first, and some.

Every block of queries sees the `window` blocks around it, the first `globals` blocks, and `random` others, drawn once;
the first `globals` blocks see all (the paper's internal transformer construction, ITC). O(T · block) pairs.

At either end the window is what there is of it. The blocks at random are a function of the seed and of the number of
blocks of a text, not of the padding behind it: a text sees the same alone and in a batch. All heads of a layer have the
same ones.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels.kernel import Can, Setting
from regard.attention.kernels.layout import Layout, Part
from regard.attention.kernels.parts import Drawn, First, Near
from regard.attention.kernels.sparse import Sparse
from regard.attention.masks import Dense, Lengths, Mask
from regard.errors import UsageError


class BigBird(Sparse):
    name = "bigbird"
    can = Can(both_sides=True, padding=True)

    def __init__(self, setting: Setting, block: int = 32, window: int = 3, globals: int = 2, random: int = 3) -> None:
        super().__init__(setting)
        if window % 2 == 0:
            raise UsageError(f"a window of {window} blocks has no middle; set model.attention.window = {window + 1}")
        self.block, self.sides, self.globals, self.random = block, window // 2, globals, random

    def pattern(self, queries: int, keys: int, length: int | None = None) -> Tensor:
        """`length`: how many of the keys are real, if not all; blocks are drawn among those."""
        t, s = torch.arange(queries)[:, None] // self.block, torch.arange(keys) // self.block  # numbers of blocks
        seen = ((t - s).abs() <= self.sides) | (t < self.globals) | (s < self.globals)  # (T, S)
        for number, drawn in enumerate(self.drawn(keys if length is None else length)):
            seen[number * self.block : (number + 1) * self.block] |= torch.isin(s, drawn)
        return seen

    def drawn(self, length: int) -> Tensor:
        """The blocks that each block of a text of this length sees at random: (blocks, random), -1 where none is left."""
        return random_blocks(self.setting.seed, -(-length // self.block), self.sides, self.globals, self.random)

    def layout(self, like: Tensor) -> Layout:
        margin, whole = self.sides * self.block, self.globals * self.block
        parts: list[Part] = [Near(self.block, margin, margin, first=whole)]
        if self.globals:
            parts.append(First(whole))
        if self.random:
            parts.append(Drawn(self.block, self.random, self.drawn))
        return Layout(tuple(parts), self.block, margin, margin, everything=(First(),), whole=whole)

    def _mask(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Mask:
        if lengths is None:
            return super()._mask(queries, keys, lengths, device)
        allowed = [self.pattern(queries, keys, length) for length in lengths.tolist()]
        return Dense(torch.stack(allowed)[:, None].to(device)) & Lengths(lengths)  # (B, 1, T, S)


@lru_cache(maxsize=256)
def random_blocks(seed: int, blocks: int, sides: int, first: int, count: int) -> Tensor:
    """Of each block, `count` blocks that it does not see already: (blocks, count), -1 where fewer are left.

    Without repetition by Floyd's algorithm (Bentley & Floyd 1987), which takes one word of the stream for each.
    """
    words = np.random.SFC64(np.random.SeedSequence((seed, blocks))).random_raw(blocks * count).reshape(blocks, count)
    table = np.full((blocks, count), -1)
    for block in range(blocks):
        left = max(0, block - sides - first)  # so many it does not see to the left of its window
        right = max(first, block + sides + 1)  # and from here on those to the right
        unseen = left + max(0, blocks - right)
        chosen: list[int] = []
        for word, last in zip(words[block].tolist(), range(max(0, unseen - count), unseen), strict=False):
            number = word % (last + 1)
            chosen.append(last if number in chosen else number)
        table[block, : len(chosen)] = [first + number if number < left else right + number - left for number in chosen]
    return torch.from_numpy(table)
