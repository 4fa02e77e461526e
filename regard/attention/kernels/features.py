"""Attention in linear time by features φ: a key weighs φ(q)·φ(k) over the sum of weights; whole, and causal by prefix sums."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Features(Protocol):
    """A positive feature map, and its gradient."""

    def count(self, width: int) -> int:
        """M, for vectors of this width."""
        ...

    def logs(self, x: Tensor) -> Tensor:
        """ln φ of vectors (.., E): (.., M)."""
        ...

    def back(self, x: Tensor, d_logs: Tensor) -> Tensor:
        """The gradient of x, given that of `logs(x)`."""
        ...


class Elu:
    """ln (elu(x) + 1): x itself below zero, ln (1 + x) above."""

    def count(self, width: int) -> int:
        return width

    def logs(self, x: Tensor) -> Tensor:
        return x.clamp(max=0) + x.clamp(min=0).log1p()

    def back(self, x: Tensor, d_logs: Tensor) -> Tensor:
        return d_logs / (x.clamp(min=0) + 1)


class Exponentials:
    """ln φ(x) = w·x / E^¼ - |x|² / 2√E - ln √M, for directions w (M, E)."""

    def __init__(self, directions: Tensor) -> None:
        count, width = directions.shape
        ones, constants = directions.new_ones(count, 1), directions.new_full((count, 1), -math.log(count) / 2)
        self.scale = 1 / math.sqrt(width)
        self.matrix = torch.cat([directions / width**0.25, ones, constants], dim=1)  # (M, E + 2)

    def count(self, width: int) -> int:
        return len(self.matrix)

    def logs(self, x: Tensor) -> Tensor:
        squares = (x * x).sum(dim=-1, keepdim=True) * (-self.scale / 2)
        return torch.cat([x, squares, torch.ones_like(squares)], dim=-1) @ self.matrix.T

    def back(self, x: Tensor, d_logs: Tensor) -> Tensor:
        d = d_logs @ self.matrix[:, :-1]  # (.., E + 1)
        return torch.addcmul(d[..., :-1], x, d[..., -1:], value=-self.scale)


def directions(count: int, width: int, *key: int, orthogonal: bool = True) -> Tensor:
    """`count` Gaussian directions of a head's width, a function of `key` alone: (M, E), in float64.

    Orthogonal ones (section 3.3 of the paper) stand at right angles to the others of their block of E, each as long as an
    independent Gaussian vector: each alone is still Gaussian, so nothing is biased, and together they err less.
    """
    generator = np.random.default_rng(key)
    drawn = generator.standard_normal((count, width))
    if not orthogonal:
        return torch.from_numpy(drawn)
    lengths = np.linalg.norm(drawn, axis=1, keepdims=True)
    blocks = [_rotation(generator, width) for _ in range(-(-count // width))]
    return torch.from_numpy(np.concatenate(blocks)[:count] * lengths)


def _rotation(generator: np.random.Generator, width: int) -> np.ndarray:
    """A random orthogonal matrix, uniform: QR alone is not, until the signs of R's diagonal are made positive."""
    q, r = np.linalg.qr(generator.standard_normal((width, width)))
    return q * np.sign(np.diagonal(r))


def usual_count(width: int) -> int:
    """Return a number of features of order E ln E (theorem 4 of the paper), a multiple of 8."""
    return max(8, round(width * math.log(width) / 8) * 8)


CAUSAL_CHUNK = 128  # positions at once; twice as many make twice the products inside a chunk


class FeatureView(NamedTuple):
    """The outputs of one chunk of queries, which see the chunk and its past."""

    start: int
    q: Tensor  # (N, C, M): their features
    joined: Joined
    out: Tensor  # (N, C, E + 1), not divided yet


def attend_before(q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None = None) -> Tensor:
    """Each query sees the keys up to its own place that are not `hidden` (N, T, 1): (N, T, E) each -> (N, T, E)."""
    return _Before.apply(q, k, v, features, hidden)


def go_on(q: Tensor, k: Tensor, v: Tensor, features: Features, past: FeatureSums) -> tuple[Tensor, FeatureSums]:
    """Attend from the next positions (N, T, E) to the past and to each other; return also the past after them."""
    chunks = _chunks(q, k, with_ones(v), features, None, past)
    return torch.cat([divide(each.out)[0] for each in chunks], dim=1), chunks[-1].joined.after


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None, past: FeatureSums
) -> list[FeatureView]:
    ahead, chunks = spans(k.size(1), CAUSAL_CHUNK)[::-1], []
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


def _see(start: int, log_q: Tensor, log_k: Tensor, v: Tensor, past: FeatureSums) -> FeatureView:
    joined = join(log_k, v, past)
    q = raise_queries(log_q, joined.after.top)
    weights = torch.bmm(q, joined.k.mT).tril_()  # (N, C, C)
    return FeatureView(start, q, joined, torch.bmm(q, joined.before).baddbmm_(weights, v))


def _lost(seen: FeatureView) -> bool:
    """Whether a query that sees keys has a denominator too small to be exact."""
    vanishing = seen.out[..., -1].amin(dim=1) < torch.finfo(seen.out.dtype).tiny ** 0.5  # (N,)
    return bool((vanishing & (seen.joined.after.top.amax(dim=(1, 2)) > FLOOR)).any())


class _Before(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None) -> Tensor:
        past, v = FeatureSums.empty(len(k), features.count(k.size(-1)), v.size(-1), v), with_ones(v)
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


CHUNK = 512  # positions at once: what they need stays in a CPU's cache, and few calls are made
FLOOR = -1e30  # c before any key: its exponential is zero, and the difference of two is no NaN


class FeatureSums(NamedTuple):
    """All that queries need of the keys and values that were read."""

    top: Tensor  # (N, 1, M): c
    sums: Tensor  # (N, M, E + 1): S and z, in units of exp c

    @classmethod
    def empty(cls, rows: int, features: int, width: int, like: Tensor) -> FeatureSums:
        return cls(like.new_full((rows, 1, features), FLOOR), like.new_zeros(rows, features, width + 1))


class Joined(NamedTuple):
    """Keys and values that joined a past."""

    k: Tensor  # (N, C, M): their features, in units of the new c
    shrunk: Tensor  # (N, M, 1): from the old unit to the new one
    before: Tensor  # (N, M, E + 1): the sums without them, in the new unit
    after: FeatureSums


def attend_all(q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None = None) -> Tensor:
    """Every query sees every key that is not `hidden` (N, S, 1). q (N, T, E), k and v (N, S, E) -> (N, T, E)."""
    return _All.apply(q, k, v, features, hidden)


class _All(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, features: Features, hidden: Tensor | None) -> Tensor:
        past, joined = FeatureSums.empty(len(k), features.count(k.size(-1)), v.size(-1), v), []
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


def join(log_k: Tensor, v: Tensor, past: FeatureSums) -> Joined:
    """Keys, by the logarithms of their features (N, C, M), and values (N, C, E + 1) join the past; `log_k` is consumed."""
    top = torch.maximum(past.top, log_k.amax(dim=1, keepdim=True))
    shrunk = (past.top - top).exp_().mT
    k, before = log_k.sub_(top).exp_(), past.sums * shrunk
    return Joined(k, shrunk, before, FeatureSums(top, torch.baddbmm(before, k.mT, v)))


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
