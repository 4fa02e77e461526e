"""Attention by features, in linear time: the weight of key s for query t is φ(q_t)·φ(k_s), over the sum of its weights.

    out_t = φ(q_t) S / φ(q_t) z,   S = Σ_s φ(k_s) v_sᵀ,   z = Σ_s φ(k_s)      (Katharopoulos et al. 2020, eq. 5)

Values get a column of ones, so that z is the last column of S. Here the sums go over all keys; in `prefix.py` over those
that came before.

Features come as logarithms, for exponentials overflow and vanish. With c_j the greatest logarithm of feature j among the
keys, φ_j(k) is divided by exp c_j and φ_j(q) multiplied by it; then each query is divided by its greatest feature. All of
that cancels, and nothing is lost however large the logarithms are: some feature of a query is 1, some key has 1 there,
so the denominator is at least 1. c is the greatest so far; when it grows, what was summed in the old unit shrinks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.kernels.features import Features

CHUNK = 512  # positions at once: what they need stays in a CPU's cache, and few calls are made
FLOOR = -1e30  # c before any key: its exponential is zero, and the difference of two is no NaN


class Past(NamedTuple):
    """All that queries need of the keys and values that were read."""

    top: Tensor  # (N, 1, M): c
    sums: Tensor  # (N, M, E + 1): S and z, in units of exp c

    @classmethod
    def empty(cls, rows: int, features: int, width: int, like: Tensor) -> Past:
        return cls(like.new_full((rows, 1, features), FLOOR), like.new_zeros(rows, features, width + 1))


class Joined(NamedTuple):
    """Keys and values that joined a past."""

    k: Tensor  # (N, C, M): their features, in units of the new c
    shrunk: Tensor  # (N, M, 1): from the old unit to the new one
    before: Tensor  # (N, M, E + 1): the sums without them, in the new unit
    after: Past


def attend_all(q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None = None) -> Tensor:
    """Every query sees every key that is not `hidden` (N, S, 1). q (N, T, E), k and v (N, S, E) -> (N, T, E)."""
    return _All.apply(q, k, v, features, hidden)


class _All(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None) -> Tensor:
        past, joined = Past.empty(len(k), features.count(k.size(-1)), v.size(-1), v), []
        v = with_ones(v)
        for start, end in spans(k.size(1)):
            joined.append(join(key_logs(k, features, hidden, start, end), v[:, start:end], past))
            past = joined[-1].after
        queries = [raise_queries(features.logs(q[:, start:end]), past.top) for start, end in spans(q.size(1))]
        out, whole = divide(torch.cat([torch.bmm(each, past.sums) for each in queries], dim=1))
        keys, shrunk = [each.k for each in joined], [each.shrunk for each in joined]
        ctx.features, ctx.counts = features, (len(queries), len(keys))
        ctx.save_for_backward(q, k, v, past.sums, out, whole, *queries, *keys, *shrunk)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_q, x_k, v, sums, out, whole, *kept = ctx.saved_tensors
        queries, keys = ctx.counts
        d_q, d_k, d_v = torch.empty_like(x_q), torch.empty_like(x_k), v.new_empty(*v.shape[:-1], v.size(-1) - 1)
        with torch.autocast(v.device.type, enabled=False):
            d_seen = divide_back(gradients[0], out, whole)  # (N, T, E + 1)
            d_sums = torch.zeros_like(sums)
            for (start, end), q in zip(spans(x_q.size(1)), kept[:queries], strict=True):
                d_here = d_seen[:, start:end]
                d_q[:, start:end] = ctx.features.back(x_q[:, start:end], torch.bmm(d_here, sums.mT).mul_(q))
                d_sums.baddbmm_(q.mT, d_here)
            joined = zip(spans(x_k.size(1)), kept[queries : queries + keys], kept[queries + keys :], strict=True)
            for (start, end), k, shrunk in reversed(list(joined)):
                d_logs = torch.bmm(v[:, start:end], d_sums.mT).mul_(k)
                d_k[:, start:end] = ctx.features.back(x_k[:, start:end], d_logs)
                d_v[:, start:end] = torch.bmm(k, d_sums)[..., :-1]
                d_sums.mul_(shrunk)
        return d_q, d_k, d_v, None, None


def spans(length: int, chunk: int = CHUNK) -> list[tuple[int, int]]:
    """Where each chunk starts and ends."""
    return [(start, min(start + chunk, length)) for start in range(0, length, chunk)]


def with_ones(v: Tensor) -> Tensor:
    return torch.cat([v, v.new_ones(*v.shape[:-1], 1)], dim=-1)  # (N, S, E + 1)


def key_logs(k: Tensor, features: Features, hidden: Tensor | None, start: int, end: int) -> Tensor:
    logs = features.logs(k[:, start:end])
    return logs if hidden is None else logs.masked_fill_(hidden[:, start:end], -math.inf)


def join(log_k: Tensor, v: Tensor, past: Past) -> Joined:
    """Keys, by the logarithms of their features (N, C, M), and values (N, C, E + 1) join the past; `log_k` is consumed."""
    top = torch.maximum(past.top, log_k.amax(dim=1, keepdim=True))
    shrunk = (past.top - top).exp_().mT
    k, before = log_k.sub_(top).exp_(), past.sums * shrunk
    return Joined(k, shrunk, before, Past(top, torch.baddbmm(before, k.mT, v)))


def raise_queries(logs: Tensor, top: Tensor) -> Tensor:
    raised = logs.add_(top)
    return raised.sub_(raised.amax(dim=-1, keepdim=True)).exp_()  # (N, C, M); the greatest feature of each is 1


def divide(seen: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted values over the sum of weights, and that sum; where nothing was seen, zeros and ones."""
    whole = seen[..., -1:]
    whole = whole.masked_fill(whole == 0, 1.0)
    return seen[..., :-1] / whole, whole


def divide_back(gradient: Tensor, out: Tensor, whole: Tensor) -> Tensor:
    """The gradient of what was divided: (N, T, E + 1)."""
    return torch.cat([gradient, -(gradient * out).sum(dim=-1, keepdim=True)], dim=-1) / whole
