"""Parts of sparse patterns: what is near, what comes first, blocks by name, and far keys at regular distances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.attention.kernels.block_sparse import NEVER, PatternPart, Span, never


class Near(PatternPart):
    """Blocks of queries, each with the keys around it: `left` before its block, the block itself, `right` behind.

    `band` (block, K) is True where a pair may be seen (None: all). Keys before `first` belong to another part.
    """

    def __init__(self, block: int, left: int, right: int, band: Tensor | None = None, first: int = 0) -> None:
        self.block, self.left, self.right, self.first = block, left, right, first
        self.keys = left + block + right  # K
        self.closed = None if band is None else torch.zeros(band.shape, device=band.device).masked_fill_(~band, NEVER)

    def width(self, span: Span) -> int:
        return self.keys

    def products(self, x: Tensor, y: Tensor, span: Span) -> Tensor:
        return torch.bmm(x.unflatten(0, (-1, self.block)), self._around(y, span)).flatten(0, 1)

    def close(self, scores: Tensor, span: Span) -> None:
        blocks = scores.unflatten(0, (-1, self.block))  # (m, block, K)
        if self.closed is not None:
            blocks += self.closed
        if span.first - self.left < self.first or span.last + self.right > span.length:
            start = torch.arange(span.first - self.left, span.last - self.left, self.block, device=scores.device)
            places = start[:, None] + torch.arange(self.keys, device=scores.device)  # (m, K)
            blocks += never((places < self.first) | (places >= span.length), scores)[:, None]

    def mix(self, weights: Tensor, y: Tensor, span: Span) -> Tensor:
        return torch.bmm(weights.unflatten(0, (-1, self.block)), self._around(y, span).transpose(1, 2)).flatten(0, 1)

    def spread(self, weights: Tensor, x: Tensor, d: Tensor, span: Span) -> None:
        blocks = weights.unflatten(0, (-1, self.block)).transpose(1, 2)  # (m, K, block)
        found = torch.bmm(blocks, x.unflatten(0, (-1, self.block)))  # (m, K, E): a key is near several blocks
        for at in range(0, self.keys, self.block):
            piece = found[:, at : at + self.block]
            self._around(d, span, at, piece.size(1)).transpose(1, 2).add_(piece)

    def _around(self, y: Tensor, span: Span, at: int = 0, width: int = 0) -> Tensor:
        """The keys near each block, from the `at`-th on, as a view: (m, E, width)."""
        start = span.margin + span.first - self.left + at
        end = start + span.last - span.first - self.block + (width or self.keys)
        return y[start:end].unfold(0, width or self.keys, self.block)


class First(PatternPart):
    """Every query, with the first `count` keys (0: with all)."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def width(self, span: Span) -> int:
        return self.count or span.places

    def products(self, x: Tensor, y: Tensor, span: Span) -> Tensor:
        return x @ self._keys(y, span).T

    def close(self, scores: Tensor, span: Span) -> None:
        scores[:, span.length :] += NEVER

    def mix(self, weights: Tensor, y: Tensor, span: Span) -> Tensor:
        return weights @ self._keys(y, span)

    def spread(self, weights: Tensor, x: Tensor, d: Tensor, span: Span) -> None:
        self._keys(d, span).addmm_(weights.T, x)

    def _keys(self, y: Tensor, span: Span) -> Tensor:
        return y[span.keys][: self.width(span)]


class Drawn(PatternPart):
    """Blocks of queries, each with the blocks of keys that `table(length)` (blocks, count) names; -1 is none."""

    def __init__(self, block: int, count: int, table: Callable[[int], Tensor]) -> None:
        self.block, self.count, self.table = block, count, table

    def width(self, span: Span) -> int:
        return self.count * self.block

    def products(self, x: Tensor, y: Tensor, span: Span) -> Tensor:
        return torch.bmm(x.unflatten(0, (-1, self.block)), self._chosen(y, span).transpose(1, 2)).flatten(0, 1)

    def close(self, scores: Tensor, span: Span) -> None:
        names = self._names(span, scores.device)[:, :, None]  # (m, count, 1)
        places = names * self.block + torch.arange(self.block, device=scores.device)
        closed = ((names < 0) | (places >= span.length)).flatten(1)  # (m, K)
        if closed.any():
            scores.unflatten(0, (-1, self.block)).add_(never(closed, scores)[:, None])

    def mix(self, weights: Tensor, y: Tensor, span: Span) -> Tensor:
        return torch.bmm(weights.unflatten(0, (-1, self.block)), self._chosen(y, span)).flatten(0, 1)

    def spread(self, weights: Tensor, x: Tensor, d: Tensor, span: Span) -> None:
        blocks = weights.unflatten(0, (-1, self.block)).transpose(1, 2)  # (m, K, block)
        found = torch.bmm(blocks, x.unflatten(0, (-1, self.block))).view(-1, self.block, x.size(1))
        names = self._names(span, x.device).clamp(min=0).flatten()
        d[span.keys].unflatten(0, (-1, self.block)).index_add_(0, names, found)

    def _names(self, span: Span, device: torch.device) -> Tensor:
        """(m, count); queries behind the length have no blocks."""
        table = self.table(span.length).to(device)
        names = table.new_full(((span.last - span.first) // self.block, self.count), -1)
        known = table[span.first // self.block : span.last // self.block]
        names[: len(known)] = known
        return names

    def _chosen(self, y: Tensor, span: Span) -> Tensor:
        names = self._names(span, y.device).clamp(min=0).flatten()
        chosen = y[span.keys].unflatten(0, (-1, self.block)).index_select(0, names)
        return chosen.view(-1, self.width(span), y.size(1))  # (m, K, E)


class KeyColumns(PatternPart):
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


class Summaries(PatternPart):
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
