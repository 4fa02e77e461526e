"""What other people's modules do not say about an attention, read from what they do say: its role, where its first
query stands, and which keys an additive mask takes away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.call import Role
from regard.attention.masks import Mask

HIDDEN = -1e4  # a bias down here hides a key
_CROSS = ("cross", "encoder_attn", "encdec", "enc_dec", "src_attn")


def role_of(
    path: str, owner: nn.Module, queries: int, keys: int, *, causal: bool, same: bool | None = None, step: bool = False
) -> Role:
    """What an attention is for; the first line that holds decides.

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
    """What an additive bias does not take away: where it is more than minus infinity. A row with nothing gets zeros."""

    bias: Tensor

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return (torch.atleast_2d(self.bias) > -math.inf).to(device)

    def keep(self, rows: Tensor) -> Mask:
        return NotInfinite(self.bias[rows]) if self.bias.dim() == 4 and len(self.bias) > 1 else self
