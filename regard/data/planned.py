"""A batch of which only the plan is known, how many rows it has and what is counted in it; rows are made as they are asked for.

Of several processes each makes the rows that it computes. What the losses are divided by comes from lengths alone, so that
no process reads what another one computes. Rows are padded as the whole batch is: they are its rows, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from regard.noise import RowsOf

Made = TypeVar("Made", covariant=True)


@dataclass(frozen=True, eq=False)
class Planned(Generic[Made]):
    """A batch that is not made yet."""

    examples: int
    counts: Mapping[str, int]  # over how many items each part of the loss is summed
    make: Callable[[int, int], Made]  # (first, end) -> these rows

    def part(self, first: int, end: int) -> Made:
        """Rows `first` to `end`, at least one, as `ByRows.part` cuts them out of the whole."""
        return self.make(first, end)

    def whole(self) -> Made:
        return self.make(0, self.examples)

    def place(self, first: int, end: int) -> RowsOf:
        """Where the noise of these rows is in that of the whole batch."""
        return RowsOf(first, end - first, self.examples)


@runtime_checkable
class Planning(Protocol):
    """A source of batches that plans them: `planned(epoch, index).whole()` is `get(epoch, index)`."""

    def planned(self, epoch: int, index: int, /) -> Any: ...


def planned(source: Any, epoch: int, index: int) -> Any:
    """The plan of a batch; where its source makes none, the batch itself."""
    return source.planned(epoch, index) if isinstance(source, Planning) else source.get(epoch, index)
