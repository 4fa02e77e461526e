"""The score of faithfulness, from falls of probability alone: does the output depend on the words a map points at?

For every prediction, each source word is removed in turn, and the log-probability of what was predicted falls by so much.
Of a map, what counts is how much it falls without the most attended word, between a random word and the best one:

    score = Σ (attended - random) / Σ (best - random)

`random` is the mean over all words, exactly; `best` is the word with the greatest fall, known only in hindsight. 0: the
map tells no more than chance; 1: it always points at the word that matters most; below 0: it avoids it. Removing is how
Li et al. 2016 ("Understanding neural networks through representation erasure") and DeYoung et al. 2020 ("ERASER",
comprehensiveness) ask the same; the two ends of the scale make models and tasks comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import RegardError
from regard.evaluate.bootstrap import Estimate, ratios

EQUAL = 1e-9  # weights that differ by less are equal: their words share the first place


@dataclass(frozen=True, eq=False)
class Case:
    """One text with all that was found out about it."""

    falls: np.ndarray  # (W, T): of the log-probability of each prediction, without each word
    maps: dict[str, np.ndarray]  # (T, W): how much each prediction looked at each word


@dataclass(frozen=True)
class FaithfulnessScore:
    """The faithfulness of one map over all texts."""

    score: Estimate
    drop: float  # mean fall without the most attended word
    hits: float  # how often the most attended word is the best one


def score_maps(cases: Sequence[Case]) -> tuple[dict[str, FaithfulnessScore], float, float]:
    """The score of each map, with a 95% interval over texts; the mean fall without a random word and without the best."""
    if not cases:
        raise RegardError("no text has two words or more, so that none can be removed", "give longer texts")
    names = list(cases[0].maps)
    counts = np.array([case.falls.shape[1] for case in cases], dtype=np.float64)
    random, best = (np.array([of(case).sum() for case in cases]) for of in (_random, _best))  # (texts,)
    attended = np.array([[_attended(case, name).sum() for name in names] for case in cases])  # (texts, maps)
    hits = np.array([[_hits(case, name).sum() for name in names] for case in cases])
    found = ratios(attended - random[:, None], best - random)
    total = counts.sum()
    scores = {
        name: FaithfulnessScore(estimate, float(attended[:, place].sum() / total), float(hits[:, place].sum() / total))
        for place, (name, estimate) in enumerate(zip(names, found, strict=True))
    }
    return scores, float(random.sum() / total), float(best.sum() / total)


def _random(case: Case) -> np.ndarray:
    return case.falls.mean(axis=0)  # (T,)


def _best(case: Case) -> np.ndarray:
    return case.falls.max(axis=0)  # (T,)


def _first(case: Case, name: str) -> np.ndarray:
    """Which word has the first place for each prediction: shares that sum to one (T, W)."""
    weights = case.maps[name]
    first = weights >= weights.max(axis=1, keepdims=True) - EQUAL
    return first / first.sum(axis=1, keepdims=True)


def _attended(case: Case, name: str) -> np.ndarray:
    return (_first(case, name) * case.falls.T).sum(axis=1)  # (T,)


def _hits(case: Case, name: str) -> np.ndarray:
    return np.where(_best(case)[:, None] == case.falls.T, _first(case, name), 0.0).sum(axis=1)
