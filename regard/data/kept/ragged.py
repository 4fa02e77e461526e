"""Rows of different lengths in one flat array that may be mapped from a file: sequences of ids, and texts.

A row is found by where it starts, 8 bytes each; nothing else is kept in memory, and only what is taken is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, overload

import numpy as np

from regard.data.kept.sequences import TakenTogether
from regard.data.mapped import MappedBytes, release_pages

CHUNK = 1 << 22  # values digested at once
SPARSE = 8  # rows that are read for one that is wanted, at most


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


class Ragged(Sequence[np.ndarray]):
    """Arrays one after the other: `rows[i]` is a view of `flat`."""

    def __init__(self, flat: np.ndarray, lengths: np.ndarray) -> None:
        self.flat, self.lengths = np.asarray(flat), np.asarray(lengths)  # a view of a map, which is sliced much faster

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> Ragged:
        """Rows that are arrays of their own, copied into one."""
        if isinstance(rows, cls):
            return rows
        flat = np.concatenate(rows) if len(rows) else np.empty(0, dtype=np.int32)
        return cls(flat, np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))

    @cached_property
    def starts(self) -> np.ndarray:
        return starts_of(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, row: int | np.integer) -> np.ndarray: ...
    @overload
    def __getitem__(self, row: slice) -> list[np.ndarray]: ...
    def __getitem__(self, row: int | np.integer | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row = int(row) % len(self)
        return self.flat[self.starts[row] : self.starts[row + 1]]

    def keep(self, rows: np.ndarray) -> Ragged:
        """Some of the rows, copied."""
        return Ragged.of([self[row] for row in rows]) if len(rows) else Ragged(self.flat[:0], self.lengths[:0])


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Where each row starts, and at last where the last one ends: (N + 1,)."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def lengths_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """How long each row is: (N,)."""
    if isinstance(rows, Ragged):
        return rows.lengths
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))


class Places:
    """The places of rows in an array of `count`, where those at `without` (sorted) are left out.

    Of these, the ones at `behind` come again as the last rows.
    """

    def __init__(self, count: int, without: np.ndarray | None = None, behind: np.ndarray | None = None) -> None:
        without, behind = (
            np.empty(0, dtype=np.int64) if each is None else np.asarray(each, dtype=np.int64)
            for each in (without, behind)
        )
        self.first, self.behind = count - len(without), behind
        self._before = without - np.arange(len(without))  # how many rows of ours stand before each that is left out

    def __len__(self) -> int:
        return self.first + len(self.behind)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The places of some rows."""
        found = rows + np.searchsorted(self._before, rows, side="right")
        if len(self.behind) and (last := rows >= self.first).any():
            found[last] = self.behind[rows[last] - self.first]
        return found


class TextRows(TakenTogether[tuple[str, ...]]):
    """Rows of texts, such as pairs, in one array of UTF-8, but for those at some places (`Places`).

    Whoever goes through them in order, or takes slices, reads the file once from its beginning to its end.
    """

    def __init__(self, data: np.ndarray, lengths: np.ndarray, without: np.ndarray | None = None) -> None:
        self.data, self.lengths = MappedBytes(data), np.asarray(lengths)  # (N, texts of a row)
        self.places = Places(len(self.lengths), without)

    @cached_property
    def _starts(self) -> np.ndarray:
        return starts_of(self.lengths.sum(axis=1, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: np.ndarray) -> list[tuple[str, ...]]:
        return self.at(self.places.of(rows))

    def at(self, places: np.ndarray) -> list[tuple[str, ...]]:
        """The rows at these places among all, also those left out; those near each other are read at once."""
        if not len(places):
            return []
        first, last = int(places.min()), int(places.max())
        if last - first >= SPARSE * len(places):
            half = len(places) // 2
            return self.at(places[:half]) + self.at(places[half:])
        base = int(self._starts[first])
        data = self.data.read(base, int(self._starts[last + 1]))
        lengths = self.lengths[places].astype(np.int64)  # (n, texts)
        ends = np.cumsum(lengths, axis=1) + (self._starts[places] - base)[:, None]
        rows = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        return [tuple(data[i:j].decode() for i, j in zip(*row, strict=True)) for row in rows]


def as_bytes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts as one array of UTF-8, and how many bytes each has."""
    encoded = [text.encode() for text in texts]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), lengths


def digest_rows(digest: Digest, rows: Sequence[np.ndarray]) -> None:
    """Update a digest with the lengths of rows, then with all that is in them, whatever they are kept in."""
    digest.update(lengths_of(rows).astype(np.int64).tobytes())
    if not isinstance(rows, Ragged):
        digest.update(np.concatenate(rows).tobytes())
        return
    kind = np.int32 if rows.flat.dtype.kind == "u" else rows.flat.dtype  # ids are digested as they are computed with
    for start in range(0, len(rows.flat), CHUNK):
        digest.update(rows.flat[start : start + CHUNK].astype(kind).tobytes())
        release_pages(rows.flat)
