"""The end of a run, foretold from its validations so far. No torch here.

While the learning rate stays at its peak, a validation metric gets better about linearly in the logarithm of the time; while
the rate falls it gets better once more, by what the noise of large steps had cost (Hägele et al. 2024, section 3). So after a
share p of the updates, with the rate at a share r of its peak and the slope s = -dz / d log t of the last validations,

    z_end = z_now - (m + n · r) · s · log(1 / p) - d · r

where z is the logarithm of a loss, or minus the logit of a score. m, n, d and the width of the interval are not guessed: they
are those that held in recorded runs of several tasks (`benchmarks/forecasts.py`, rows in `docs/results/forecasts.json`), the
width by quantiles of what was left over in units of what was foretold (split conformal prediction, Lei et al. 2018). A metric
that no longer gets better has no slope, and keeps its best value, that of the weights which are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.training.config import TrainConfig
from regard.training.events import Expected, Outlook
from regard.training.stopwatch import duration

Row = Mapping[str, Any]
Points = Sequence[tuple[float, float]]  # update, value

FALLING = ("linear", "cosine", "wsd")  # schedules that say when a run ends
LOSSES = ("loss", "bits_per_byte")
SCORES = ("bleu", "bleu4", "chrf", "exact", "accuracy", "f1")  # out of 100, more is better
LEAST_POINTS, LEAST_SHARE = 3, 0.25  # nothing is said before there are so many validations, and so much of the run
RECENT = 1 / 3  # the slope is that of the last third of the validations
LATE = (0.2, 0.5)  # of the time so far: since when validations tell the gain of a longer run
HALF_WAY = 0.4, 0.65  # share of a run at which its forecast is held against what came
ROUND = 5  # digits after the point of what is written down


@dataclass(frozen=True)
class Calibration:
    """The constants of one kind of metric; the interval reaches from `low` to `high`, in units of the change foretold."""

    slope: float  # m
    falling: float  # n
    fall: float  # d
    low: float
    high: float
    longer: float  # the gain of a longer run, as a share of what the slope says


LOSS = Calibration(slope=0.3, falling=0.6, fall=0.02, low=-0.71, high=0.43, longer=0.6)
SCORE = Calibration(slope=0.1, falling=0.4, fall=0.3, low=-2.02, high=0.57, longer=0.5)
LEAST_UNIT = 0.003  # beside the change and the scatter of the validations about their line


@dataclass(frozen=True)
class Interval:
    """An interval that holds about 8 times of 10, and its middle."""

    low: float
    middle: float
    high: float


def look_ahead(rows: Sequence[Row], config: TrainConfig, share: float, rate: float) -> Outlook | None:
    """What to expect of a run that has done a `share` of its updates, from its log; `rate` is a share of the peak rate.

    None while there is too little to tell by.
    """
    share = round(share, ROUND)
    found = []
    for metric in dict.fromkeys((config.select, "loss")):
        points = points_of(rows, metric)
        interval = interval_at_end(points, metric, share, rate)
        if interval is not None:
            gain = gain_of_longer(points, metric, interval.middle, longer_by(config))
            numbers = (points[-1][1], interval.low, interval.high, gain)
            found.append(Expected(metric, *(round(number, ROUND) for number in numbers)))
    if not found:
        return None
    return Outlook(int(points[-1][0]), share, tuple(found), more_of(config))


def outlook_row(outlook: Outlook) -> dict[str, object]:
    """An outlook as a row of the log."""
    expected = {each.metric: [each.low, each.high] for each in outlook.expected}
    return {"kind": "outlook", "step": outlook.step, "share": outlook.share, "expected": expected}


def half_way(rows: Sequence[Row]) -> Row | None:
    """The row of the log with what was foretold about half way; None if there is none."""
    low, high = HALF_WAY
    found = [row for row in rows if row.get("kind") == "outlook" and low <= row["share"] <= high]
    return min(found, key=lambda row: abs(float(row["share"]) - 0.5), default=None)


def points_of(rows: Sequence[Row], metric: str) -> list[tuple[float, float]]:
    """Step and value of each validation that has the metric as a number."""
    found = [(row["step"], row.get(metric)) for row in rows if row.get("kind") == "valid"]
    return [(float(step), float(value)) for step, value in found if value is not None and math.isfinite(value)]


def interval_at_end(points: Points, metric: str, share: float, rate: float) -> Interval | None:
    """The interval of a metric at the end of a run, from its validations after a `share` of the updates."""
    if metric not in (*LOSSES, *SCORES) or len(points) < LEAST_POINTS or not LEAST_SHARE <= share <= 1:
        return None
    known = LOSS if metric in LOSSES else SCORE
    steps, values = np.array([step for step, _ in points]), np.array([_inner(metric, value) for _, value in points])
    slope, scatter = slope_of(steps, values, max(LEAST_POINTS, math.ceil(RECENT * len(points))))
    now, best = float(values[-1]), float(values.min())
    if slope <= 0:  # it does not get better any more: the best weights so far are kept
        return _interval(metric, best - 2 * scatter * (1 - share), best, best)
    change = (known.slope + known.falling * rate) * slope * math.log(1 / share) + known.fall * rate
    unit = change + scatter + LEAST_UNIT
    low, middle, high = (min(best, now - change + width * unit) for width in (known.low, 0.0, known.high))
    return _interval(metric, low, middle, high)


def slope_of(steps: np.ndarray, values: np.ndarray, count: int) -> tuple[float, float]:
    """How much a value falls while the time grows e-fold, by least squares over the last `count`; and the scatter about it."""
    times, last = np.log(steps[-count:] / steps[-1]), values[-count:]
    slope, start = np.polyfit(times, last, 1)
    return float(-slope), float(np.sqrt(np.mean((last - start - slope * times) ** 2)))


def gain_of_longer(points: Points, metric: str, end: float, times: float) -> float:
    """What a run that is so many `times` as long would gain over `end`; positive is better.

    The slope is that of all validations but early ones, unless it has become flatter in the last half of them.
    """
    known = LOSS if metric in LOSSES else SCORE
    steps, values = np.array([step for step, _ in points]), np.array([_inner(metric, value) for _, value in points])
    counts = [int(np.sum(steps >= since * steps[-1])) for since in LATE]
    if min(counts) < 2:
        return 0.0
    slope = max(0.0, min(slope_of(steps, values, count)[0] for count in counts))
    return abs(_outer(metric, _inner(metric, end) - known.longer * slope * math.log(times)) - end)


def longer_by(config: TrainConfig) -> float:
    """How many times as long a run is that is given as much more as `more_of` says."""
    if config.budget is None:
        return 2.0
    return 1 - config.fall + more_seconds(config.budget) / config.budget


def more_seconds(budget: float) -> float:
    """About a third more than the budget, as a person says a time: 20 minutes after 15."""
    wanted = 4 / 3 * budget
    steps = (10, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800)
    return float(next((step for step in steps if step >= wanted * 0.9), 3600 * math.ceil(wanted / 3600)))


def more_of(config: TrainConfig) -> str:
    return "twice the steps" if config.budget is None else f"{duration(more_seconds(config.budget))} more"


def _interval(metric: str, *inner: float) -> Interval:
    low, middle, high = sorted(_outer(metric, each) for each in inner)
    return Interval(low, middle, high)


def _inner(metric: str, value: float) -> float:
    """A metric on the scale on which it falls along a line; a score keeps a point from both ends, so that 0 has a place."""
    if metric in SCORES:
        return -math.log((value + 1) / (101 - value))
    return math.log(max(1e-6, value))


def _outer(metric: str, inner: float) -> float:
    if metric in SCORES:
        return min(100.0, max(0.0, 102 / (1 + math.exp(inner)) - 1))
    return math.exp(inner)
