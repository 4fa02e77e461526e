"""How maps of one text change over the steps of a run.

Two numbers follow a map a over the steps, each a mean over queries t:

    alike      1 - Σ_s |a_ts - b_ts| / (Σ_s |a_ts| + Σ_s |b_ts|),  b the last map; for rows that sum to one, one minus
               their total variation: 1 is equal, 0 has nothing in common
    sharpness  max_s a_ts: the greatest weight of a row

A query that may look nowhere does not count.
"""

from __future__ import annotations

import numpy as np


def alike(maps: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How alike maps (..., T, S) are to others, as at the top of this file: (...)."""
    real = ~np.isnan(maps).all(axis=-1) & ~np.isnan(others).all(axis=-1)  # (..., T)
    ours, theirs = np.nan_to_num(maps), np.nan_to_num(others)
    whole = np.abs(ours).sum(-1) + np.abs(theirs).sum(-1)
    apart = np.abs(ours - theirs).sum(-1) / np.maximum(whole, np.finfo(float).tiny)
    return _mean(1.0 - apart, real)


def sharpness(maps: np.ndarray) -> np.ndarray:
    """The greatest weight of a row of maps (..., T, S), mean over the rows: (...)."""
    real = ~np.isnan(maps).all(axis=-1)
    return _mean(np.where(np.isnan(maps), -np.inf, maps).max(axis=-1), real)


def _mean(values: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Over the last axis, where `real`."""
    found: np.ndarray = np.where(real, values, 0.0).sum(-1) / np.maximum(1, real.sum(-1))
    return found


def spread(maps: np.ndarray, most: int) -> list[int]:
    """Of maps (steps, T, S) at most so many, by number: the first, the last, and more where more changes.

    Between two of them lies about the same sum of squared changes: of noise little adds up, of a jump much.
    """
    count = len(maps)
    if count <= most:
        return list(range(count))
    changes = 1.0 - alike(maps[1:], maps[:-1])
    way = np.concatenate([[0.0], np.cumsum(changes**2)])
    found = [0]
    for number in range(1, most - 1):
        nearest = int(np.abs(way - way[-1] * number / (most - 1)).argmin())
        found.append(min(max(nearest, found[-1] + 1), count - most + number))
    return [*found, count - 1]
