"""Scaled dot-product attention (Vaswani et al. 2017, eq. 1): a reference to read, and the fast paths."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.masks import Causal, Mask, as_mask
from regard.noise import dropout as drop


def attend_short(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """softmax(q kᵀ · scale) v over the allowed keys; q (B, H, T, E), k and v (B, H, S, E), allowed (.., T, S).

    Never in less than float32, whatever the inputs and autocast say; the result has the type of v.
    """
    out: Tensor = _ShortAttention.apply(*widened(q, k, v), allowed, scale)
    return out.to(v.dtype)


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in float32, or in what is wider among them."""
    if all(tensor.dtype == torch.float32 for tensor in tensors):  # almost always
        return tensors
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return tuple(tensor.to(dtype) for tensor in tensors)


def as_they_are(like: Tensor) -> AbstractContextManager[object]:
    """Products of the types that are given, also under autocast."""
    device = like.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return nullcontext()  # off, it costs nothing
    return torch.autocast(device, enabled=False)


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
        batch, heads = q.shape[:2]
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)  # (B * H, T or S, E)
        with as_they_are(q):
            weights = _scores(q, k, allowed, scale, heads).softmax(dim=-1)  # (B * H, T, S)
            out = torch.bmm(weights, v)
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale, ctx.heads = scale, heads
        return out.unflatten(0, (batch, heads))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        out = gradients[0].flatten(0, 1)  # (B * H, T, E)
        with as_they_are(out):
            dv = torch.bmm(weights.transpose(1, 2), out)
            scores = torch._softmax_backward_data(torch.bmm(out, v.transpose(1, 2)), weights, -1, weights.dtype)
            dq, dk = _scaled(scores, k, ctx.scale), _scaled(scores.transpose(1, 2), q, ctx.scale)
        dq, dk, dv = (x.unflatten(0, (-1, ctx.heads)) for x in (dq, dk, dv))
        return dq, dk, dv, None, None


def _scores(q: Tensor, k: Tensor, allowed: Tensor | None, scale: float, heads: int) -> Tensor:
    """q kᵀ · scale, minus infinity where not allowed: (B * H, T, S)."""
    k = k.transpose(1, 2)
    if allowed is None:
        return _scaled(q, k, scale)
    if allowed.dim() == 2:  # the same for all: added by the product itself
        return torch.baddbmm(q.new_zeros(allowed.shape).masked_fill_(~allowed, -math.inf), q, k, alpha=scale)
    scores = _scaled(q, k, scale)
    scores.unflatten(0, (-1, heads)).masked_fill_(~allowed, -math.inf)
    return scores


def _scaled(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(1, 1, 1), a, b, beta=0, alpha=scale)


SHORT = 128 * 128  # on a CPU, up to this many scores a head, products beat the fused kernel (11.6 to 8.1 ms at 64 x 64)


def attention_weights(
    q: Tensor, k: Tensor, *, mask: Mask | Tensor | None = None, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """softmax(q kᵀ · scale + bias) over the keys each query may see; a query that may see nothing gets zeros."""
    return masked_softmax(attention_scores(q, k, bias=bias, scale=scale), as_mask(mask)).to(q.dtype)


def attention_scores(q: Tensor, k: Tensor, *, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """q kᵀ · scale + bias: (B, H, T, S), never in less than float32, which a softmax needs."""
    q, k = widened(q, k)
    with as_they_are(q):
        scores = q @ for_each_head(k, q.size(1)).transpose(-2, -1) * _scale(q, scale)  # (B, H, T, S)
    return scores if bias is None else scores + bias


def masked_softmax(scores: Tensor, mask: Mask | None) -> Tensor:
    """The softmax of each row of scores (B, H, T, S) over what its query may see; zeros where that is nothing."""
    if mask is None:
        return scores.softmax(dim=-1)
    allowed = mask.dense(scores.size(-2), scores.size(-1), scores.device)
    weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
    if mask.always_somewhere:
        return weights
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
    """Compute what `attend` does, written to be read: (B, H, T, E)."""
    weights = attention_weights(q, k, mask=mask, bias=bias, scale=scale).to(v.dtype)  # (B, H, T, S)
    return drop(weights, dropout) @ for_each_head(v, q.size(1))


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
    """Attention through torch's fused kernel, or plain products where those are faster: (B, H, T, E).

    Dropout on the weights needs the weights, so it takes the reference.
    """
    _check_shapes(q, k, v)
    bias = bias[None] if bias is not None and bias.dim() == 1 else bias  # torch's kernel wants two dimensions
    if dropout:
        return attend_reference(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
    mask = as_mask(mask)
    k, v = for_each_head(k, q.size(1)), for_each_head(v, q.size(1))
    plain = _products_are_better(q, k)
    causal = isinstance(mask, Causal) and mask.offset == 0 and q.size(-2) == k.size(-2) and bias is None
    if causal and not plain:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    allowed = None if mask is None else mask.dense(q.size(-2), k.size(-2), q.device)
    kernel = _products if plain else _fused
    if mask is None or allowed is None or mask.always_somewhere:
        return kernel(q, k, v, allowed, bias, _scale(q, scale))
    nowhere = ~allowed.any(dim=-1, keepdim=True)  # an empty row would be NaN: let it see everything, then make it zeros
    return kernel(q, k, v, allowed | nowhere, bias, _scale(q, scale)).masked_fill(nowhere, 0.0)


def _products_are_better(q: Tensor, k: Tensor) -> bool:
    """On a CPU, for short sequences; also for under 8 keys, where torch's kernel turns a NaN query into zeros."""
    return q.device.type == "cpu" and (q.size(-2) * k.size(-2) <= SHORT or k.size(-2) < 8)


def _products(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, bias: Tensor | None, scale: float) -> Tensor:
    if bias is None and q.shape[:2] == k.shape[:2] and not torch.compiler.is_compiling():
        return attend_short(q, k, v, allowed, scale)
    dtype, (q, k, v) = v.dtype, widened(q, k, v)
    with as_they_are(q):
        scores = (q * scale) @ k.transpose(-2, -1)  # (B, H, T, S)
        if bias is not None:
            scores = scores + bias
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -math.inf)
        return (scores.softmax(dim=-1) @ v).to(dtype)


def _fused(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, bias: Tensor | None, scale: float) -> Tensor:
    if bias is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)
    if allowed is not None:
        bias = bias.masked_fill(~allowed, -math.inf)
    return scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def _scale(q: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.size(-1)) if scale is None else scale


def for_each_head(x: Tensor, heads: int) -> Tensor:
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
