"""How sequences that ended are ranked (`Ranking`), and which of those that go on can still be among the best."""

from __future__ import annotations

import math
from bisect import insort_right
from dataclasses import dataclass

import numpy as np

from regard.decode.live import PENALTIES, Bools, ByRow, Floats, Ints, Objects, Wants

__all__ = ["PENALTIES", "Hypothesis", "Ranking"]


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that has ended, with what the model itself thinks of it.

    Log-probabilities are the model's own, of its softmax over the whole vocabulary: neither filters nor temperature
    change them, so that scoring the same sequence by teacher forcing gives the same numbers. NaN: nobody asked for them.
    """

    ids: tuple[int, ...]  # without prefix and end
    score: float  # the log-probability divided by the length penalty: what ranks
    log_probability: float  # sum of the next field
    token_log_probabilities: tuple[float, ...]  # one for each id, then that of the end token
    finished: bool  # False: the length limit put the end token where the search would have gone on


@dataclass(frozen=True)
class Ranking(ByRow):
    """The n best ended sequences of each source, best first; of equals, the one that ended earlier. All fields are (B,)."""

    best: Objects  # list[Hypothesis]
    ended: Ints
    to_beat: Floats  # score that a sequence must exceed to be among the best
    greatest: Floats  # penalty at the limit

    @classmethod
    def beginning(cls, wants: Wants) -> Ranking:
        best = np.empty(len(wants.limits), dtype=np.object_)
        for row in range(len(best)):
            best[row] = []
        both = zip(wants.penalties, wants.limits.tolist(), strict=True)
        greatest = np.array([penalty(limit + 1) for penalty, limit in both])
        return cls(best, np.zeros(len(best), np.int64), np.full(len(best), -math.inf), greatest)

    def add(self, row: int, wants: Wants, ids: list[int], log_probs: list[float], total: float, finished: bool) -> None:
        """An ended sequence; `log_probs` has one more than `ids`, for the end token, if there is one."""
        score = total if math.isnan(total) else total / wants.penalties[row](len(log_probs))
        best, most, enough = self.best[row], wants.n_best[row], wants.enough[row]
        insort_right(best, Hypothesis(tuple(ids), score, total, tuple(log_probs), finished), key=lambda h: -h.score)
        del best[most:]
        self.ended[row] += 1
        if len(best) == most:
            self.to_beat[row] = best[-1].score
        if enough and self.ended[row] >= enough:
            self.to_beat[row] = math.inf

    def can_win(self, wants: Wants, totals: Floats) -> Bools:
        """Which unfinished hypotheses (B, C) may still enter the best of their source.

        A log-probability only falls, and the penalty only grows with length: no continuation scores better than
        total / penalty(limit). Dropping the others never changes a result. Nor could a bound be tighter that knows only
        totals and limits: a model that gives every further token probability 1 reaches it. `stopping = "early"` is for
        whoever would rather not wait for such a turn.
        """
        winning = totals / self.greatest[:, None] > self.to_beat[:, None]
        if not wants.any_enough:
            return winning
        early = (
            wants.enough > 0
        )  # those that cannot win still count when they end, so they stay as long as their source
        staying = winning.any(axis=1, keepdims=True) & (totals > -math.inf)
        return np.where(early[:, None], staying, winning)
