"""A sliding window, and a few tokens that see all (Beltagy et al. 2020, "Longformer", section 3.1).

    query t sees keys t - reach .. t + reach, or t - reach .. t if causal;   O(T · reach) pairs

The first `globals` tokens see all and are seen by all. The paper gives global attention projections of its own; here
it has those of the window. A causal window is also the banded attention of GPT-3's every other layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.kernels.kernel import Can, Setting
from regard.attention.kernels.layout import Layout
from regard.attention.kernels.parts import First, Near
from regard.attention.kernels.sparse import Sparse
from regard.errors import UsageError


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
    can = Can(causal=True, both_sides=True, padding=True, cache=True)

    def __init__(self, setting: Setting, reach: int = 64, globals: int = 0) -> None:
        super().__init__(setting)
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

    def start(self, rows: int, like: Tensor) -> WindowState:
        if not self.causal:
            self.refuse("go on token by token where it looks to both sides")
        shape = (rows, self.setting.heads, self.reach + 1, self.setting.head_width)
        return WindowState(like.new_zeros(shape), like.new_zeros(shape))

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: WindowState) -> Tensor:
        state.append(k, v)
        seen = min(state.filled, self.reach + 1)  # in the ring's order, which softmax does not mind
        return attend(q, state.keys[:, :, :seen], state.values[:, :, :seen])

    def read(self, q: Tensor, k: Tensor, v: Tensor, state: WindowState) -> Tensor:
        keys, values = state.last(min(state.filled, self.reach))
        state.append(k, v)
        return self.going_on(q, torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2))
