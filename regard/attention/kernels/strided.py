"""Sparse Transformers (Child et al. 2019, section 4.2 and 4.3): what is near, and some of what is far.

    strided:  A¹_i = {j : i - j < l},            A²_i = {j : (i - j) mod l = 0}
    fixed:    A¹_i = {j : ⌊j / l⌋ = ⌊i / l⌋},    A²_i = {j : j mod l >= l - c}

with the stride l, about √T, and c summary positions at the end of each block of l. Each head sees the union of both,
in one softmax (the paper's merged head), so the far part leaves out what is near: O(T · (l + T / l)) pairs. Causal:
j <= i; to both sides, |i - j| < l is near.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.cache import StepCache
from regard.attention.kernels.far_parts import Columns, Summaries
from regard.attention.kernels.kernel import Can, Setting
from regard.attention.kernels.layout import Layout, Part
from regard.attention.kernels.parts import Near
from regard.attention.kernels.sparse import Sparse
from regard.errors import UsageError

BLOCK = 32  # least queries of a block: a smaller stride puts several into one


class Strided(Sparse):
    name = "strided"
    can = Can(causal=True, both_sides=True, padding=True, cache=True)

    def __init__(self, setting: Setting, pattern: str = "strided", stride: int = 32, summary: int = 4) -> None:
        super().__init__(setting)
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
        far: Part = Columns(self.stride, self.causal)
        if self.fixed:
            far = Summaries(self.stride, self.summary, self.causal)
        return Layout((Near(block, left, right, band), far), block, left, right)

    def start(self, rows: int, like: Tensor) -> StepCache:
        if not self.causal:
            self.refuse("go on token by token where it looks to both sides")
        return StepCache.empty(rows, self.setting.heads, self.setting.head_width, like)

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
