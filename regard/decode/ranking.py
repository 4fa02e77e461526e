"""Which ended sequence is best, and when nothing that goes on can still be better."""

from __future__ import annotations

import math
from bisect import insort_right
from collections.abc import Callable

import numpy as np

from regard.decode.config import DecodeConfig
from regard.decode.hypothesis import Bools, Floats, Hypothesis, Ints


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
        total / penalty(limit). Dropping the others never changes a result.
        """
        winning = totals / self._greatest[sources, None] > self._to_beat[sources, None]
        if self.early:  # those that cannot win still count when they end, so they stay as long as their source
            winning = winning.any(axis=1, keepdims=True) & (totals > -math.inf)
        return winning

    def _divisor(self, tokens: int) -> float:
        return self._penalty(tokens + 1, self._alpha)
