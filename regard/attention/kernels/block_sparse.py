"""Which pairs a sparse attention computes: parts, the spans of queries that they are computed in, and their layout.

A part is a regular set of pairs, such as a band, and knows three products over them; a span is some queries of one row
with all their parts; a layout makes spans of a row. `block_sparse.attend_parts` computes attention from these alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

NEVER = -1e30  # the score of a pair that is closed; finite, so that a query that sees nothing is no NaN
SCORES = 1 << 19  # of a span, 2 MB: smaller spans are slowed by their number, larger ones by memory


@dataclass(frozen=True)
class Span:
    """Queries first .. last - 1 of a row, and the parts that hold their pairs.

    The row has `places` positions, of which `length` are real; `margin` empty ones stand before its first key.
    """

    first: int
    last: int
    parts: tuple[PatternPart, ...]
    places: int
    length: int
    margin: int

    @property
    def queries(self) -> slice:
        return slice(self.first, self.last)

    @property
    def keys(self) -> slice:
        """Where the row's positions stand on the keys' side."""
        return slice(self.margin, self.margin + self.places)

    def products(self, x: Tensor, y: Tensor, *, closed: bool = False) -> Tensor:
        """x · y of all pairs, or their scores: (M, K)."""
        pieces = [part.products(x, y, self) for part in self.parts]
        if closed:
            for part, piece in zip(self.parts, pieces, strict=True):
                part.close(piece, self)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def mix(self, weights: Tensor, y: Tensor) -> Tensor:
        """The sum of each query's y, weighted by (M, K): (M, E)."""
        out, *more = (part.mix(piece, y, self) for part, piece in self._split(weights))
        for piece in more:
            out += piece
        return out

    def spread(self, weights: Tensor, x: Tensor, d: Tensor) -> None:
        """Each query's x, weighted by (M, K), is added to its keys' d."""
        for part, piece in self._split(weights):
            part.spread(piece, x, d, self)

    def _split(self, weights: Tensor) -> Iterator[tuple[PatternPart, Tensor]]:
        widths = [part.width(self) for part in self.parts]
        return zip(self.parts, weights.split(widths, dim=1), strict=True)


class PatternPart(ABC):
    """A regular set of pairs: each query of a span has K keys. x are vectors of the span's M queries, (M, E).

    y and d are the keys' side of the whole row, with what is empty before and behind: (.., E).
    """

    @abstractmethod
    def width(self, span: Span) -> int:
        """K."""

    @abstractmethod
    def products(self, x: Tensor, y: Tensor, span: Span) -> Tensor:
        """x · y of each pair: (M, K), in memory of its own."""

    @abstractmethod
    def close(self, scores: Tensor, span: Span) -> None:
        """Add `NEVER` to the scores (M, K) of pairs that may not be seen."""

    @abstractmethod
    def mix(self, weights: Tensor, y: Tensor, span: Span) -> Tensor:
        """The sum of each query's y, weighted by (M, K): (M, E)."""

    @abstractmethod
    def spread(self, weights: Tensor, x: Tensor, d: Tensor, span: Span) -> None:
        """`mix` transposed: each query's x, weighted, is added to its keys' d."""


@dataclass(frozen=True)
class Layout:
    """The parts of one attention, and how sequences are laid out for them."""

    parts: tuple[PatternPart, ...]
    block: int  # spans are whole blocks
    before: int = 0  # empty positions before the first key
    behind: int = 0  # and behind the last
    everything: tuple[PatternPart, ...] = ()  # what the first `whole` queries have instead
    whole: int = 0

    def filled(self, places: int) -> int:
        """So many positions, filled up to whole blocks."""
        return self.whole + max(0, -(-(places - self.whole) // self.block)) * self.block

    def pairs(self, places: int) -> int:
        """How many are computed for so many positions."""
        return sum((span.last - span.first) * _width(span) for span in self.spans(places, places))

    def spans(self, places: int, length: int) -> Iterator[Span]:
        """The spans of a row of so many positions."""
        places = self.filled(places)
        for start, end, parts, block in (
            (0, self.whole, self.everything, 1),
            (self.whole, places, self.parts, self.block),
        ):
            all_of_it = Span(start, end, parts, places, length, self.before)
            step = max(1, SCORES // max(1, _width(all_of_it) * block)) * block
            for first in range(start, end, step):
                yield Span(first, min(first + step, end), parts, places, length, self.before)


def _width(span: Span) -> int:
    return sum(part.width(span) for part in span.parts)


def never(closed: Tensor, like: Tensor) -> Tensor:
    """Return a bias for scores of the type of `like`: `NEVER` where `closed`, zero elsewhere."""
    return torch.zeros(closed.shape, dtype=like.dtype, device=like.device).masked_fill_(closed, NEVER)


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
