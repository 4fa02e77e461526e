"""What measurements over lengths say: with which power of T a cost grows, and from which T on a kernel pays."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

FIRST = 1024  # shorter ones are ruled by what a call costs anyway


def exponent(costs: Mapping[int, float], first: int = FIRST) -> float | None:
    """The slope of log cost over log T by least squares, of lengths from `first` on; None for fewer than two."""
    kept = {length: cost for length, cost in costs.items() if length >= first and cost > 0}
    if len(kept) < 2:
        return None
    return float(np.polyfit(np.log(list(kept)), np.log(list(kept.values())), deg=1)[0])


def pays_from(costs: Mapping[int, float], exact: Mapping[int, float]) -> float | None:
    """The length from which on a kernel costs less than exact attention up to the longest that both were measured at.

    Between two lengths both costs are taken to be straight on log-log paper. The shortest length means: or even less.
    None: at the longest it does not pay.
    """
    common = sorted(costs.keys() & exact.keys())
    gains = {length: math.log(exact[length] / costs[length]) for length in common}
    if not common or gains[common[-1]] <= 0:
        return None
    start = len(common) - 1
    while start > 0 and gains[common[start - 1]] > 0:
        start -= 1
    if start == 0:
        return float(common[0])
    before, after = common[start - 1], common[start]
    share = gains[before] / (gains[before] - gains[after])  # of the way, where both cost the same
    return float(math.exp(math.log(before) + share * math.log(after / before)))
