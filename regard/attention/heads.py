"""Multi-head attention (Vaswani et al. 2017, section 3.2.2):

    MultiHead(X, M) = Concat(head_1 .. head_H) W_O,   head_i = attend(X W_Q_i, M W_K_i, M W_V_i)

The projections of all heads are one matrix each; keys and values share one product. X looks at M: at itself in
self-attention, at the encoder's memory in cross-attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.masks import Causal, Mask, Window
from regard.attention.record import Role, attend_seen
from regard.attention.rotary import Rotary


class MultiHead(nn.Module):
    """H heads of width E = D / H, with G key-value heads (G = H unless given).

    `band`: in self-attention, how many positions back a query sees, itself included (0: all; Child et al. 2019).
    `scale`: what products are multiplied by (None: 1 / √E).
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
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be split into {heads} heads; choose a divisor of {width}")
        self.heads, self.groups, self.role, self.dropout = heads, heads if groups is None else groups, role, dropout
        self.head_width, self.band, self.scale = width // heads, band, scale
        if self.groups < 1 or heads % self.groups:
            raise ValueError(f"{heads} heads cannot share {self.groups} key-value heads; choose a divisor of {heads}")
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, 2 * self.groups * self.head_width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.rotary = rotary

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None) -> Tensor:
        """x (B, T, D) looks at memory (B, S, D): (B, T, D)."""
        if x is memory:
            q, k, v = self._own(x)
            return self._look(q, k, v, self._banded(mask))
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

    def look_at(self, x: Tensor, memory: MemoryKeys) -> Tensor:
        """x (B, W, D), one vector for each hypothesis, looks at the memory of its source: (B, W, D)."""
        return self._look(self.queries(x), memory.keys, memory.values, memory.mask)

    def read(self, x: Tensor, cache: StepCache) -> Tensor:
        """x (N, T, D), the next positions, join the cache; each looks back: (N, T, D)."""
        before = cache.filled
        q, k, v = self._own(x, before)
        cache.append(k, v)
        return self._look(q, *cache.seen(), self._banded(Causal(before), before), reused=True)

    def step(self, x: Tensor, cache: StepCache) -> Tensor:
        """x (B, W, D), the newest position of each hypothesis, joins the cache and looks back: (B, W, D)."""
        rows = x.reshape(-1, 1, x.size(-1))  # (B * W, 1, D)
        q, (k, v) = self.queries(rows), self.keys_values(rows)
        if self.rotary is not None:
            q, k = self.rotary(q, cache.filled), self.rotary(k, cache.filled)
        cache.append(k, v)
        return self._look(q, *cache.seen(self.band), mask=None, reused=True).view_as(x)

    def _own(self, x: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x itself, in one product, turned to their positions."""
        weight = torch.cat([self.query.weight, self.key_value.weight])
        bias = None if self.query.bias is None else torch.cat([self.query.bias, self.key_value.bias])
        parts = linear(x, weight, bias).unflatten(-1, (self.heads + 2 * self.groups, self.head_width))
        parts = parts.transpose(1, 2)  # (B, H + 2 G, T, E)
        if self.rotary is None:
            q, k, v = parts.split([self.heads, self.groups, self.groups], dim=1)
            return q, k, v
        turned, v = parts.split([self.heads + self.groups, self.groups], dim=1)
        q, k = self.rotary(turned, start).split([self.heads, self.groups], dim=1)
        return q, k, v

    def _banded(self, mask: Mask | None, offset: int = 0) -> Mask | None:
        if not self.band:
            return mask
        band = Window(self.band - 1 - offset, offset)
        return band if mask is None else mask & band

    def _look(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, reused: bool = False) -> Tensor:
        rate = self.dropout if self.training else 0.0
        seen = attend_seen(
            self, self.role, q, k, v, mask=mask, scale=self.scale, dropout=rate, reused=reused
        )  # (B, H, T, E)
        return self.out(seen.transpose(1, 2).flatten(2))  # (B, T, D)
