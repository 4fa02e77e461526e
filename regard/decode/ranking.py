"""Hypotheses of a search: those that go on (`Live`), and how those that ended are ranked (`Ranking`, length penalties).

The books of a search are small, so they are NumPy arrays on the CPU.
"""

from __future__ import annotations

import math
from bisect import insort_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.decode.config import DecodeConfig

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that has ended, with what the model itself thinks of it.

    Log-probabilities are the model's own, of its softmax over the whole vocabulary: neither filters nor temperature
    change them, so that scoring the same sequence by teacher forcing gives the same numbers.
    """

    ids: tuple[int, ...]  # without prefix and end
    score: float  # the log-probability divided by the length penalty: what ranks
    log_probability: float  # sum of the next field
    token_log_probabilities: tuple[float, ...]  # one for each id, then that of the end token
    finished: bool  # False: the length limit put the end token where the search would have gone on


@dataclass(frozen=True)
class Live:
    """The hypotheses that go on: W for each of B sources, all T tokens long. A total of -inf marks an empty place."""

    sources: Ints  # (B,) which of the sources given to `generate` each row is
    samples: Ints  # (B, W) which sample of its source each one is (a beam has no use for it)
    ids: Ints  # (B, W, T) without prefix
    log_probs: Floats  # (B, W, T) of each id
    totals: Floats  # (B, W) their sums

    @classmethod
    def beginning(cls, sources: int, width: int) -> Live:
        """W hypotheses for each source, still without a token."""
        shape = (sources, width)
        samples = np.tile(np.arange(width), (sources, 1))  # (B, W)
        return cls(np.arange(sources), samples, np.zeros((*shape, 0), np.int64), np.zeros((*shape, 0)), np.zeros(shape))

    @property
    def length(self) -> int:
        return self.ids.shape[2]

    def extended(self, rows: Ints, parents: Ints, ids: Ints, log_probs: Floats, totals: Floats) -> Live:
        """The hypotheses one token on: row i continues row `rows[i]`, place w there continues place `parents[i, w]`."""
        at = (rows[:, None], parents)  # (B', W')
        return Live(
            sources=self.sources[rows],
            samples=self.samples[at],
            ids=np.concatenate([self.ids[at], ids[..., None]], axis=2),  # (B', W', T + 1)
            log_probs=np.concatenate([self.log_probs[at], log_probs[..., None]], axis=2),  # (B', W', T + 1)
            totals=totals,
        )


def gnmt_penalty(length: int, alpha: float) -> float:
    """((5 + |Y|) / 6)^alpha (Wu et al. 2016, eq. 14)."""
    return ((5 + length) / 6) ** alpha


def power_penalty(length: int, alpha: float) -> float:
    """|Y|^alpha; alpha = 1 ranks by the mean log-probability of a token."""
    return float(length**alpha)


def no_penalty(length: int, alpha: float) -> float:
    return 1.0


# |Y| counts the end token, so that the empty sequence has a length too.
PENALTIES: dict[str, Callable[[int, float], float]] = {
    "gnmt": gnmt_penalty,
    "power": power_penalty,
    "none": no_penalty,
}


class Ranking:
    """The n best ended sequences of each source, best first; of equals, the one that ended earlier."""

    def __init__(self, options: DecodeConfig, limits: Ints) -> None:
        self.n_best = options.n_best
        self.early, self.enough = options.stopping == "early" and not options.sample, options.beam
        self.best: list[list[Hypothesis]] = [[] for _ in limits]
        self.ended = [0] * len(limits)
        self._penalty, self._alpha = PENALTIES[options.length_penalty], options.alpha
        self._to_beat = np.full(len(limits), -math.inf)  # (B,) score that a sequence must exceed to be among the best
        self._greatest = np.array([self._divisor(limit) for limit in limits.tolist()])  # (B,) penalty at the limit

    def add(self, source: int, ids: list[int], log_probs: list[float], total: float, finished: bool) -> None:
        """An ended sequence; `log_probs` has one more than `ids`, for the end token, if there is one."""
        score = total / self._penalty(len(log_probs), self._alpha)
        best = self.best[source]
        insort_right(best, Hypothesis(tuple(ids), score, total, tuple(log_probs), finished), key=lambda h: -h.score)
        del best[self.n_best :]
        self.ended[source] += 1
        if len(best) == self.n_best:
            self._to_beat[source] = best[-1].score
        if self.early and self.ended[source] >= self.enough:
            self._to_beat[source] = math.inf

    def can_win(self, sources: Ints, totals: Floats) -> Bools:
        """Which unfinished hypotheses (B, C) may still enter the best of their source.

        A log-probability only falls, and the penalty only grows with length: no continuation scores better than
        total / penalty(limit). Dropping the others never changes a result. Nor could a bound be tighter that knows only
        totals and limits: a model that gives every further token probability 1 reaches it. `stopping = "early"` is for
        whoever would rather not wait for such a turn.
        """
        winning = totals / self._greatest[sources, None] > self._to_beat[sources, None]
        if self.early:  # those that cannot win still count when they end, so they stay as long as their source
            winning = winning.any(axis=1, keepdims=True) & (totals > -math.inf)
        return winning

    def _divisor(self, tokens: int) -> float:
        return self._penalty(tokens + 1, self._alpha)
