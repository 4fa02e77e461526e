"""Ratios of sums over texts, with what they would have been on other texts (bootstrap, Efron 1979), and shares.

A loss for each token is a sum over texts of losses, divided by a sum of tokens. What is drawn anew, with replacement, is
whole texts: tokens of one text are not independent. Differences are taken text by text before (paired).

A share of texts that are right needs no draws: its interval is Wilson's (1927), which also holds where all are right.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from regard.evaluate.bootstrap import interval

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
        told = f"{self.value:+.{digits}f}"
        return told if math.isnan(self.error) else f"{told} ± {self.error:.{digits}f}"

    def interval(self) -> str:
        """As in "0.12 to 0.34"; nothing where it is not known."""
        return "" if math.isnan(self.low) else f"{self.low:.2f} to {self.high:.2f}"


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
