"""Sequences whose rows are made as they are asked for: one by one, or many at once where that reads less."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np

T = TypeVar("T")
TOGETHER = 5000  # rows taken at once by who goes through all of them


class RowByRow(Sequence[T], ABC):
    """A sequence that makes each row alone."""

    @abstractmethod
    def row(self, number: int) -> T:
        """Make one row."""

    @overload
    def __getitem__(self, row: int) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> list[T]: ...
    def __getitem__(self, row: int | slice) -> T | list[T]:
        if isinstance(row, slice):
            return [self.row(each) for each in range(*row.indices(len(self)))]
        return self.row(row)


class TakenTogether(Sequence[T], ABC):
    """A sequence that makes many rows at once faster than each alone."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> list[T]:
        """Make some rows, in the order in which they are named."""

    @overload
    def __getitem__(self, row: int) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> list[T]: ...
    def __getitem__(self, row: int | slice) -> T | list[T]:
        rows = range(len(self))[row]
        return self.take(np.array([rows]))[0] if isinstance(rows, int) else self.take(np.array(rows, dtype=np.int64))

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), TOGETHER):
            yield from self[start : start + TOGETHER]
