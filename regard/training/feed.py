"""What updates learn from: the places of their batches in the data, and this process's shares of these, perhaps made ahead.

On a device that computes by itself the next update's batches are made, and sent to it, by a thread while it computes this
one's. Batches are pure functions of their place, so that nothing learns anything else for it; those that depend on the weights
(`MadeWhileLearning`) are never made ahead.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from regard.data.planned import planned
from regard.training.config import TrainConfig
from regard.training.shares import Batch, Share, shares_of
from regard.training.state import MadeWhileLearning
from regard.world import World


class Source(Protocol):
    """Where batches come from: `get(epoch, index)` is a pure function.

    Where it depends on the weights of the moment, too, what it made of them is part of a checkpoint (`MadeWhileLearning`).
    A source that is `Planning` makes only the rows that are asked for.
    """

    def count(self, epoch: int) -> int: ...
    def get(self, epoch: int, index: int) -> Batch: ...
    def padding_share(self) -> float: ...


@dataclass(frozen=True)
class Place:
    """Where in the data an update begins: the next batch of an epoch."""

    epoch: int
    index: int


@dataclass(frozen=True)
class Portion:
    """What this process learns in one update."""

    place: Place
    behind: Place  # where the next one begins
    shares: list[Share]
    totals: dict[str, int]  # over how many items each part of the loss is summed, in all processes


class Feed:
    """`feed.next(place)`: the portion that begins there."""

    def __init__(self, source: Source, config: TrainConfig, world: World, device: torch.device) -> None:
        self.source, self.count, self.world, self.device = source, config.accumulate, world, device
        asked = device.type != "cpu" if config.prefetch == "auto" else config.prefetch
        self.ahead = asked and not isinstance(source, MadeWhileLearning)
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[Place, Future[Portion]] | None = None

    def next(self, place: Place) -> Portion:
        """What an update learns from that begins at this place in the data."""
        if not self.ahead:
            return self.make(place)
        held, self._next = self._next, None
        found = held[1] if held is not None and held[0] == place else self._made(place)
        portion = found.result()  # an error of the thread is raised here
        self._next = portion.behind, self._made(portion.behind)
        return portion

    def make(self, place: Place) -> Portion:
        """Make a portion here and now."""
        batches, epoch, index = [], place.epoch, place.index
        for _ in range(self.count):
            if index >= self.source.count(epoch):
                epoch, index = epoch + 1, 0
            batches.append(planned(self.source, epoch, index))
            index += 1
        totals: dict[str, int] = {}
        for batch in batches:
            add(totals, batch.counts)
        shares = [replace(share, batch=share.batch.to(self.device)) for share in shares_of(batches, self.world)]
        return Portion(place, Place(epoch, index), shares, totals)

    def _made(self, place: Place) -> Future[Portion]:
        """The portion, of which the thread will see to it; it knows of the world and all else what is known here."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "batches", initializer=self._on_our_device)
        return self._thread.submit(contextvars.copy_context().run, self.make, place)

    def _on_our_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # which is each thread's own

    def close(self) -> None:
        """End the thread; what it has begun is not waited for, and not looked at."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = self._next = None


def add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    """Add named counts."""
    for name, value in more.items():
        sums[name] = sums.get(name, 0) + value
