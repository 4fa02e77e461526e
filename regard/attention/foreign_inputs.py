"""Torch's multi-head attention (Vaswani et al. 2017, section 3.2.2) by its own arguments, with what torch adds to it:
keys that are learned or zero, masks of two kinds that are added, and a hint that spares one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from regard.attention.foreign_roles import NotInfinite
from regard.attention.masks import Causal, Mask


@dataclass(frozen=True, eq=False)
class HeadsInputs:
    """The arguments of torch.nn.functional.multi_head_attention_forward, by its names and in its order."""

    query: Tensor  # (T, B, D) or (T, D)
    key: Tensor  # (S, B, D) or (S, D)
    value: Tensor
    embed_dim_to_check: int
    num_heads: int
    in_proj_weight: Tensor | None  # (3 D, D)
    in_proj_bias: Tensor | None
    bias_k: Tensor | None  # (1, 1, D): one more key, the same for all
    bias_v: Tensor | None
    add_zero_attn: bool
    dropout_p: float
    out_proj_weight: Tensor
    out_proj_bias: Tensor | None
    training: bool = True
    key_padding_mask: Tensor | None = None  # (B, S) or (S,); True, or minus infinity, is padding
    need_weights: bool = True
    attn_mask: Tensor | None = None  # (T, S) or (B * H, T, S); True, or minus infinity, is hidden
    use_separate_proj_weight: bool = False
    q_proj_weight: Tensor | None = None
    k_proj_weight: Tensor | None = None
    v_proj_weight: Tensor | None = None
    static_k: Tensor | None = None  # (B * H, S, E)
    static_v: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    def projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, E), k and v (B, H, S, E); S counts the keys that torch adds."""
        weights: Sequence[Tensor | None] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if not self.use_separate_proj_weight and self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        batched = [x if x.dim() == 3 else x[:, None] for x in (self.query, self.key, self.value)]  # (T, B, D)
        q, k, v = (linear(x, w, b) for x, w, b in zip(batched, weights, biases, strict=True))  # type: ignore[arg-type]
        more_k, more_v = self.bias_k, self.bias_v
        if more_k is not None and more_v is not None:
            k, v = (torch.cat([x, more.expand(1, *x.shape[1:])]) for x, more in ((k, more_k), (v, more_v)))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
        k = k if self.static_k is None else self.static_k.unflatten(0, (-1, self.num_heads))
        v = v if self.static_v is None else self.static_v.unflatten(0, (-1, self.num_heads))
        return (q, pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))) if self.add_zero_attn else (q, k, v)

    def finish(self, out: Tensor) -> Tensor:
        """(B, H, T, E) -> (B, T, D)."""
        return linear(out.transpose(1, 2).flatten(2), self.out_proj_weight, self.out_proj_bias)

    def bias(self) -> Tensor | None:
        """Both masks as one, added to scores (B, H, T, S)."""
        parts = []
        if self.attn_mask is not None and not self._by_hint:
            mask = additive(self.attn_mask, self.query)
            parts.append(mask.unflatten(0, (-1, self.num_heads)) if mask.dim() == 3 else mask)
        if self.key_padding_mask is not None:
            parts.append(torch.atleast_2d(additive(self.key_padding_mask, self.query))[:, None, None])
        added = (self.bias_k is not None) + self.add_zero_attn  # keys that no mask knows
        return pad(sum(parts[1:], parts[0]), (0, added)) if parts else None

    @property
    def _by_hint(self) -> bool:
        """Whether torch believes `is_causal` and does not look at the mask."""
        return self.is_causal and self.key_padding_mask is None and not self.need_weights

    def mask(self, bias: Tensor | None) -> Mask | None:
        """What the bias leaves. Where torch takes a plain softmax, a query that sees nothing gets NaN, and keeps it."""
        if self._by_hint:
            return Causal()
        return None if bias is None or self.need_weights else NotInfinite(bias)


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of multi-head attention as what is added to scores; as a boolean it is True where nothing is to be seen."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
