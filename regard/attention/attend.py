"""Scaled dot-product attention (Vaswani et al. 2017, eq. 1): softmax(Q Kᵀ / √E) V.

`attend_reference` is written to be read; `attend` is the same through torch's fused kernel, and a test holds them equal
over every argument. Queries are (B, H, T, E), keys and values (B, G, S, E), where G divides H: with G < H, groups of
query heads share a key-value head (Ainslie et al. 2023).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.masks import Causal, Mask, as_mask
from regard.noise import dropout as drop


def attention_weights(
    q: Tensor, k: Tensor, *, mask: Mask | Tensor | None = None, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """softmax(q kᵀ · scale + bias) over the keys each query may see; a query that may see nothing gets zeros."""
    k = _for_each_head(k, q.size(1))
    scores = q @ k.transpose(-2, -1) * _scale(q, scale)  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    mask = as_mask(mask)
    if mask is None:
        return scores.softmax(dim=-1)
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)  # any other NaN stays visible


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """What `attend` computes, written to be read: (B, H, T, E)."""
    weights = attention_weights(q, k, mask=mask, bias=bias, scale=scale)  # (B, H, T, S)
    return drop(weights, dropout) @ _for_each_head(v, q.size(1))


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention through torch's fused kernel: (B, H, T, E). Dropout on the weights needs them, so it takes the slow path."""
    _check_shapes(q, k, v)
    if dropout:
        return attend_reference(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
    mask = as_mask(mask)
    k, v = _for_each_head(k, q.size(1)), _for_each_head(v, q.size(1))
    causal = isinstance(mask, Causal) and mask.offset == 0 and q.size(-2) == k.size(-2) and bias is None
    if mask is None or causal:
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, scale=scale)
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    blocked = allowed if bias is None else bias.masked_fill(~allowed, -math.inf)
    out = scaled_dot_product_attention(q, k, v, attn_mask=blocked, scale=scale)
    if mask.always_somewhere:
        return out
    return out.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


def _scale(q: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.size(-1)) if scale is None else scale


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    """Repeat key-value heads for the query heads that share them: (B, G, S, E) -> (B, H, S, E)."""
    groups = x.size(1)
    return x if groups == heads else x.repeat_interleave(heads // groups, dim=1)


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.size(-1) != k.size(-1):
        raise ValueError(f"queries are {q.size(-1)} wide and keys {k.size(-1)}; they must be equal")
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"keys are {tuple(k.shape)} and values {tuple(v.shape)}; all but the width must be equal")
    if q.size(1) % k.size(1):
        raise ValueError(f"{q.size(1)} query heads cannot share {k.size(1)} key-value heads; it must divide them")
    if not torch.is_floating_point(q):
        raise ValueError(f"attention needs floating-point vectors, not {q.dtype}")
