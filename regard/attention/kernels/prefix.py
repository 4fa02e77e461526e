"""Causal attention by features: each query sees the keys up to its own place (Katharopoulos et al. 2020, eq. 9 to 12).

    out_t = φ(q_t) S_t / φ(q_t) z_t,   S_t = S_{t-1} + φ(k_t) v_tᵀ,   z_t = z_{t-1} + φ(k_t)

Chunk by chunk: of the chunks before a query sees S, of its own chunk the masked products φ(q)·φ(k). Units are those of
`sums.py`; but c knows of all keys of a chunk, also of those that a query must not see. A chunk in which these make a
denominator vanish is cut in two, and again: a chunk of one holds no such keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.kernels.features import Features
from regard.attention.kernels.sums import (
    FLOOR,
    Joined,
    Past,
    divide,
    divide_back,
    join,
    key_logs,
    raise_queries,
    spans,
    with_ones,
)

CHUNK = 128  # positions at once; twice as many make twice the products inside a chunk


class Seen(NamedTuple):
    """What the queries of one chunk see of it and of its past."""

    start: int
    q: Tensor  # (N, C, M): their features
    joined: Joined
    out: Tensor  # (N, C, E + 1), not divided yet


def attend_before(q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None = None) -> Tensor:
    """Each query sees the keys up to its own place that are not `hidden` (N, T, 1): (N, T, E) each -> (N, T, E)."""
    return _Before.apply(q, k, v, features, hidden)


def go_on(q: Tensor, k: Tensor, v: Tensor, features: Features, past: Past) -> tuple[Tensor, Past]:
    """What the next positions (N, T, E) see of the past and of each other, and the past after them."""
    chunks = _chunks(q, k, with_ones(v), features, None, past)
    return torch.cat([divide(each.out)[0] for each in chunks], dim=1), chunks[-1].joined.after


def _chunks(q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None, past: Past) -> list[Seen]:
    ahead, chunks = spans(k.size(1), CHUNK)[::-1], []
    while ahead:
        start, end = ahead.pop()
        log_k = key_logs(k, features, hidden, start, end)
        seen = _see(start, features.logs(q[:, start:end]), log_k, v[:, start:end], past)
        if end - start > 1 and _lost(seen):
            middle = (start + end) // 2
            ahead += [(middle, end), (start, middle)]
        else:
            chunks.append(seen)
            past = seen.joined.after
    return chunks


def _see(start: int, log_q: Tensor, log_k: Tensor, v: Tensor, past: Past) -> Seen:
    joined = join(log_k, v, past)
    q = raise_queries(log_q, joined.after.top)
    weights = torch.bmm(q, joined.k.mT).tril_()  # (N, C, C)
    return Seen(start, q, joined, torch.bmm(q, joined.before).baddbmm_(weights, v))


def _lost(seen: Seen) -> bool:
    """Whether a query that sees keys has a denominator too small to be exact."""
    vanishing = seen.out[..., -1].amin(dim=1) < torch.finfo(seen.out.dtype).tiny ** 0.5  # (N,)
    return bool((vanishing & (seen.joined.after.top.amax(dim=(1, 2)) > FLOOR)).any())


class _Before(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None) -> Tensor:
        past, v = Past.empty(len(k), features.count(k.size(-1)), v.size(-1), v), with_ones(v)
        chunks = _chunks(q, k, v, features, hidden, past)
        out, whole = divide(torch.cat([each.out for each in chunks], dim=1))
        ctx.features, ctx.starts = features, [each.start for each in chunks]
        kept = [part for each in chunks for part in (each.q, *each.joined[:3])]
        ctx.save_for_backward(q, k, v, out, whole, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_q, x_k, v, out, whole, *kept = ctx.saved_tensors
        d_q, d_k, d_v = torch.empty_like(x_q), torch.empty_like(x_k), v.new_empty(*v.shape[:-1], v.size(-1) - 1)
        with torch.autocast(v.device.type, enabled=False):
            d_seen = divide_back(gradients[0], out, whole)  # (N, T, E + 1)
            d_sums = torch.zeros_like(kept[3])
            for number, start in reversed(list(enumerate(ctx.starts))):
                q, k, shrunk, before = kept[4 * number : 4 * number + 4]
                here = slice(start, start + q.size(1))
                d_here, v_here = d_seen[:, here], v[:, here]
                weights, d_weights = torch.bmm(q, k.mT).tril_(), torch.bmm(d_here, v_here.mT).tril_()  # (N, C, C)
                d_logs = torch.bmm(d_here, before.mT).baddbmm_(d_weights, k).mul_(q)
                d_q[:, here] = ctx.features.back(x_q[:, here], d_logs)
                d_logs = torch.bmm(v_here, d_sums.mT).baddbmm_(d_weights.mT, q).mul_(k)
                d_k[:, here] = ctx.features.back(x_k[:, here], d_logs)
                d_v[:, here] = torch.bmm(k, d_sums).baddbmm_(weights.mT, d_here)[..., :-1]
                d_sums = d_sums.baddbmm_(q.mT, d_here).mul_(shrunk)
        return d_q, d_k, d_v, None, None
