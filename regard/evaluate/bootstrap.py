"""Scores of a corpus resampled with replacement (Koehn 2004, "Statistical significance tests for machine translation").

A corpus score is a formula over sums of counts, one row of counts a sentence. Drawing a new corpus therefore needs no
text: it is a row of integers (how often each sentence was drawn) times the table of counts. The draws are those of
sacreBLEU (`sacrebleu.significance`), so the numbers are too; sacreBLEU itself keeps every resampled table at once
(resamples x sentences x counts), which for a large test set does not fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sacrebleu.metrics.base import Metric

DRAWS_AT_ONCE = 4_000_000  # sentence numbers drawn per chunk: 32 MB


def sentence_counts(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """The counts that the metric sums over a corpus: (sentences, counts).

    The leading underscores are sacreBLEU's own door for this: its paired tests read a metric the same way.
    """
    return np.asarray(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64)


def score_of(metric: Metric, sums: np.ndarray) -> float:
    """The metric's formula on summed counts."""
    return float(metric._compute_score_from_stats(sums.tolist()).score)


def resampled_scores(metric: Metric, tables: Sequence[np.ndarray], resamples: int, seed: int) -> np.ndarray:
    """The score of each system on each resampled corpus: (systems, resamples). All systems see the same draws."""
    chunks = [
        np.array([[score_of(metric, sums) for sums in drawn @ table] for table in tables])  # (systems, chunk)
        for drawn in _draws(len(tables[0]), resamples, seed)
    ]
    return np.concatenate(chunks, axis=1)


def interval(scores: np.ndarray) -> tuple[float, float]:
    """What is left after cutting 1/40 of the resampled scores at each end: the 95% confidence interval."""
    cut = len(scores) // 40
    ordered = np.sort(scores)
    return float(ordered[cut]), float(ordered[len(scores) - cut - 1])


def _draws(sentences: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each sentence is in each resampled corpus, in chunks: (chunk, sentences)."""
    generator = np.random.default_rng(seed)
    chunk = max(1, DRAWS_AT_ONCE // sentences)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = generator.choice(sentences, size=(rows, sentences), replace=True)
        drawn += sentences * np.arange(rows)[:, None]  # each row counts in a stretch of its own
        yield np.bincount(drawn.ravel(), minlength=rows * sentences).reshape(rows, sentences).astype(np.float64)
