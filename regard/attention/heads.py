"""Multi-head attention (Vaswani et al. 2017, section 3.2.2):

    MultiHead(X, M) = Concat(head_1 .. head_H) W_O,   head_i = attend(X W_Q_i, M W_K_i, M W_V_i)

The projections of all heads are one matrix each; keys and values share one product. X looks at M: at itself in
self-attention, at the encoder's memory in cross-attention.
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention.cache import MemoryKeys, StepCache
from regard.attention.masks import Mask
from regard.attention.record import Role, attend_seen


class MultiHead(nn.Module):
    """H heads of width E = D / H, with G key-value heads (G = H unless given)."""

    def __init__(
        self, width: int, heads: int, *, role: Role, groups: int | None = None, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be split into {heads} heads; choose a divisor of {width}")
        self.heads, self.groups, self.role, self.dropout = heads, heads if groups is None else groups, role, dropout
        self.head_width = width // heads
        if self.groups < 1 or heads % self.groups:
            raise ValueError(f"{heads} heads cannot share {self.groups} key-value heads; choose a divisor of {heads}")
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, 2 * self.groups * self.head_width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask | None = None) -> Tensor:
        """x (B, T, D) looks at memory (B, S, D): (B, T, D)."""
        k, v = self.keys_values(memory)
        return self._look(x, k, v, mask)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        both = self.key_value(memory).unflatten(-1, (2, self.groups, self.head_width))  # (B, S, 2, G, E)
        k, v = both.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, G, S, E)
        return k, v

    def project(self, memory: Tensor, mask: Mask | None) -> MemoryKeys:
        """A memory's keys and values, to be looked at step after step."""
        return MemoryKeys(*self.keys_values(memory), mask)

    def look_at(self, x: Tensor, memory: MemoryKeys) -> Tensor:
        """x (B, W, D), one vector for each hypothesis, looks at the memory of its source: (B, W, D)."""
        return self._look(x, memory.keys, memory.values, memory.mask)

    def step(self, x: Tensor, cache: StepCache) -> Tensor:
        """x (B, W, D), the newest position of each hypothesis, joins the cache and looks back: (B, W, D)."""
        rows = x.reshape(-1, 1, x.size(-1))  # (B * W, 1, D)
        cache.append(*self.keys_values(rows))
        return self._look(rows, *cache.seen(), mask=None, reused=True).view_as(x)

    def _look(self, x: Tensor, k: Tensor, v: Tensor, mask: Mask | None, reused: bool = False) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)  # (B, H, T, E)
        rate = self.dropout if self.training else 0.0
        seen = attend_seen(self, self.role, q, k, v, mask=mask, dropout=rate, reused=reused)  # (B, H, T, E)
        return self.out(seen.transpose(1, 2).flatten(2))  # (B, T, D)
