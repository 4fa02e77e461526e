"""Batches of pairs of like length under a token budget. Batch i of epoch e is a pure function of the seed.

Nothing about the order is ever saved: a run that resumes asks for the same (epoch, index) again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from regard.data.batch import PairBatch, pair_batch
from regard.data.pairs import dropped
from regard.errors import RegardError


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Encoded pairs: sources with their end token, targets with begin and end."""

    sources: list[np.ndarray]
    targets: list[np.ndarray]
    fill: int

    def __len__(self) -> int:
        return len(self.sources)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens to read and tokens to predict of each pair."""
        read = np.array([len(ids) for ids in self.sources])
        return read, np.array([len(ids) - 1 for ids in self.targets])

    def take(self, rows: Sequence[int] | np.ndarray) -> PairBatch:
        return pair_batch([self.sources[i] for i in rows], [self.targets[i] for i in rows], self.fill)

    def keep(self, rows: np.ndarray) -> TokenPairs:
        return TokenPairs([self.sources[i] for i in rows], [self.targets[i] for i in rows], self.fill)


def filter_lengths(pairs: TokenPairs, max_length: int, max_ratio: float) -> tuple[TokenPairs, str | None]:
    """Drop pairs with a side too long or sides too unlike in length; one sentence on how many and why."""
    read, predicted = pairs.lengths()
    longer, shorter = np.maximum(read, predicted), np.minimum(read, predicted)
    too_long = longer > max_length
    unlike = ~too_long & (longer > 10) & (longer > max_ratio * shorter)
    kept = np.flatnonzero(~too_long & ~unlike)
    reasons = Counter(
        {
            f"a side over {max_length} tokens": int(too_long.sum()),
            f"a length ratio over {max_ratio:g}": int(unlike.sum()),
        }
    )
    reasons += Counter()  # drops the zeros
    if not len(kept):
        ways = ["raise data.max_length, and model.max_length where positions are learned"] if too_long.any() else []
        ways += (
            ["check that source and target are the columns you mean, or raise data.max_ratio"] if unlike.any() else []
        )
        raise RegardError(
            f"no training pair is left: {dropped('training', len(pairs), reasons)}; {'; or '.join(ways) or 'add some'}"
        )
    if not reasons:
        return pairs, None
    return pairs.keep(kept), dropped("training", len(pairs), reasons)


class Batches:
    """`batches.get(epoch, index)`. A batch holds at most `budget` tokens on its larger side, padding included."""

    def __init__(self, pairs: TokenPairs, budget: int, seed: int) -> None:
        self.pairs, self.budget, self.seed = pairs, budget, seed
        self._read, self._predicted = pairs.lengths()
        self._size = np.maximum(self._read, self._predicted)
        if self._size.max(initial=0) > budget:
            raise RegardError(
                f"a pair has {self._size.max()} tokens and a batch only {budget}; raise train.batch_tokens or lower "
                "data.max_length"
            )
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    def count(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def get(self, epoch: int, index: int) -> PairBatch:
        return self.pairs.take(self._plan(epoch)[index])

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        real = padded = 0
        for rows in self._plan(0):
            real += int(self._read[rows].sum() + self._predicted[rows].sum())
            padded += len(rows) * int(self._read[rows].max() + self._predicted[rows].max())
        return 1 - real / padded

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._predicted, self._read), self._size, self.budget, (self.seed, epoch))


def generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on nothing but the key (NumPy pads a key with zeros: (1, 2) is (1, 2, 0))."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


def plan_by_length(
    lengths: tuple[np.ndarray, ...], size: np.ndarray, budget: int, key: tuple[int, int]
) -> list[np.ndarray]:
    """The rows of each batch of an epoch: rows of like length (the last of `lengths` first), batches in any order."""
    random = generator(*key)
    order = random.permutation(len(size))  # ties in length fall differently in each epoch
    order = order[np.lexsort([length[order] for length in lengths])]
    plan = cut_by_budget(order, size, budget)
    return [plan[i] for i in random.permutation(len(plan))]


def padding_of(plan: list[np.ndarray], lengths: np.ndarray) -> float:
    """The share of padding among all positions, where row i has `lengths[i]` real ones."""
    padded = sum(len(rows) * int(lengths[rows].max()) for rows in plan)
    return 1 - int(lengths.sum()) / padded


def cut_by_budget(order: np.ndarray, size: np.ndarray, budget: int) -> list[np.ndarray]:
    """Consecutive rows of `order` in groups whose padded size (rows x longest) stays within the budget."""
    groups, start, longest = [], 0, 0
    for end, row in enumerate(order):
        longest = max(longest, int(size[row]))
        if (end + 1 - start) * longest > budget:
            groups.append(order[start:end])
            start, longest = end, int(size[row])
    groups.append(order[start:])
    return groups
