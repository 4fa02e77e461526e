"""Is one system really better than another? Paired bootstrap resampling (Koehn 2004), as sacreBLEU runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import UsageError
from regard.evaluate.bootstrap import interval, resampled_scores, score_of, sentence_counts
from regard.evaluate.pairs import check_pairs
from regard.evaluate.translation import make_metric


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same test set. A small p-value says the difference is unlikely to be luck of the draw."""

    baseline: float
    system: float
    difference: float  # system - baseline
    p_value: float
    low: float  # the 95% confidence interval of the difference
    high: float


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    metric: str = "bleu",
    lowercase: bool = False,
    tokenize: str = "13a",
    resamples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Score both systems on the same resampled test sets, and count how often chance alone does as much."""
    check_pairs(baseline, references, "outputs of the baseline")
    check_pairs(system, references, "outputs of the system")
    if resamples < 1:
        raise UsageError(f"resamples is {resamples}; a comparison needs at least 1, and about 1000 to mean something")
    scorer = make_metric(metric, lowercase, tokenize)
    tables = [sentence_counts(scorer, outputs, references) for outputs in (baseline, system)]
    first, second = (score_of(scorer, table.sum(axis=0)) for table in tables)
    scores = resampled_scores(scorer, tables, resamples, seed)  # (2, resamples)
    differences = scores[1] - scores[0]
    low, high = interval(differences)
    return Comparison(first, second, second - first, _p_value(differences, second - first), low, high)


def _p_value(differences: np.ndarray, observed: float) -> float:
    """How often a resampled difference, moved to have mean zero, exceeds the observed one; both without their sign.

    sacreBLEU's formula (from Moses and MultEval), with its +1 for the observed sample. One case is ours: systems that
    never differ get 1, where the formula's strict comparison would call them significantly different.
    """
    sizes = np.abs(differences)
    if not sizes.any():
        return 1.0
    as_large = int((sizes - sizes.mean() > abs(observed)).sum())
    return (as_large + 1) / (len(sizes) + 1)
