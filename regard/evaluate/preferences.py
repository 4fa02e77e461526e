"""How often answers are better than others to the same prompts, with the uncertainty of that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.evaluate.bootstrap import Estimate, ratios

NEAR = 1e-9  # rewards nearer than this are equal


def wins(after: Sequence[float] | np.ndarray, before: Sequence[float] | np.ndarray) -> np.ndarray:
    """1 where an answer has the greater reward, 0 where the other one has, ½ where they are equal: (N,)."""
    gain = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    return np.where(np.abs(gain) < NEAR, 0.5, (gain > 0).astype(np.float64))


def win_rate(after: Sequence[float] | np.ndarray, before: Sequence[float] | np.ndarray) -> Estimate:
    """The share of prompts in percent whose answer is the better one, ties half, with its 95% interval (bootstrap)."""
    return mean_of(100 * wins(after, before))


def mean_of(values: np.ndarray) -> Estimate:
    """The mean of values with its 95% interval."""
    return ratios(np.asarray(values, dtype=np.float64)[:, None], np.ones(len(values)))[0]
