"""Multi-head attention (Vaswani et al. 2017, section 3.2.2):

    MultiHead(X, M) = Concat(head_1 .. head_H) W_O,   head_i = attend(X W_Q_i, M W_K_i, M W_V_i)

The projections of all heads are one matrix each; keys and values share one product. X looks at M: at itself in
self-attention, at the encoder's memory in cross-attention.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention.attend import attention_scores, for_each_head, masked_softmax
from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.call import Role
from regard.attention.changes import changed
from regard.attention.kernels.kernel import Kernel, KernelState, Setting, lengths_of
from regard.attention.kernels.sparse import SlidingWindow
from regard.attention.masks import Causal, Mask, Window
from regard.attention.record import attend_seen, tell, tell_nothing
from regard.attention.relative import Relative, RelativeValues, Rotary
from regard.noise import dropout as drop


class MultiHead(nn.Module):
    """H heads of width E = D / H, with G key-value heads (G = H unless given).

    `band`: in self-attention, how many positions back a query sees, itself included (0: all; Child et al. 2019).
    `scale`: what products are multiplied by (None: 1 / √E). `kernel`: what attends instead of all pairs. `relative`:
    positions that scores know of.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        role: Role,
        groups: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        band: int = 0,
        scale: float | None = None,
        kernel: Kernel | None = None,
        relative: Relative | None = None,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be split into {heads} heads; choose a divisor of {width}")
        self.heads, self.groups, self.role, self.dropout = heads, heads if groups is None else groups, role, dropout
        self.head_width, self.band, self.scale = width // heads, band, scale
        if self.groups < 1 or heads % self.groups:
            raise ValueError(f"{heads} heads cannot share {self.groups} key-value heads; choose a divisor of {heads}")
        if kernel is not None:
            _check_kernel(kernel, relative=relative is not None, dropout=dropout, band=band, scale=scale)
        self.shares_keys = kernel is not None and kernel.shares_keys
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, (1 if self.shares_keys else 2) * self.groups * self.head_width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.rotary, self.kernel, self.relative = rotary, kernel, relative
        setting = Setting(heads, self.head_width, causal=True)
        self.window = SlidingWindow(setting, reach=band - 1) if band > 1 else None

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None, distances: Tensor | None = None) -> Tensor:
        """x (B, T, D) looks at memory (B, S, D): (B, T, D). `distances` (B, T, S) are for relative positions."""
        if x is memory:
            q, k, v = self._own(x)
            plain = self.relative is None and self.scale is None and not (self.training and self.dropout)
            banded = self.window is not None and plain and mask == Causal() and not self._has_other_weights()
            if self.window is not None and banded:  # without a mask of T²
                return self._joined(self._through_kernel(self.window, q, self._each(k), self._each(v), mask))
            return self._look(q, k, v, self._banded(mask), distances=distances)
        return self._look(self.queries(x), *self.keys_values(memory), mask)

    def queries(self, x: Tensor) -> Tensor:
        return self.query(x).unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)  # (B, H, T, E)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        both = self.key_value(memory).unflatten(-1, (2, self.groups, self.head_width))  # (B, S, 2, G, E)
        k, v = both.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, G, S, E)
        return k, v

    def project(self, memory: Tensor, mask: Mask | None) -> MemoryKeys:
        """A memory's keys and values, to be looked at step after step."""
        return MemoryKeys(*self.keys_values(memory), mask)

    def look_at(self, x: Tensor, memory: MemoryKeys, place: int = 0) -> Tensor:
        """x (B, W, D), at `place` of each hypothesis, looks at the memory of its source: (B, W, D)."""
        return self._look(self.queries(x), memory.keys, memory.values, memory.mask, place=place, together=True)

    def start(self, rows: int, like: Tensor) -> StepCache | KernelState:
        """An empty past for so many hypotheses."""
        if self.kernel is not None:
            return self.kernel.start(rows, like)
        return StepCache.empty(rows, self.groups, self.head_width, like)

    def read(self, x: Tensor, past: StepCache | KernelState) -> Tensor:
        """x (N, T, D), the next positions, join the past; each looks back: (N, T, D)."""
        before = past.filled
        q, k, v = self._own(x, before)
        if self.kernel is not None:
            tell_nothing(self)
            return self._joined(self._kept(self.kernel, self.kernel.read(q, self._each(k), self._each(v), past)))
        assert isinstance(past, StepCache)
        past.append(k, v)
        banded = self._banded(Causal(before), before)
        return self._look(q, *past.seen(), banded, start=before, reused=True, place=before)

    def step(self, x: Tensor, past: StepCache | KernelState) -> Tensor:
        """x (B, W, D), the newest position of each hypothesis, joins the past and looks back: (B, W, D)."""
        before, columns = past.filled, x.reshape(-1, 1, x.size(-1))  # (B * W, 1, D)
        if self.band and self._has_other_weights():  # which may be of keys outside the band
            return self.read(columns, past).view_as(x)
        q, k, v = self._own(columns, before)  # each (B * W, H or G, 1, E)
        if self.kernel is not None:
            tell_nothing(self)
            seen = self._kept(self.kernel, self.kernel.step(q, self._each(k), self._each(v), past))
            return self._joined(seen).view_as(x)
        assert isinstance(past, StepCache)
        past.append(k, v)
        keys, values = past.seen(self.band)
        start = keys.size(-2) - 1  # of the query among the keys
        return self._look(q, keys, values, mask=None, start=start, reused=True, place=before).view_as(x)

    def _own(self, x: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x itself, in one product, turned to their positions."""
        keys = 0 if self.shares_keys else self.groups
        weight = torch.cat([self.query.weight, self.key_value.weight])
        bias = None if self.query.bias is None else torch.cat([self.query.bias, self.key_value.bias])
        parts = linear(x, weight, bias).unflatten(-1, (self.heads + keys + self.groups, self.head_width))
        turned, v = parts.transpose(1, 2).split([self.heads + keys, self.groups], dim=1)  # (B, H + G, T, E)
        if self.rotary is not None:
            turned = self.rotary(turned, start)
        if self.shares_keys:
            return turned, turned, v
        q, k = turned.split([self.heads, self.groups], dim=1)
        return q, k, v

    def _banded(self, mask: Mask | None, offset: int = 0) -> Mask | None:
        if not self.band:
            return mask
        band = Window(self.band - 1 - offset, offset)
        return band if mask is None else mask & band

    def _each(self, x: Tensor) -> Tensor:
        return for_each_head(x, self.heads)

    def _joined(self, seen: Tensor) -> Tensor:
        return self.out(seen.transpose(1, 2).flatten(2))  # (B, H, T, E) -> (B, T, D)

    def _look(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        *,
        start: int = 0,
        distances: Tensor | None = None,
        **seen: Any,
    ) -> Tensor:
        """`start`: of the queries among the keys. `seen`: what `attend_seen` is told besides (reused, place, together)."""
        if self.kernel is not None:
            return self._joined(self._through_kernel(self.kernel, q, self._each(k), self._each(v), mask))
        bias = None if self.relative is None else self.relative.bias(q, k.size(-2), start, distances)
        if bias is not None and isinstance(self.relative, RelativeValues):
            return self._joined(self._with_values(self.relative, q, k, v, mask, bias, start, distances, **seen))
        rate = self.dropout if self.training else 0.0
        return self._joined(
            attend_seen(self, self.role, q, k, v, mask=mask, bias=bias, scale=self.scale, dropout=rate, **seen)
        )  # of (B, H, T, E)

    def _through_kernel(self, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Tensor:
        lengths = lengths_of(mask, kernel)
        out = self._kept(kernel, kernel(q, k, v, lengths))
        given = (q.detach(), k.detach(), lengths)
        change = changed(self, self.role)
        tell(
            self,
            self.role,
            *(q, k, v, out),
            mask=mask,
            told=partial(kernel.weights, *given),
            sums_to_one=kernel.sums_to_one,
            visible=partial(kernel.visible, q.size(-2), k.size(-2), lengths, q.device),
            stands_for=partial(kernel.exact, *given),
            removed=() if change is None else change.removed(self.heads),
        )
        return out

    def _kept(self, kernel: Kernel, out: Tensor) -> Tensor:
        """What a kernel's heads saw, without those that are removed; its weights cannot be changed."""
        change = changed(self, self.role)
        if change is None:
            return out
        if change.of_weights:
            kernel.refuse("be made softer or harder, or have its weights pinned")
        return change.kept(out)

    def _has_other_weights(self) -> bool:
        """Whether someone changes the weights of this attention."""
        change = changed(self, self.role)
        return change is not None and change.of_weights

    def _with_values(
        self,
        relative: RelativeValues,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Tensor,
        start: int,
        distances: Tensor | None,
        *,
        reused: bool = False,
        place: int = 0,
        together: bool = False,
    ) -> Tensor:
        """Positions that also add to what is seen need the weights themselves."""
        scores, change = attention_scores(q, k, bias=bias, scale=self.scale), changed(self, self.role)
        weights = masked_softmax(scores, mask) if change is None else change.weights(scores, mask, place, together)
        weights = weights.to(v.dtype)
        kept = drop(weights, self.dropout) if self.training else weights  # (B, H, T, S)
        plus = relative.values(kept, start, distances)
        out = kept @ self._each(v) + plus
        out = out if change is None else change.kept(out)
        removed = () if change is None else change.removed(self.heads)
        told = partial(tell, self, self.role, q, k, v, out, mask=mask, bias=bias, scale=self.scale)
        told(told=kept, plus=plus, reused=reused, removed=removed)
        return out


def _check_kernel(kernel: Kernel, *, relative: bool, dropout: float, band: int, scale: float | None) -> None:
    """What a `MultiHead` cannot have beside a kernel."""
    if relative and not kernel.can.bias:
        kernel.refuse("know positions that add to scores", "choose model.positions = rotary or sinusoidal")
    if dropout:
        kernel.refuse("drop weights, which it never has", "set model.attention_dropout = 0")
    if band:
        kernel.refuse("be banded besides", "set model.band = 0")
    if scale is not None:
        kernel.refuse("leave products unscaled")
