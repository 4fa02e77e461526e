"""Hashing that keeps neighbours together (Andoni et al. 2015, as in Kitaev et al. 2020, section 2): vectors that point
alike fall into the same bucket.

    h(x) = argmax([x R; -x R]),   R (E, n / 2) at random, n buckets

Where n is large, two smaller hashes side by side number the buckets, so that a hash costs √n products and not n. Rotations
are a pure function of integers.

Attention within buckets is fast along a `HashLine`, where positions are sorted by bucket: what a position may see lies beside
it, so that tiles of the line and their neighbours are all that is multiplied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

ONE_HASH = 128  # most buckets that one hash numbers
SHORTEST_TILE = 32  # slots of a line; products of fewer rows do not pay


def factors_of(buckets: int) -> tuple[int, ...]:
    """How many buckets each hash has whose numbers, side by side, tell about `buckets` apart. 1: there is no hash."""
    if buckets <= ONE_HASH:
        return (buckets,)
    first = 2 * math.ceil(math.sqrt(buckets) / 2)
    return first, 2 * math.ceil(buckets / first / 2)


@lru_cache(maxsize=64)
def rotations(key: tuple[int, ...], heads: int, width: int, columns: int) -> Tensor:
    """Normal numbers (H, E, columns); equal keys give equal numbers. Not to be written to."""
    numbers = np.random.default_rng(np.random.SeedSequence(key)).standard_normal((heads, width, columns))
    return torch.from_numpy(numbers.astype(np.float32))


@torch.no_grad()
def buckets_of(x: Tensor, key: tuple[int, ...], factors: tuple[int, ...], rounds: int) -> Tensor:
    """In which bucket each vector of x (B, H, T, E) falls, in each round: (R, B, H, T)."""
    if factors == (1,):
        return torch.zeros(rounds, *x.shape[:3], dtype=torch.long, device=x.device)
    halves = [factor // 2 for factor in factors]
    turn = rotations(key, x.size(1), x.size(-1), rounds * sum(halves)).to(x)
    with torch.autocast(x.device.type, enabled=False):
        turned = (x @ turn).unflatten(-1, (rounds, -1)).movedim(3, 0)  # (R, B, H, T, columns)
    found = torch.zeros(turned.shape[:-1], dtype=torch.long, device=x.device)
    for half, part in zip(halves, turned.split(halves, dim=-1), strict=True):
        best = part.abs().argmax(dim=-1, keepdim=True)  # of [x R; -x R], whichever sign it has
        found = found * (2 * half) + (best + half * (part.gather(-1, best) < 0)).squeeze(-1)
    return found


def ranks_of(buckets: Tensor) -> Tensor:
    """How many earlier positions share each position's bucket: (..., T) -> (..., T)."""
    ordered, places = buckets.sort(dim=-1, stable=True)
    slots = torch.arange(ordered.size(-1), device=buckets.device).expand_as(ordered)
    begins = torch.cat([ordered[..., :1] < 0, ordered[..., 1:] != ordered[..., :-1]], dim=-1)
    first = torch.where(begins, slots, 0).cummax(dim=-1).values
    return torch.empty_like(places).scatter_(-1, places, slots - first)


@dataclass(frozen=True)
class HashLine:
    """All M = B · H · T positions in one line: row after row, in a row bucket after bucket, in a bucket in their order."""

    places: Tensor  # (M,) which position stands in each slot
    slots: Tensor  # (M,) in which slot each position stands
    first: Tensor  # (M,) the first slot that each slot sees
    last: Tensor  # (M,) and the last one, which may be itself


def line_of(buckets: Tensor, count: int, chunk: int, causal: bool) -> HashLine:
    """The line of one round. A slot sees those of its bucket that are fewer than `chunk` away; `count` bounds buckets.

    buckets (B, H, T).
    """
    rows = buckets.flatten(0, 1)  # (B * H, T)
    number = torch.arange(len(rows), device=rows.device)[:, None]
    ordered, order = rows.sort(dim=-1, stable=True)
    places = (order + number * rows.size(1)).flatten()
    here = torch.arange(len(places), device=rows.device)
    slots = torch.empty_like(here).scatter_(0, places, here)
    bucket = (ordered + number * count).flatten()
    sizes = torch.bincount(bucket, minlength=len(rows) * count)
    ends = sizes.cumsum(0)
    first = torch.maximum((ends - sizes)[bucket], here - (chunk - 1))
    last = here if causal else torch.minimum(ends[bucket] - 1, here + (chunk - 1))
    return HashLine(places, slots, first, last)


def attend_in_buckets(q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, count: int, chunk: int, causal: bool) -> Tensor:
    """softmax(q kᵀ / √E) v over what each position sees in any round, itself only if that is nothing.

    q, k, v (B, H, T, E), buckets (R, B, H, T) below `count`.
    """
    lines = [line_of(each, count, chunk, causal) for each in buckets]
    return _SortedAttention.apply(q, k, v, lines, max(chunk, SHORTEST_TILE), causal)


class _SortedAttention(torch.autograd.Function):
    """Attention along the lines of all rounds, tile by tile, each tile with its neighbours; the gradient is written out.

    A round gives P = exp(S - max) and its sums; f = exp(max - z) makes it a part of the whole. Backwards, with dO' = f dO:
    dV = Pᵀ dO',  dS = P ∘ (dO' Vᵀ - f (dO · O)),  dQ = dS K / √E,  dK = dSᵀ Q / √E.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, lines: list[HashLine], tile: int, causal: bool) -> Tensor:
        flat = [x.reshape(-1, x.size(-1)) for x in (q, k, v)]  # (M, E)
        tiles = [_Tiles(line, lines[:number], tile, causal) for number, line in enumerate(lines)]
        found = [each.look(*flat) for each in tiles]
        tops, sums = torch.stack([top for _, top, _, _ in found]), torch.stack([total for _, _, total, _ in found])
        shares = (tops - tops.amax(dim=0)).exp_()  # (R, M)
        whole = (shares * sums).sum(dim=0)
        alone = whole == 0
        shares = torch.where(alone, 0.0, shares / whole)
        out = sum(
            (share[:, None] * seen for share, (seen, _, _, _) in zip(shares, found, strict=True)), q.new_zeros(())
        )
        ctx.save_for_backward(*flat, out, shares, alone, *(p for _, _, _, p in found))
        ctx.tiles = tiles
        return torch.where(alone[:, None], flat[2], out).view_as(v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, shares, alone, *weights = ctx.saved_tensors
        given = gradients[0].reshape(out.shape)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), given * alone[:, None]
        inner = (given * out).sum(dim=-1)  # (M,)
        for tiles, share, p in zip(ctx.tiles, shares, weights, strict=True):
            for total, part in zip((dq, dk, dv), tiles.gradients(q, k, v, p, given, inner, share), strict=True):
                total += part
        return *(x.view(gradients[0].shape) for x in (dq, dk, dv)), None, None, None


class _Tiles:
    """One round's line, cut into n tiles of L slots; a tile sees itself, the one before, and if not causal the next."""

    def __init__(self, line: HashLine, earlier: list[HashLine], tile: int, causal: bool) -> None:
        self.line, self.earlier, self.tile, self.causal = line, earlier, tile, causal
        self.count, self.parts = -(-len(line.places) // tile), 2 if causal else 3
        behind = self.count * tile - len(line.places)
        self.queries = pad(line.places, (0, behind))  # (n L,); what is padded sees nothing and is not seen
        self.keys = pad(line.places, (tile, behind + (self.parts - 2) * tile))  # ((n + parts - 1) L,)

    def windows(self, x: Tensor) -> Tensor:
        """View x ((n + parts - 1) L, ...) as each tile sees it, without a copy: (n, parts · L, ...)."""
        inner = tuple(x.stride())
        return x.as_strided((self.count, self.parts * self.tile, *x.shape[1:]), (self.tile * inner[0], *inner))

    def of_queries(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.queries).unflatten(0, (self.count, self.tile))  # (n, L, ...)

    def of_keys(self, x: Tensor) -> Tensor:
        return self.windows(x.index_select(0, self.keys))  # (n, parts · L, ...)

    def look(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return each position's output (M, E), the greatest of its scores, the sum of its weights, and all weights."""
        itself = torch.ones(self.tile, self.parts * self.tile, dtype=torch.bool, device=q.device).triu(self.tile)
        hidden = itself if self.causal else itself & itself.tril(self.tile)
        start = q.new_zeros(hidden.shape).masked_fill_(hidden, -math.inf)
        scores = torch.baddbmm(start, self.of_queries(q), self.of_keys(k).mT, alpha=1 / math.sqrt(q.size(-1)))
        self._hide(scores)
        top = scores.amax(dim=-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min)  # (n, L, 1)
        weights = scores.sub_(top).exp_()
        seen = torch.bmm(weights, self.of_keys(v))
        top, total = (self.back(x.flatten()) for x in (top, weights.sum(dim=-1)))
        return self.back(seen.flatten(0, 1)), top, total, weights

    def _hide(self, scores: Tensor) -> None:
        """Minus infinity where a slot does not look, or an earlier round has looked already."""
        begin = self.tile * torch.arange(-1, self.count - 1, device=scores.device)[:, None, None]  # of each window
        column = torch.arange(scores.size(-1), device=scores.device, dtype=torch.int32)
        first, last = self._bounds(self.line.first, self.line.last)
        scores.masked_fill_(column < (first - begin).int(), -math.inf)
        if not self.causal:
            scores.masked_fill_(column > (last - begin).int(), -math.inf)
        for line in self.earlier:
            slots = self.windows(line.slots[self.keys].int())[:, None]  # (n, 1, parts · L)
            here = line.slots[self.line.places]
            first, last = self._bounds(line.first[here], line.last[here])
            scores.masked_fill_((slots >= first.int()) & (slots <= last.int()), -math.inf)

    def _bounds(self, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        behind = self.count * self.tile - len(first)
        return tuple(  # type: ignore[return-value]
            pad(x, (0, behind), value=value).view(self.count, self.tile, 1)
            for x, value in ((first, 2 * self.count * self.tile), (last, -1))
        )

    def gradients(
        self, q: Tensor, k: Tensor, v: Tensor, weights: Tensor, given: Tensor, inner: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        scale = 1 / math.sqrt(q.size(-1))
        shares = self.of_queries(share)[..., None]  # (n, L, 1)
        given = self.of_queries(given) * shares
        dv = self._gathered(torch.bmm(weights.mT, given))
        scores = torch.bmm(given, self.of_keys(v).mT)
        scores.sub_(self.of_queries(inner)[..., None] * shares).mul_(weights)
        dq = torch.bmm(scores, self.of_keys(k)).mul_(scale)
        dk = self._gathered(torch.bmm(scores.mT, self.of_queries(q))).mul_(scale)
        return self.back(dq.flatten(0, 1)), dk, dv

    def _gathered(self, seen: Tensor) -> Tensor:
        """The sum of what all windows (n, parts · L, E) have for each position: (M, E)."""
        total = seen.new_zeros(self.count + self.parts - 1, self.tile, seen.size(-1))
        for part, piece in enumerate(seen.split(self.tile, dim=1)):
            total[part : part + self.count] += piece
        return self.back(total[1:].flatten(0, 1))

    def back(self, x: Tensor) -> Tensor:
        """From slots (at least M, ...) to positions (M, ...)."""
        return x.index_select(0, self.line.slots)
