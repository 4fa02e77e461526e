"""One attention of one forward pass, as the recorder keeps it: who looked, in which role, and all it takes to see where.

Queries, keys and values are kept, weights are computed when they are asked for; an attention that has its weights at
hand anyway tells them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.attention.attend import attention_weights, for_each_head
from regard.attention.channel import Row
from regard.attention.masks import Mask
from regard.errors import UsageError

Role = Literal["self", "causal", "cross", "pool", "memory", "spatial", "channel"]
Told = Tensor | Callable[[], Tensor]  # (B, H, T, S), or what computes it when asked
Lazy = Callable[[], Tensor | None] | None


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention of one forward pass: who looked (module path), in which role, and all it takes to see the weights."""

    path: str
    role: Role
    q: Tensor  # (B, H, T, E)
    k: Tensor  # (B, G, S, E)
    v: Tensor  # (B, G, S, E)
    out: Tensor  # (B, H, T, E), or what `finish` makes of it
    mask: Mask | None = None
    bias: Tensor | None = None
    scale: float | None = None
    told: Told | None = None  # weights that are no softmax of products of q and k
    sums_to_one: bool = True  # each row of the weights, unless the paper has it otherwise
    gates: bool = False  # weights (B, H, 1, S) do not add values up, each multiplies its own: out (B, H, S, E)
    plus: Tensor | None = None  # (B, H, T, E): what was added to the weighted values
    visible: Lazy = None  # which pairs a kernel sees, if it leaves out some by their places
    stands_for: Lazy = None  # the map that a kernel approximates, if that is not softmax(q kᵀ)
    has_exact: bool = True  # q and k are queries and keys; False: what was mixed is all there is
    layer: int = 0  # among the attentions of this role, in the order of their first call
    removed: tuple[int, ...] = ()  # heads that looked, but whose output was replaced by zeros
    rows: tuple[int, ...] | None = None  # which queries these are, where others were left out
    finish: Callable[[Tensor], Tensor] | None = None  # what a foreign module made of its heads (B, H, T, E)
    batch: tuple[Row, ...] | None = None  # (B,) which input each row of the batch is; None: they stand in order

    @property
    def heads(self) -> int:
        return self.q.size(1)

    @property
    def texts(self) -> tuple[int, ...]:
        """Which input each row of the batch is, counted from 0 as they were given; hypotheses are of their source."""
        return tuple(range(len(self.q))) if self.batch is None else tuple(row.text for row in self.batch)

    def row(self, text: int | None = None, hypothesis: int = 0) -> int:
        """The row of an input (None: the first that is here), and of those of a search the one of a hypothesis."""
        texts = self.texts
        text = texts[0] if text is None and texts else text
        rows = [row for row, each in enumerate(texts) if each == text]
        if not rows:
            there = ", ".join(map(str, sorted(set(texts))))
            raise UsageError(f"no text {text} in this attention; there is {there}, counted from 0")
        if not 0 <= hypothesis < len(rows):
            raise UsageError(f"no hypothesis {hypothesis}; there are {len(rows)}, numbered from 0 to {len(rows) - 1}")
        return rows[hypothesis]

    def __repr__(self) -> str:
        size = f"{self.q.size(-2)} x {self.k.size(-2)}"
        return (
            f"AttentionCall({self.path}, {self.role}, layer {self.layer}, {self.heads} heads, {len(self.q)} x {size})"
        )

    @torch.no_grad()
    def weights(self) -> Tensor:
        """Where each query looked: (B, H, T, S); rows sum to one, unless `sums_to_one` says otherwise."""
        if self.told is not None:
            return self.told() if callable(self.told) else self.told
        return self.exact()

    @torch.no_grad()
    def exact(self) -> Tensor:
        """Where exact attention would have looked, whatever was computed instead: (B, H, T, S)."""
        other = self.stands_for() if self.stands_for is not None else None
        if other is not None:
            return other
        return attention_weights(self.q, self.k, mask=self.mask, bias=self.bias, scale=self.scale)

    def permitted(self) -> Tensor:
        """Where the mask lets each query look: booleans (B, H, T, S)."""
        shape = (*self.q.shape[:3], self.k.size(-2))
        if self.mask is None:
            return self.q.new_ones(shape).bool()
        return self.mask.dense(shape[-2], shape[-1], self.q.device).expand(shape)

    def allowed(self) -> Tensor:
        """Where each query could look: what the mask permits, and of that what a kernel sees. Booleans (B, H, T, S)."""
        visible = self.visible() if self.visible is not None else None
        return self.permitted() if visible is None else self.permitted() & visible

    @torch.no_grad()
    def rebuilt(self) -> Tensor:
        """The module's output, made again of the weights and values."""
        if self.gates:
            return self.weights().mT * self.v
        out = self.weights() @ for_each_head(self.v, self.heads)
        out = out if self.plus is None else out + self.plus
        if self.removed:
            out[:, list(self.removed)] = 0.0
        return out if self.finish is None else self.finish(out)

    def check(self) -> float:
        """The largest difference between the output rebuilt from the weights and what the module really gave.

        Weights are those before dropout: while a model trains with it, they do not rebuild what it gave.
        """
        return float((self.rebuilt() - self.out).abs().max()) if self.out.numel() else 0.0
