"""Parts of sparse patterns: far keys at regular distances. `layout.Part` says what each method gives."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.kernels.layout import Part, Span, never


class Columns(Part):
    """Every query, with the keys at whole strides from it, itself not counted (causal: those before it)."""

    def __init__(self, stride: int, causal: bool) -> None:
        self.stride, self.causal = stride, causal

    def width(self, span: Span) -> int:
        return (span.last if self.causal else span.places) // self.stride

    def products(self, x: Tensor, y: Tensor, span: Span) -> Tensor:
        found = torch.bmm(self._turned(x), self._columns(y, span).transpose(1, 2))  # (stride, M / stride, K)
        return found.transpose(0, 1).flatten(0, 1)

    def close(self, scores: Tensor, span: Span) -> None:
        queries, keys = _steps(span, self.width(span), self.stride, scores.device)
        closed = keys >= queries if self.causal else keys == queries  # (M / stride, K)
        rows = scores.unflatten(0, (-1, self.stride))
        rows += never(closed, scores)[:, None]
        places = keys * self.stride + torch.arange(self.stride, device=scores.device)[:, None]  # (stride, K)
        rows += never(places >= span.length, scores)

    def mix(self, weights: Tensor, y: Tensor, span: Span) -> Tensor:
        found = torch.bmm(self._turned(weights), self._columns(y, span))  # (stride, M / stride, E)
        return found.transpose(0, 1).flatten(0, 1)

    def spread(self, weights: Tensor, x: Tensor, d: Tensor, span: Span) -> None:
        self._columns(d, span).add_(torch.bmm(self._turned(weights).transpose(1, 2), self._turned(x)))

    def _turned(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (-1, self.stride)).transpose(0, 1)  # (stride, M / stride, ..)

    def _columns(self, y: Tensor, span: Span) -> Tensor:
        return self._turned(y[span.keys][: self.width(span) * self.stride])  # (stride, K, E)


class Summaries(Part):
    """Every query, with the last `count` keys of every other block (causal: of every block before its own)."""

    def __init__(self, block: int, count: int, causal: bool) -> None:
        self.block, self.count, self.causal = block, count, causal

    def width(self, span: Span) -> int:
        return (span.last if self.causal else span.places) // self.block * self.count

    def products(self, x: Tensor, y: Tensor, span: Span) -> Tensor:
        return x @ self._ends(y, span).flatten(0, 1).T

    def close(self, scores: Tensor, span: Span) -> None:
        queries, keys = _steps(span, self.width(span) // self.count, self.block, scores.device)
        closed = keys >= queries if self.causal else keys == queries  # (M / block, blocks)
        rows = scores.unflatten(0, (-1, self.block))
        rows += never(closed, scores).repeat_interleave(self.count, dim=1)[:, None]
        places = keys[:, None] * self.block + torch.arange(self.block - self.count, self.block, device=scores.device)
        rows += never(places.flatten() >= span.length, scores)

    def mix(self, weights: Tensor, y: Tensor, span: Span) -> Tensor:
        return weights @ self._ends(y, span).flatten(0, 1)

    def spread(self, weights: Tensor, x: Tensor, d: Tensor, span: Span) -> None:
        self._ends(d, span).add_((weights.T @ x).unflatten(0, (-1, self.count)))

    def _ends(self, y: Tensor, span: Span) -> Tensor:
        blocks = y[span.keys][: self.width(span) // self.count * self.block].unflatten(0, (-1, self.block))
        return blocks[:, self.block - self.count :]  # (blocks, count, E), a view


def _steps(span: Span, keys: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of the blocks of queries and of keys: (M / size, 1), (keys,)."""
    return torch.arange(span.first // size, span.last // size, device=device)[:, None], torch.arange(
        keys, device=device
    )
