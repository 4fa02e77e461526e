"""A call of torch's `scaled_dot_product_attention` by someone else's module: run, changed, and told to the recorder.

Weights are those before dropout: with `dropout_p` above zero they do not rebuild the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention.attend import attention_scores, for_each_head
from regard.attention.call import Role
from regard.attention.changes import Changed
from regard.attention.foreign_roles import NotInfinite, divisible, lets_through, role_of
from regard.attention.masks import Causal, Dense, Mask
from regard.attention.record import tell


@dataclass(frozen=True, eq=False)
class ProductsCall:
    """The arguments of torch.nn.functional.scaled_dot_product_attention, by its names and in its order."""

    query: Tensor  # (..., H, T, E), or (..., T, E)
    key: Tensor  # (..., G, S, E)
    value: Tensor  # (..., G, S, E)
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @property
    def readable(self) -> bool:
        """Nested tensors have no axes to draw."""
        return not self.query.is_nested

    @property
    def queries(self) -> int:
        return self.query.size(-2)

    @property
    def keys(self) -> int:
        return self.key.size(-2)

    @property
    def hint(self) -> Tensor | None:
        """The mask that may tell whether this is causal."""
        return self.attn_mask

    def allowed(self) -> Tensor | None:
        return None if self.attn_mask is None else lets_through(self.attn_mask)

    def role(self, path: str, owner: nn.Module, causal: bool) -> Role:
        return role_of(path, owner, self.queries, self.keys, causal=causal or self.is_causal, step=True)

    def run(
        self, give: Callable[..., Tensor], owner: nn.Module, role: Role, change: Changed | None, place: int, time: int
    ) -> Tensor:
        """What torch gives, or what a change makes of it; the recorder is told."""
        q, k, v, lead = self._heads()
        mask, bias = self._mask(lead), self._bias(lead)
        weights = None
        if change is not None and change.of_weights:
            scores = attention_scores(q, k, bias=divisible(bias), scale=self.scale)
            visible = None if bias is None else Dense(lets_through(bias))
            weights = change.weights(scores, mask, place, visible=visible).to(v.dtype)
            given = weights @ for_each_head(v, q.size(1))
        else:
            given = give(**vars(self))
        out = given.reshape(*q.shape[:3], v.size(-1))
        out = out if change is None else change.kept(out)
        tell(
            owner,
            role,
            *(q, k, v, out),
            mask=mask,
            bias=bias,
            scale=self.scale,
            told=weights,
            visible=None if bias is None else partial(lets_through, bias.detach()),
            reused=True,
            removed=() if change is None else change.removed(q.size(1)),
            time=time,
        )
        if change is None:
            return given
        return out.reshape(*lead, *out.shape[1 if self._has_heads else 2 :])

    @property
    def _has_heads(self) -> bool:
        return self.enable_gqa or max(self.query.dim(), self.key.dim()) > 3

    def _heads(self) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
        """q (B, H, T, E), k and v (B, G, S, E), and which leading dimensions B stands for."""
        parts = [x if self._has_heads else x.unsqueeze(-3) for x in (self.query, self.key, self.value)]
        parts = [x[None] if x.dim() == 2 else x for x in parts]
        q, k, v = parts
        if not self.enable_gqa and q.size(-3) < k.size(-3):  # one query head for many key heads: torch repeats it
            q = q.expand(*q.shape[:-3], k.size(-3), *q.shape[-2:])
        lead = _common([x.shape[:-3] for x in parts])
        return _flat(q, lead), _flat(k, lead), _flat(v, lead), lead

    def _mask(self, lead: tuple[int, ...]) -> Mask | None:
        if self.attn_mask is None:
            return Causal() if self.is_causal else None  # torch's: the first query stands at the first key
        given = self._four(self.attn_mask, lead)
        return Dense(given) if given.dtype == torch.bool else NotInfinite(given.detach())

    def _bias(self, lead: tuple[int, ...]) -> Tensor | None:
        mask = self.attn_mask
        return None if mask is None or mask.dtype == torch.bool else self._four(mask, lead)

    def _four(self, mask: Tensor, lead: tuple[int, ...]) -> Tensor:
        """The mask as it broadcasts to (B, H, T, S)."""
        mask = mask if self._has_heads or mask.dim() < 3 else mask.unsqueeze(-3)
        return _flat(mask, lead) if mask.dim() > 3 and len(lead) > 1 else mask


def _flat(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """(..., H, T, E) as (B, H, T, E)."""
    return x.expand(*lead, *x.shape[-3:]).reshape(math.prod(lead), *x.shape[-3:])


def _common(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """What shapes broadcast to (torch's function for it first imports symbolic algebra, for seconds)."""
    most = max(map(len, shapes))
    sizes = zip(*((1,) * (most - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(next((size for size in each if size != 1), 1) for each in sizes)
