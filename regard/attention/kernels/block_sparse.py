"""Attention over a sparse set of pairs, by parts: each part is a regular set of pairs that large products can compute.

    S_p = Q K_pᵀ on the pairs of part p,   P = softmax([S_1 .. S_n]),   O = Σ_p P_p V_p
    dP_p = dO V_pᵀ,   dS = P ∘ (dP − rowsum(P ∘ dP)),   dQ = Σ_p dS_p K_p,   dK = Σ_p dS_pᵀ Q,   dV = Σ_p P_pᵀ dO

The parts of one attention have no pair in common, so one softmax over all of them counts each pair once. The gradient
is written out: each of its products is one of the three that a part gives. Rows are computed in spans of queries whose
scores stay in the processor's cache; what is kept for the gradient is P, on the pairs only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.kernels.layout import NEVER, Layout, Span


def attend_parts(q: Tensor, k: Tensor, v: Tensor, layout: Layout, lengths: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √E) v over the pairs of a layout; q, k and v are (B, H, T, E). Never in less than float32."""
    exact = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        out: Tensor = _Parts.apply(q.to(exact), k.to(exact), v.to(exact), layout, lengths)
    return out.to(v.dtype)


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: Layout, lengths: Tensor | None) -> Tensor:
        ctx.shape, ctx.layout = q.shape, layout
        ctx.lengths = [q.size(2)] * len(q) if lengths is None else lengths.tolist()
        k, v = (_laid_out(x, layout, layout.before, layout.behind) for x in (k, v))
        q = _laid_out(q, layout).div_(math.sqrt(q.size(-1)))
        out, kept = torch.empty_like(q), []
        for row, span in _spans(ctx):
            here = row, span.queries
            weights = _weights(span.products(q[here], k[row], closed=True), lengths is not None)  # (M, K)
            out[here] = span.mix(weights, v[row])
            if any(ctx.needs_input_grad):
                kept.append(weights)
        ctx.save_for_backward(q, k, v, *kept)
        return _given_back(out, ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        before, out = ctx.layout.before, _laid_out(gradients[0], ctx.layout)
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for (row, span), weights in zip(_spans(ctx), kept, strict=True):
            here = row, span.queries
            products = span.products(out[here], v[row])
            scores = torch._softmax_backward_data(products, weights, -1, weights.dtype)  # (M, K)
            dq[here] = span.mix(scores, k[row])
            span.spread(scores, q[here], dk[row])
            span.spread(weights, out[here], dv[row])
        dq /= math.sqrt(q.size(-1))
        dq, dk, dv = (_given_back(x, ctx.shape, start) for x, start in ((dq, 0), (dk, before), (dv, before)))
        return dq, dk, dv, None, None


def _spans(ctx: Any) -> Iterator[tuple[int, Span]]:
    """Row after row of B * H, span after span."""
    batch, heads, places, _ = ctx.shape
    for row in range(batch * heads):
        for span in ctx.layout.spans(places, ctx.lengths[row // heads]):
            yield row, span


def _laid_out(x: Tensor, layout: Layout, before: int = 0, behind: int = 0) -> Tensor:
    """(B, H, T, E) -> (B * H, positions, E), filled up to whole blocks, with empty positions before and behind."""
    batch, heads, places, width = x.shape
    laid = x.new_zeros(batch, heads, before + layout.filled(places) + behind, width)
    laid[:, :, before : before + places] = x
    return laid.flatten(0, 1)


def _given_back(x: Tensor, shape: torch.Size, start: int = 0) -> Tensor:
    return x[:, start : start + shape[2]].unflatten(0, shape[:2])  # (B, H, T, E)


def _weights(scores: Tensor, some_end: bool) -> Tensor:
    """The softmax of each query's scores (M, K). Only where rows end early can a query see nothing: it gets zeros."""
    weights = scores.softmax(dim=-1)
    if some_end:
        weights *= scores.amax(dim=-1, keepdim=True) > NEVER / 2  # times, so that a NaN stays visible
    return weights
