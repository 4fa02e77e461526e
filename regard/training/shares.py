"""How the batches of an update are shared out over processes: whole ones where that comes out even, else rows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import torch

from regard.data.planned import Planned
from regard.noise import Place
from regard.world import World


class Batch(Protocol):
    """A batch that a model makes a loss of: `counts` of what each part of the loss is a mean over, and `to` a device."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    def to(self, device: torch.device, /) -> Self: ...


@runtime_checkable
class Divisible(Protocol):
    """A batch that can be cut between its examples (`regard.data.batch.ByRows`), or is made row by row (`Planned`)."""

    @property
    def examples(self) -> int: ...
    def part(self, first: int, end: int, /) -> Batch: ...
    def place(self, first: int, end: int, /) -> Place: ...


Known: TypeAlias = "Batch | Planned[Any]"  # of which at least the counts are


@dataclass(frozen=True)
class Share:
    """What one process does of a batch."""

    batch: Batch
    number: int  # of the batch in its update
    place: Place = None  # of the rows in the whole batch; None: they are all there
    counts: bool = True  # False: computed because others wait for it, and not counted


def shares_of(batches: Sequence[Known], world: World) -> list[Share]:
    """This process's shares of an update: whole batches if each process gets as many, else some rows of each."""
    numbered = list(enumerate(batches))
    if len(batches) % world.size == 0:
        return [Share(_whole(batch), number) for number, batch in world.part(numbered)]
    return [share_of(batch, number, world) for number, batch in numbered]


def share_of(batch: Known, number: int, world: World) -> Share:
    """This process's rows of a batch. Of one that cannot be cut, all do the whole, and the first one's counts."""
    if not isinstance(batch, Divisible):
        return Share(_whole(batch), number, counts=world.is_first)
    first, end = world.bounds(batch.examples)
    if first == end:  # fewer rows than processes
        return Share(batch.part(0, 1), number, batch.place(0, 1), counts=False)
    return Share(batch.part(first, end), number, batch.place(first, end))


def _whole(batch: Known) -> Batch:
    made: Batch = batch.whole() if isinstance(batch, Planned) else batch
    return made
