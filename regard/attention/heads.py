"""Multi-head attention (Vaswani et al. 2017, section 3.2.2):

    MultiHead(X, M) = Concat(head_1 .. head_H) W_O,   head_i = attend(X W_Q_i, M W_K_i, M W_V_i)

The projections of all heads are one matrix each; keys and values share one product. X looks at M: at itself in
self-attention, at the encoder's memory in cross-attention. Whatever heads do differently (a kernel, relative positions, a
band) is a `Mechanism`; that they can be changed and recorded is the business of `attend_by`, through which all pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.call import Role
from regard.attention.changes import has_other_weights
from regard.attention.kernels import KERNELS, Kernel, KernelState, Placement
from regard.attention.masks import Causal, Edges, Mask
from regard.attention.mechanisms import Exact, KernelPass, KernelStep, Mechanism, OnEdges, scaled_products
from regard.attention.record import attend_by
from regard.attention.relative import Relative, Rotary

if TYPE_CHECKING:
    from regard.attention.kernels.sparse import SlidingWindow


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
        placement = Placement(heads, self.head_width, causal=True)
        windowed = cast("type[SlidingWindow]", KERNELS["window"]) if band else None
        self.window = None if windowed is None else windowed(placement, reach=band - 1)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None, distances: Tensor | None = None) -> Tensor:
        """x (B, T, D) looks at memory (B, S, D): (B, T, D). `distances` (B, T, S) are for relative positions."""
        q, k, v = self.project_own(x) if x is memory else (self.queries(x), *self.keys_values(memory))
        mechanism = self._mechanism(mask, distances, own=x is memory)
        return self.join(attend_by(mechanism, self, self.role, q, k, v))  # of (B, H, T, E)

    def queries(self, x: Tensor) -> Tensor:
        """X W_Q, head by head: (B, H, T, E)."""
        return self._split(self.query(x), self.heads)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """M W_K and M W_V, head by head: each (B, G, S, E)."""
        both = self.key_value(memory).unflatten(-1, (2, self.groups, self.head_width))  # (B, S, 2, G, E)
        k, v = both.permute(2, 0, 3, 1, 4).unbind(0)
        return k, v

    def project_own(self, x: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x itself, whose first position is `start`; turned there, where positions turn."""
        q = self.queries(x)
        if self.shares_keys:
            q = q if self.rotary is None else self.rotary(q, start)
            return q, q, self._split(self.key_value(x), self.groups)
        k, v = self.keys_values(x)
        if self.rotary is not None:  # both at once: a step is short, and its operations are many
            q, k = self.rotary(torch.cat([q, k], dim=1), start).split([self.heads, self.groups], dim=1)
        return q, k, v

    def join(self, seen: Tensor) -> Tensor:
        """Concat(head_1 .. head_H) W_O: (B, H, T, E) -> (B, T, D)."""
        return self.out(seen.transpose(1, 2).flatten(2))

    def project(self, memory: Tensor, mask: Mask | None) -> MemoryKeys:
        """A memory's keys and values, to be looked at step after step."""
        return MemoryKeys(*self.keys_values(memory), mask)

    def look_at(self, x: Tensor, memory: MemoryKeys, place: int = 0) -> Tensor:
        """x (B, W, D), at `place` of each hypothesis, looks at the memory of its source: (B, W, D)."""
        mechanism = self._mechanism(memory.mask, own=False, place=place, together=True)
        return self.join(attend_by(mechanism, self, self.role, self.queries(x), memory.keys, memory.values))

    def start(self, rows: int, like: Tensor) -> StepCache | KernelState:
        """An empty past for so many hypotheses."""
        if self.kernel is not None:
            return self.kernel.start(rows, like)
        return StepCache.empty(rows, self.groups, self.head_width, like)

    def read(self, x: Tensor, past: StepCache | KernelState, mask: Mask | None = None) -> Tensor:
        """x (N, T, D), the next positions, join the past; each looks back, or by `mask` (T, S) elsewhere: (N, T, D)."""
        before = past.filled
        q, k, v = self.project_own(x, before)
        if self.kernel is not None:
            mechanism = KernelStep(self.kernel, self.kernel.read, past)
            return self.join(attend_by(mechanism, self, self.role, q, k, v))
        assert isinstance(past, StepCache)
        past.append(k, v)
        seen = mask or (Causal(before) if self.window is None else self.window.band(Causal(before), before))
        real = past.real()
        exact = self._exact(seen if real is None else seen & real, start=before, place=before)
        return self.join(attend_by(exact, self, self.role, q, *past.seen(), reused=True))

    def step(self, x: Tensor, past: StepCache | KernelState) -> Tensor:
        """x (B, W, D), the newest position of each hypothesis, joins the past and looks back: (B, W, D)."""
        before, columns = past.filled, x.reshape(-1, 1, x.size(-1))  # (B * W, 1, D)
        if self.window is not None and has_other_weights(self, self.role):  # which may be of keys outside the band
            return self.read(columns, past).view_as(x)
        q, k, v = self.project_own(columns, before)  # each (B * W, H or G, 1, E)
        if self.kernel is not None:
            mechanism = KernelStep(self.kernel, self.kernel.step, past)
            return self.join(attend_by(mechanism, self, self.role, q, k, v)).view_as(x)
        assert isinstance(past, StepCache)
        past.append(k, v)
        keys, values = past.seen(self.band)
        exact = self._exact(past.real(), start=keys.size(-2) - 1, place=before)
        return self.join(attend_by(exact, self, self.role, q, keys, values, reused=True)).view_as(x)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.head_width)).transpose(1, 2)  # (B, T, heads * E) -> (B, heads, T, E)

    def _mechanism(
        self, mask: Mask | None, distances: Tensor | None = None, *, own: bool, place: int = 0, together: bool = False
    ) -> Mechanism:
        """How whole sequences attend, to themselves (`own`) or to a memory.

        A band is the window kernel, or exact attention within the window where a kernel cannot do what is asked.
        """
        if isinstance(mask, Edges) and self.kernel is None and self.relative is None and self.window is None:
            return OnEdges(mask, scaled_products(self.scale), self.dropout if self.training else 0.0)
        if self.kernel is not None:
            return KernelPass(self.kernel, mask)
        if self.window is not None and own:
            plain = self.relative is None and self.scale is None and not (self.training and self.dropout)
            if plain and mask == Causal() and not has_other_weights(self, self.role):
                return KernelPass(self.window, mask)
            mask = self.window.band(mask)
        return self._exact(mask, distances, place=place, together=together)

    def _exact(
        self, mask: Mask | None, distances: Tensor | None = None, start: int = 0, place: int = 0, together: bool = False
    ) -> Exact:
        rate = self.dropout if self.training else 0.0
        return Exact(mask, self.scale, rate, None, self.relative, distances, start, place, together)


def _check_kernel(kernel: Kernel, *, relative: bool, dropout: float, band: int, scale: float | None) -> None:
    """Refuse what a `MultiHead` cannot have beside a kernel."""
    if relative and not kernel.supports.bias:
        kernel.refuse("know positions that add to scores", "choose model.positions = rotary or sinusoidal")
    if dropout:
        kernel.refuse("drop weights, which it never has", "set model.attention_dropout = 0")
    if band:
        kernel.refuse("be banded besides", "set model.band = 0")
    if scale is not None:
        kernel.refuse("leave products unscaled")
