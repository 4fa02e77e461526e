"""Batches of new and old data by turns, so that a model that learns the new does not forget the old (Robins 1995)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from regard.data.batches import generator

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
        is_old, place = self._turns(epoch)[index]
        if not is_old:
            return self.new.get(epoch, int(place))
        around, within = divmod(epoch * self.olds + int(place), self.old.count(0))
        return self.old.get(around, within % self.old.count(around))  # passes differ by a batch or so

    def padding_share(self) -> float:
        return (1 - self.share) * self.new.padding_share() + self.share * self.old.padding_share()

    def _make_turns(self, epoch: int) -> np.ndarray:
        """For each batch of an epoch whether it is old, and which of the new or the old ones of this epoch it is: (N, 2)."""
        is_old = np.zeros(self.count(epoch), dtype=np.int64)
        is_old[self.new.count(epoch) :] = 1
        is_old = generator(self.seed, epoch, ORDER).permutation(is_old)
        place = np.where(is_old == 1, np.cumsum(is_old) - 1, np.cumsum(1 - is_old) - 1)
        return np.stack([is_old, place], axis=1)
