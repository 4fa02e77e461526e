"""Batches of several sorts of data by turns: of corpora by their weights, and of new and old data.

Old data among the new let a model that learns the new not forget the old (Robins 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from regard.data.batches import generator
from regard.data.planned import planned

ORDER = 1  # marks the key of the order in which new and old batches come


class BatchSource(Protocol):
    """Where batches come from: `get(epoch, index)` is a pure function."""

    def count(self, epoch: int) -> int: ...
    def get(self, epoch: int, index: int) -> Any: ...
    def padding_share(self) -> float: ...


class MixedBatches:
    """`batches.get(epoch, index)`: the new data once an epoch, and so many old batches between that they are `share` of all.

    Old batches go on from epoch to epoch, so that a large old set is seen piece by piece. Which batches are old, and which of
    the old ones come, follows from seed, epoch and index alone.
    """

    def __init__(self, new: BatchSource, old: BatchSource, share: float, seed: int) -> None:
        self.new, self.old, self.share, self.seed = new, old, share, seed
        self.olds = round(new.count(0) * share / (1 - share))  # of each epoch
        if share and not self.olds:
            self.olds = 1
        self._turns = lru_cache(maxsize=2)(self._make_turns)

    def count(self, epoch: int) -> int:
        return self.new.count(epoch) + self.olds

    def get(self, epoch: int, index: int) -> Any:
        source, place = self._place(epoch, index)
        return source.get(*place)

    def planned(self, epoch: int, index: int) -> Any:
        source, place = self._place(epoch, index)
        return planned(source, *place)

    def _place(self, epoch: int, index: int) -> tuple[BatchSource, tuple[int, int]]:
        """Of which data a batch is, and which of theirs."""
        is_old, place = self._turns(epoch)[index]
        if not is_old:
            return self.new, (epoch, int(place))
        around, within = divmod(epoch * self.olds + int(place), self.old.count(0))
        return self.old, (around, within % self.old.count(around))  # passes differ by a batch or so

    def padding_share(self) -> float:
        return (1 - self.share) * self.new.padding_share() + self.share * self.old.padding_share()

    def _make_turns(self, epoch: int) -> np.ndarray:
        """For each batch of an epoch whether it is old, and which of the new or the old ones of this epoch it is: (N, 2)."""
        is_old = np.zeros(self.count(epoch), dtype=np.int64)
        is_old[self.new.count(epoch) :] = 1
        is_old = generator(self.seed, epoch, ORDER).permutation(is_old)
        place = np.where(is_old == 1, np.cumsum(is_old) - 1, np.cumsum(1 - is_old) - 1)
        return np.stack([is_old, place], axis=1)


def shares_of(sizes: Sequence[int], weights: Sequence[float], temperature: float) -> np.ndarray:
    """The share of each corpus, w · n^(1/T) of all (Devlin et al. 2019): (corpora,)."""
    wanted = np.array(weights) * np.array(sizes, dtype=np.float64) ** (1 / temperature)
    return wanted / wanted.sum()


class WeightedBatches:
    """`batches.get(epoch, index)`: an epoch has as many batches as all sources together, and of each source its share.

    The batches of each go on from epoch to epoch, so that one whose share is small is seen piece by piece, and one whose share
    is large several times. With a temperature of 1 and equal weights each comes once. All follows from seed, epoch and index.
    """

    def __init__(self, sources: Sequence[BatchSource], weights: Sequence[float], temperature: float, seed: int) -> None:
        self.sources, self.seed = tuple(sources), seed
        sizes = [source.count(0) for source in sources]
        self.shares = shares_of(sizes, weights, temperature)
        exact = self.shares * sum(sizes)
        self.counts = np.floor(exact + 1e-9).astype(
            np.int64
        )  # of each epoch; what is left goes to the largest fractions
        left = sum(sizes) - int(self.counts.sum())
        self.counts[np.argsort(self.counts - exact, kind="stable")[:left]] += 1
        self._turns = lru_cache(maxsize=2)(self._make_turns)

    def count(self, epoch: int) -> int:
        return int(self.counts.sum())

    def get(self, epoch: int, index: int) -> Any:
        source, place = self._place(epoch, index)
        return source.get(*place)

    def planned(self, epoch: int, index: int) -> Any:
        source, place = self._place(epoch, index)
        return planned(source, *place)

    def _place(self, epoch: int, index: int) -> tuple[BatchSource, tuple[int, int]]:
        """Of which corpus a batch is, and which of its batches."""
        number, place = map(int, self._turns(epoch)[index])
        source = self.sources[number]
        around, within = divmod(epoch * int(self.counts[number]) + place, source.count(0))
        return source, (around, within % source.count(around))  # passes differ by a batch or so

    def padding_share(self) -> float:
        return float(
            sum(share * source.padding_share() for share, source in zip(self.shares, self.sources, strict=True))
        )

    def _make_turns(self, epoch: int) -> np.ndarray:
        """For each batch of an epoch the number of its source, and which of that source's batches it is: (N, 2)."""
        number = generator(self.seed, epoch, ORDER).permutation(np.repeat(np.arange(len(self.sources)), self.counts))
        place = np.empty_like(number)
        for each, count in enumerate(self.counts):
            place[number == each] = np.arange(count)
        return np.stack([number, place], axis=1)


def mixture(sources: Sequence[BatchSource], weights: Sequence[float], temperature: float, seed: int) -> Any:
    """The batches of one source as they are, or of several by their weights."""
    return sources[0] if len(sources) == 1 else WeightedBatches(sources, weights, temperature, seed)
