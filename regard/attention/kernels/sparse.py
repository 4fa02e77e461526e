"""Kernels of sparse patterns: a sliding window, strided and fixed, Big Bird.

Beltagy et al. 2020, "Longformer", section 3.1; Child et al. 2019, sections 4.2 and 4.3; Zaheer et al. 2020, section 2.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regard.attention.attend import attend, attention_weights
from regard.attention.cache import StepCache
from regard.attention.kernels.block_sparse import Layout, PatternPart, attend_parts
from regard.attention.kernels.kernel import Kernel, Placement, Support
from regard.attention.kernels.parts import Drawn, First, KeyColumns, Near, Summaries
from regard.attention.masks import Dense, Lengths, Mask, Window
from regard.errors import UsageError


class Sparse(Kernel):
    """softmax(q kᵀ / √E) v over the pairs of a pattern, which `pattern` says plainly and `layout` in parts."""

    @abstractmethod
    def pattern(self, queries: int, keys: int) -> Tensor:
        """True where a query may see a key: (T, S)."""

    @abstractmethod
    def layout(self, like: Tensor) -> Layout:
        """The same pairs in parts that products can compute."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        layout, places = self.layout(q), q.size(2)
        if places * places <= layout.pairs(places):
            return attend(q, k, v, mask=self._mask(places, places, lengths, q.device))
        return attend_parts(q, k, v, layout, lengths)

    def weights(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        return attention_weights(q, k, mask=self._mask(q.size(2), k.size(2), lengths, q.device))

    def visible(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Tensor:
        return self._mask(queries, keys, lengths, device).dense(queries, keys, device)

    def going_on(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend from the last queries (N, H, T, E) to keys and values (N, H, S, E) that begin before them."""
        before = k.size(2) - q.size(2)
        return self(torch.cat([q.new_zeros(*k.shape[:2], before, q.size(3)), q], dim=2), k, v)[:, :, before:]

    def _mask(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Mask:
        mask = Dense(self.pattern(queries, keys).to(device))
        return mask if lengths is None else mask & Lengths(lengths)


@dataclass
class WindowState:
    """The last keys and values of each hypothesis, in a ring: position t lies at t modulo its size."""

    keys: Tensor  # (N, H, reach + 1, E)
    values: Tensor  # (N, H, reach + 1, E)
    filled: int = 0  # positions that were read, however few are kept

    def append(self, k: Tensor, v: Tensor) -> None:
        """The next positions, (N, H, T, E) each."""
        size, new, end = self.keys.size(2), k.size(2), self.filled + k.size(2)
        kept = min(size, new)
        places = torch.arange(end - kept, end, device=k.device) % size
        self.keys.index_copy_(2, places, k[:, :, new - kept :].to(self.keys.dtype))
        self.values.index_copy_(2, places, v[:, :, new - kept :].to(self.values.dtype))
        self.filled = end

    def last(self, count: int) -> tuple[Tensor, Tensor]:
        """The last so many positions, in order."""
        places = torch.arange(self.filled - count, self.filled, device=self.keys.device) % self.keys.size(2)
        return self.keys[:, :, places], self.values[:, :, places]

    def select(self, rows: Tensor) -> WindowState:
        return WindowState(self.keys.index_select(0, rows), self.values.index_select(0, rows), self.filled)


class SlidingWindow(Sparse):
    name = "window"
    supports = Support(causal=True, both_sides=True, padding=True, cache=True)

    def __init__(self, placement: Placement, reach: int = 64, globals: int = 0) -> None:
        super().__init__(placement)
        if globals and self.causal:
            raise UsageError(
                f"{globals} tokens that see all would see what comes after them; a causal window has none: set "
                "model.attention.globals = 0"
            )
        self.reach, self.globals = reach, globals

    def pattern(self, queries: int, keys: int) -> Tensor:
        t, s = torch.arange(queries)[:, None], torch.arange(keys)
        if self.causal:
            return (s <= t) & (s >= t - self.reach)  # (T, S)
        return ((s - t).abs() <= self.reach) | (t < self.globals) | (s < self.globals)

    def layout(self, like: Tensor) -> Layout:
        block = 32 if self.reach <= 96 else 64  # products of smaller blocks compute fewer pairs, but slower
        left, right = self.reach, 0 if self.causal else self.reach
        way = torch.arange(left + block + right) - torch.arange(block)[:, None]  # (block, K): 0 is the furthest left
        band = ((way >= 0) & (way <= left + right)).to(like.device)
        near = Near(block, left, right, band, first=self.globals)
        if not self.globals:
            return Layout((near,), block, left, right)
        return Layout((near, First(self.globals)), block, left, right, everything=(First(),), whole=self.globals)

    def band(self, mask: Mask | None, before: int = 0) -> Mask:
        """A causal window as a mask of exact attention, joined with another; the first query has `before` keys before it."""
        band = Window(self.reach - before, before)
        return band if mask is None else mask & band

    def start(self, rows: int, like: Tensor) -> WindowState:
        if not self.causal:
            self.refuse("go on token by token where it looks to both sides")
        shape = (rows, self.placement.heads, self.reach + 1, self.placement.head_width)
        return WindowState(like.new_zeros(shape), like.new_zeros(shape))

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: WindowState) -> Tensor:
        state.append(k, v)
        seen = min(state.filled, self.reach + 1)  # in the ring's order, which softmax does not mind
        return attend(q, state.keys[:, :, :seen], state.values[:, :, :seen])

    def read(self, q: Tensor, k: Tensor, v: Tensor, state: WindowState) -> Tensor:
        keys, values = state.last(min(state.filled, self.reach))
        state.append(k, v)
        return self.going_on(q, torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2))


BLOCK = 32  # least queries of a block: a smaller stride puts several into one


class Strided(Sparse):
    name = "strided"
    supports = Support(causal=True, both_sides=True, padding=True, cache=True)

    def __init__(self, placement: Placement, pattern: str = "strided", stride: int = 32, summary: int = 4) -> None:
        super().__init__(placement)
        if pattern not in ("strided", "fixed"):
            raise UsageError(f"model.attention.pattern = {pattern} is none of: strided, fixed")
        if pattern == "fixed" and summary > stride:
            raise UsageError(
                f"a block of {stride} positions has no {summary} at its end; set model.attention.summary to at most {stride}"
            )
        self.fixed, self.stride, self.summary = pattern == "fixed", stride, summary

    def pattern(self, queries: int, keys: int) -> Tensor:
        t, s = torch.arange(queries)[:, None], torch.arange(keys)
        if self.fixed:
            near, far = t // self.stride == s // self.stride, (s % self.stride >= self.stride - self.summary)[None]
        else:
            near, far = (t - s).abs() < self.stride, (t - s) % self.stride == 0
        return (near | far) & (s <= t) if self.causal else near | far  # (T, S)

    def layout(self, like: Tensor) -> Layout:
        block = self.stride * -(-BLOCK // self.stride)
        reach = 0 if self.fixed else self.stride - 1
        left, right = reach, 0 if self.causal else reach
        queries, keys = torch.arange(block)[:, None], torch.arange(-left, block + right)
        near = queries // self.stride == keys // self.stride if self.fixed else (queries - keys).abs() < self.stride
        band = (near & (keys <= queries) if self.causal else near).to(like.device)  # (block, K)
        far: PatternPart = KeyColumns(self.stride, self.causal)
        if self.fixed:
            far = Summaries(self.stride, self.summary, self.causal)
        return Layout((Near(block, left, right, band), far), block, left, right)

    def start(self, rows: int, like: Tensor) -> StepCache:
        if not self.causal:
            self.refuse("go on token by token where it looks to both sides")
        return StepCache.empty(rows, self.placement.heads, self.placement.head_width, like)

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: StepCache) -> Tensor:
        state.append(k, v)
        keys, values = state.seen()
        places = self._seen_from(state.filled - 1).to(q.device)
        return attend(q, keys.index_select(2, places), values.index_select(2, places))

    def read(self, q: Tensor, k: Tensor, v: Tensor, state: StepCache) -> Tensor:
        state.append(k, v)
        return self.going_on(q, *state.seen())

    def _seen_from(self, place: int) -> Tensor:
        """The positions that the causal pattern shows to this one, far ones first."""
        if self.fixed:
            near = place // self.stride * self.stride
            ends = range(self.stride - self.summary, self.stride)
            far = [block + end for block in range(0, near, self.stride) for end in ends]
        else:
            near = max(0, place - self.stride + 1)
            far = list(range(place % self.stride, near, self.stride))
        return torch.tensor([*far, *range(near, place + 1)])


class BigBird(Sparse):
    name = "bigbird"
    supports = Support(both_sides=True, padding=True)

    def __init__(
        self, placement: Placement, block: int = 32, window: int = 3, globals: int = 2, random: int = 3
    ) -> None:
        super().__init__(placement)
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
        return random_blocks(self.placement.seed, -(-length // self.block), self.sides, self.globals, self.random)

    def layout(self, like: Tensor) -> Layout:
        margin, whole = self.sides * self.block, self.globals * self.block
        parts: list[PatternPart] = [Near(self.block, margin, margin, first=whole)]
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
    """Draw for each block `count` blocks that it does not see already: (blocks, count), -1 where fewer are left.

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
