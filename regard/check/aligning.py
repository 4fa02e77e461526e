"""Whether the sides of a pair belong together, told by IBM Model 1 (Brown et al. 1993), learned from the pairs themselves.

The score of a pair is how much better the words of one side are foreseen from the other side than by their frequency:
the mean over words of log((1 - λ) p(f | e) / p(f) + λ), both ways. A pair is scored by a model that did not learn from
it: one that did remembers rare words and finds any pair good. What a pair scores whose sides do not belong together is
known from sides that were shuffled; where the two cannot be told apart, nothing is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.evaluate.alignment import LONGEST, Model1, Words

Pair = tuple[Words, Words]
ROUNDS = 5
LAMBDA = 0.1
LEAST_PAIRS = 300  # fewer teach the model nothing
LEAST_WORDS = 8  # of both sides together that must be known, for a score: of short ones idioms look wrong
FEW = 6000  # pairs up to which the model learns from three quarters and not from half
APART = 0.6  # share of pairs that must score better than nearly all shuffled ones
OFFSETS = (-2, -1, 1, 2)  # lines by which one file may have slipped
STRETCH = 4  # pairs more that say so than do not, for a stretch of lines to be shifted


class Direction:
    """Model 1 in one direction, and how often each word comes."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.model = Model1(pairs, ROUNDS)
        self.counts = Counter(word for _, f in pairs for word in f)
        self.total = self.counts.total()

    def score(self, e: Words, f: Words) -> tuple[float, int]:
        """The sum of the words' scores, and how many words are known."""
        known = [word for word in f[:LONGEST] if word in self.counts]
        if not known or not e:
            return 0.0, 0
        chance = np.array([self.counts[word] for word in known]) / self.total
        gain = self.model.likelihoods(e[:LONGEST], known) / chance
        return float(np.log((1 - LAMBDA) * gain + LAMBDA).sum()), len(known)


@dataclass(frozen=True)
class Scale:
    """Scores of pairs that belong together, and of shuffled ones."""

    threshold: float  # below it a pair does not belong together
    good: float  # what pairs score, in the middle
    chance: float  # what shuffled ones score, in the middle
    apart: bool  # whether the two can be told


class Belonging:
    """Scores of pairs, each by a model that did not learn from its fold."""

    def __init__(self, pairs: Sequence[Pair], folds: np.ndarray) -> None:
        self.folds = 4 if len(pairs) <= FEW else 2
        self.learned = len(pairs)
        self._models = []
        for fold in range(self.folds):
            others = [pair for pair, own in zip(pairs, folds, strict=True) if own % self.folds != fold]
            self._models.append((Direction(others), Direction([(f, e) for e, f in others])))

    def score(self, pair: Pair, fold: int) -> float:
        """The score of a pair; NaN if too few of its words are known."""
        forth, back = self._models[fold % self.folds]
        (one, n), (other, m) = forth.score(*pair), back.score(pair[1], pair[0])
        return (one / n + other / m) / 2 if n and m and n + m >= LEAST_WORDS else float("nan")

    def scale(self, pairs: Sequence[Pair], folds: Sequence[int]) -> Scale:
        """Learn from some pairs, and the same shuffled, what a score means."""
        scores = np.array([self.score(pair, fold) for pair, fold in zip(pairs, folds, strict=True)])
        step = len(pairs) // 2 + 1
        mixed = [(pair[0], pairs[(place + step) % len(pairs)][1]) for place, pair in enumerate(pairs)]
        shuffled = np.array([self.score(pair, fold) for pair, fold in zip(mixed, folds, strict=True)])
        return scale_of(scores[~np.isnan(scores)], shuffled[~np.isnan(shuffled)])


def scale_of(scores: np.ndarray, shuffled: np.ndarray) -> Scale:
    """Where to cut: below nearly all shuffled pairs would be, and far below what pairs score."""
    if len(scores) < LEAST_PAIRS // 2 or not len(shuffled):
        return Scale(-np.inf, np.nan, np.nan, False)
    chance, high = np.percentile(shuffled, [50, 95])
    better = scores[scores > high]  # those that surely belong together: the others must not widen the scale
    if len(better) < APART * len(scores):
        return Scale(-np.inf, float(np.median(scores)), float(chance), False)
    low, good = np.percentile(better, [16, 50])
    return Scale(float(min(high, good - 3 * (good - low))), float(good), float(chance), True)


def stretches(votes: np.ndarray) -> list[tuple[int, int]]:
    """Stretches [start, end) of rows most of which vote: each maximal, and worth STRETCH votes or more.

    A vote counts 1, its absence -1; a stretch ends where the sum falls back to 0 or by STRETCH below its best.
    """
    found: list[tuple[int, int]] = []
    start = best_end = 0
    total = best = 0
    for place, vote in enumerate([*votes.tolist(), *[False] * (STRETCH + 1)]):
        if total == 0 and vote:
            start, best_end, best = place, place, 0
        total = max(0, total + (1 if vote else -1)) if total or vote else 0
        if total > best:
            best, best_end = total, place + 1
        if best and (total == 0 or total <= best - STRETCH):
            if best >= STRETCH:
                found.append((start, best_end))
            total = best = 0
    return found
