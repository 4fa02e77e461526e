"""Torch's scaled dot-product attention by its own arguments, and how to read from them what nobody says: the role of an
attention, where its first query stands, and which keys an additive mask takes away.
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
from regard.attention.masks import Causal, Dense, Mask
from regard.attention.record import report

HIDDEN = -1e4  # a bias down here hides a key
_CROSS = ("cross", "encoder_attn", "encdec", "enc_dec", "src_attn")


def role_of(
    path: str, owner: nn.Module, queries: int, keys: int, *, causal: bool, same: bool | None = None, step: bool = False
) -> Role:
    """Tell the role of an attention; the first line that holds decides.

    cross   the last two names of its path or its class say so, as "encoder_attn" or T5's "EncDecAttention" do;
            so does "multihead_attn", as nn.TransformerDecoderLayer has it, if queries and keys are not `same`
    pool    they say "pool", and there are not as many queries as keys
    causal  the call or its module says so (`is_causal`), or the mask hides later keys from earlier queries (`causal`)
    cross   queries and keys were made of different tensors (`same` is False; None is unknown)
    causal  one query looks at several keys: a step of a decoder with a cache (`step`, where a call can be one)
    cross   there are not as many queries as keys
    self    otherwise
    """
    names = path.lower().split(".")[-2:]
    said = " ".join((*names, type(owner).__name__.lower()))
    if any(word in said for word in _CROSS) or (names[-1] == "multihead_attn" and same is False):
        return "cross"
    if "pool" in said and queries != keys:
        return "pool"
    if causal or getattr(owner, "is_causal", None) is True:
        return "causal"
    if same is False:
        return "cross"
    if step and queries == 1 and keys > 1:
        return "causal"
    return "self" if queries == keys else "cross"


def hides_later(allowed: Tensor) -> bool:
    """Whether a mask (..., T, S) hides later keys from earlier queries, and not only what is padding for all of them.

    The last query stands at the last key, as behind a cache; a cache with free places at its end is covered by that.
    """
    queries, keys = torch.atleast_2d(allowed).shape[-2:]
    if queries < 2 or keys < 2 or bool(allowed.triu(1 + max(keys - queries, 0)).any()):
        return False
    return bool((allowed.any(dim=-2) & ~allowed.all(dim=-2)).any())


def place_of_step(allowed: Tensor | None, queries: int, keys: int) -> int:
    """Where the first query stands among the keys of a cache: at the last that it may see (..., T, S)."""
    if allowed is None or allowed.size(-2) != queries:
        return keys - queries
    seen = allowed[..., 0, :].reshape(-1, keys).any(dim=0).nonzero()
    return int(seen.max()) if len(seen) else 0


def lets_through(mask: Tensor) -> Tensor:
    """Where a mask of scaled_dot_product_attention lets a query look: True, or a bias that leaves it some weight.

    Where some add minus infinity, others add the least number, -1e9 or -10,000: e to that power is zero in any case.
    """
    return mask if mask.dtype == torch.bool else mask > HIDDEN


def divisible(bias: Tensor | None) -> Tensor | None:
    """A bias that a temperature below one does not make infinite: `finfo.min` becomes a little more."""
    if bias is None:
        return None
    return bias.clamp(min=torch.finfo(bias.dtype).min / 128).masked_fill(bias == -math.inf, -math.inf)


@dataclass(frozen=True, eq=False)
class NotInfinite(Mask):
    """An additive bias as a mask: open where it is more than minus infinity. A row with nothing gets zeros."""

    bias: Tensor

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return (torch.atleast_2d(self.bias) > -math.inf).to(device)

    def keep(self, rows: Tensor) -> Mask:
        return NotInfinite(self.bias[rows]) if self.bias.dim() == 4 and len(self.bias) > 1 else self


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
        """Return what torch gives, or what a change makes of it, and report it to the recorder."""
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
        report(
            owner,
            role,
            *(q, k, v, out),
            mask=mask,
            bias=bias,
            scale=self.scale,
            reported=weights,
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
    """The shape that shapes broadcast to (torch's function for it first imports symbolic algebra, for seconds)."""
    most = max(map(len, shapes))
    sizes = zip(*((1,) * (most - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(next((size for size in each if size != 1), 1) for each in sizes)
