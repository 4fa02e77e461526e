"""Attention of short sequences as plain matrix products: on a CPU faster than torch's fused kernel, there and back.

    P = softmax(s Q Kᵀ),   O = P V
    dV = Pᵀ dO,   dS = P ∘ (dO Vᵀ − rowsum(P ∘ dO Vᵀ)),   dQ = s dS K,   dK = s dSᵀ Q

The gradient is written out so that masks and scale cost no pass over memory of their own. It keeps P, which is why long
sequences take the fused kernel. Scores are never rounded to less than float32 before the softmax: bfloat16 has no number
between 32 and 32.25, which is a quarter of a weight.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
