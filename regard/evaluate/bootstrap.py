"""Confidence intervals: of corpus scores and of ratios of sums by resampling (bootstrap), of shares by Wilson's formula."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

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
    """The 95% confidence interval: 1/40 of the resampled scores is cut at each end."""
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


RESAMPLES, SEED = 1000, 12345
Z = 1.959963984540054  # of the normal distribution 95% lie within so many standard deviations


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error, and its 95% interval; NaN where one text alone cannot tell."""

    value: float
    error: float
    low: float
    high: float

    def data(self) -> dict[str, float]:
        return asdict(self)

    def signed(self, digits: int) -> str:
        """As in "+0.031 ± 0.012"."""
        text = f"{self.value:+.{digits}f}"
        return text if math.isnan(self.error) else f"{text} ± {self.error:.{digits}f}"

    def interval(self, digits: int = 2) -> str:
        """As in "0.12 to 0.34"; nothing where it is not known."""
        return "" if math.isnan(self.low) else f"{self.low:.{digits}f} to {self.high:.{digits}f}"


def share_interval(right: int, total: int) -> tuple[float, float]:
    """The 95% score interval of a share (Wilson 1927; Newcombe 1998, method 3), from 0 to 1.

    (2np + z² ± z √(z² + 4np(1 - p))) / 2(n + z²), where p = right / total of n = total.
    """
    middle, width = 2 * right + Z**2, Z * math.sqrt(Z**2 + 4 * right * (1 - right / total))
    low, high = (middle - width) / (2 * (total + Z**2)), (middle + width) / (2 * (total + Z**2))
    return (0.0 if right == 0 else low), (1.0 if right == total else high)  # to the last bit


def ratios(tops: np.ndarray, bottoms: np.ndarray) -> list[Estimate]:
    """Σ tops / Σ bottoms of each column: tops (texts, K); bottoms (texts,) or (texts, K). All see the same draws."""
    bottoms = bottoms[:, None] if bottoms.ndim == 1 else bottoms
    texts = len(tops)
    drawn = np.random.default_rng(SEED).multinomial(texts, np.full(texts, 1 / texts), size=RESAMPLES)
    values = _divided(tops.sum(axis=0), bottoms.sum(axis=0))  # (K,)
    again = _divided(drawn @ tops, drawn @ bottoms)  # (resamples, K)
    return [
        Estimate(float(value), float(column.std()), *interval(column)) if texts > 1 and np.isfinite(column).all()
        else Estimate(float(value), float("nan"), float("nan"), float("nan"))
        for value, column in zip(values, again.T, strict=True)
    ]  # fmt: skip


def _divided(tops: np.ndarray, bottoms: np.ndarray) -> np.ndarray:
    bottoms = np.broadcast_to(bottoms, tops.shape)
    return np.divide(tops, bottoms, out=np.full(tops.shape, np.nan), where=bottoms != 0)
