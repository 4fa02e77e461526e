"""The end of a run, foretold from its validations so far. No torch here.

While the learning rate stays at its peak, a validation loss gets better about linearly in the logarithm of the time; while the
rate falls it gets better once more, by what the noise of large steps had cost (Hägele et al. 2024, section 3). So after a share
p of the updates, with the rate at a share r of its peak and the slope s = -d log L / d log t of the last validations,

    log L_end = log L_now - (m + n · r) · s · log(1 / p) - d · r

A score follows the loss: its logit changes in proportion, by as much as it did so far in this run. The constants and the width
of the interval are not guessed: they are those that held in recorded runs of several tasks (`benchmarks/forecasts.py`, rows in
`docs/results/forecasts.json`), the width by quantiles of what was left over, in units of the change foretold and of the scatter
of the validations (split conformal prediction, Lei et al. 2018). A loss that no longer gets better has no slope, and keeps its
best value, that of the weights which are kept.
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

SCHEDULES = ("linear", "cosine", "wsd")  # schedules that say when a run ends
LOSSES = ("loss", "bits_per_byte")
SCORES = ("bleu", "bleu4", "chrf", "exact", "accuracy", "f1")  # out of 100, more is better
LEAST_POINTS = 3  # validations, before which nothing is said
SPOKEN = (0.25, 0.97)  # share of a run in which something is said
RECENT = 1 / 3  # the slope is that of the last third of the validations
LATE = (0.2, 0.5)  # of the time so far: since when validations tell the gain of a longer run
HALF_WAY = 0.4, 0.65  # share of a run at which its forecast is held against what came
ROUND = 5  # digits after the point of what is written down


@dataclass(frozen=True)
class Widths:
    """Quantiles (a tenth, a half, nine tenths) of what was left over in recorded runs, in units of change and scatter."""

    low: float
    middle: float
    high: float
    scatter: float  # how many times the scatter of the validations counts into a unit
    least: float  # beside the change and the scatter

    def interval(self, now: float, change: float, scatter: float, best: float) -> tuple[float, float, float]:
        """Low, middle and high of a value that falls by about `change`; the best so far bounds them."""
        unit = change + self.scatter * scatter + self.least
        low, middle, high = (min(best, now - change + width * unit) for width in (self.low, self.middle, self.high))
        return low, middle, high


# m, n, d by the first 36 recorded runs, the widths by 55 (246 validations), 44 of them with a score: Multi30k, SST-2, TREC,
# Shakespeare and built-in data, 12 to 320 seconds of a core each, the rate falling all the time or in the last half of it.
SLOPE, FALLING, FALL = 0.5, 0.2, 0.03  # m, n, d
FOLLOWS, MOST = 0.5, 6.0  # how far a score follows the loss, as a share of how it did so far; and the most of that
LONGER = (
    1.0  # gain of a longer run as a share of what the slope says; in 10 runs done at two lengths -0.3 to 4, median 1.25
)
LOSS = Widths(-0.66, 0.07, 0.57, scatter=2.0, least=0.003)
SCORE = Widths(-1.41, -0.39, 0.07, scatter=2.0, least=0.03)


@dataclass(frozen=True)
class Interval:
    """An interval that holds about 8 times of 10, and its middle."""

    low: float
    middle: float
    high: float


def look_ahead(rows: Sequence[Row], config: TrainConfig, share: float, rate: float) -> Outlook | None:
    """Foretell the end of a run that has done a `share` of its updates, from its log; `rate` is a share of the peak rate.

    None while there is too little to tell by.
    """
    share, found = round(share, ROUND), []
    for metric in dict.fromkeys((config.select, "loss")):
        curve = curve_of(rows, metric)
        interval = None if curve is None else interval_at_end(curve, share, rate)
        if curve is not None and interval is not None:
            gain = gain_of_longer(curve, interval.middle, longer_by(config))
            numbers = (curve.now, interval.low, interval.high, gain)
            found.append(Expected(metric, *(round(number, ROUND) for number in numbers)))
            step = int(curve.steps[-1])
    return Outlook(step, share, tuple(found), more_of(config)) if found else None


def outlook_row(outlook: Outlook) -> dict[str, object]:
    """An outlook as a row of the log."""
    expected = {each.metric: [each.low, each.high] for each in outlook.expected}
    return {"kind": "outlook", "step": outlook.step, "share": outlook.share, "expected": expected}


def half_way(rows: Sequence[Row]) -> Row | None:
    """The row of the log with what was foretold about half way; None if there is none."""
    low, high = HALF_WAY
    found = [row for row in rows if row.get("kind") == "outlook" and low <= row["share"] <= high]
    return min(found, key=lambda row: abs(float(row["share"]) - 0.5), default=None)


@dataclass(frozen=True, eq=False)
class Curve:
    """The validations of a run: a metric and the loss, each on the scale on which it falls."""

    metric: str
    steps: np.ndarray
    values: np.ndarray
    losses: np.ndarray

    @property
    def now(self) -> float:
        return _outer(self.metric, float(self.values[-1]))


def curve_of(rows: Sequence[Row], metric: str) -> Curve | None:
    """The validations in a log; None of a metric that nothing is known of, or of one validation."""
    if metric not in (*LOSSES, *SCORES):
        return None
    found = [(row["step"], row.get(metric), row["loss"]) for row in rows if row.get("kind") == "valid"]
    whole = [row for row in found if all(value is not None and math.isfinite(value) for value in row)]
    if len(whole) < 2:
        return None
    steps, values, losses = zip(*whole, strict=True)
    inner = [_inner(metric, value) for value in values]
    return Curve(metric, np.array(steps, float), np.array(inner), np.array([_inner("loss", loss) for loss in losses]))


def interval_at_end(curve: Curve, share: float, rate: float) -> Interval | None:
    """The interval of a metric at the end of a run, from its validations after a `share` of the updates."""
    if len(curve.steps) < LEAST_POINTS or not SPOKEN[0] <= share <= SPOKEN[1]:
        return None
    losses = curve.values if curve.metric in LOSSES else curve.losses
    slope, scatter = slope_of(curve.steps, losses, max(LEAST_POINTS, math.ceil(RECENT * len(losses))))
    change = (SLOPE + FALLING * rate) * max(0.0, slope) * math.log(1 / share) + FALL * rate
    now, best = float(curve.values[-1]), float(curve.values.min())
    if curve.metric in SCORES:
        follows, scatter = follows_loss(curve)
        scatter *= math.sqrt(2 * (1 - share))  # fewer validations are still to come
        inner = SCORE.interval(now, FOLLOWS * follows * change, scatter, best)
    elif slope > 0:
        inner = LOSS.interval(now, change, scatter, best)
    else:  # it does not get better any more: the best weights so far are kept
        inner = best - 2 * scatter * (1 - share), best, best
    low, middle, high = sorted(_outer(curve.metric, each) for each in inner)
    return Interval(low, middle, high)


def slope_of(steps: np.ndarray, values: np.ndarray, count: int) -> tuple[float, float]:
    """How much a value falls while the time grows e-fold, by least squares over the last `count`; and the scatter about it."""
    times, last = np.log(steps[-count:] / steps[-1]), values[-count:]
    slope, start = np.polyfit(times, last, 1)
    return float(-slope), float(np.sqrt(np.mean((last - start - slope * times) ** 2)))


def follows_loss(curve: Curve) -> tuple[float, float]:
    """How much a score changed with the loss so far in this run, by least squares; and its scatter about that."""
    losses, values = curve.losses - curve.losses.mean(), curve.values - curve.values.mean()
    follows = min(MOST, max(0.0, float(losses @ values / max(1e-12, float(losses @ losses)))))
    return follows, float(np.std(values - follows * losses))


def gain_of_longer(curve: Curve, end: float, times: float) -> float:
    """The gain over `end` of a run that is so many `times` as long; positive is better.

    The slope of the loss is that of all validations but early ones, unless it has become flatter in the last half of them.
    """
    losses = curve.values if curve.metric in LOSSES else curve.losses
    counts = [max(2, int(np.sum(curve.steps >= since * curve.steps[-1]))) for since in LATE]
    slope = min(slope_of(curve.steps, losses, count)[0] for count in counts)
    change = LONGER * max(0.0, slope) * math.log(times)
    if curve.metric in SCORES:
        change *= FOLLOWS * follows_loss(curve)[0]
    return abs(_outer(curve.metric, _inner(curve.metric, end) - change) - end)


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


def _inner(metric: str, value: float) -> float:
    """A metric on the scale on which it falls along a line; a score keeps a point from both ends, so that 0 has a place."""
    if metric in SCORES:
        return -math.log((value + 1) / (101 - value))
    return math.log(max(1e-6, value))


def _outer(metric: str, inner: float) -> float:
    if metric in SCORES:
        return min(100.0, max(0.0, 102 / (1 + math.exp(inner)) - 1))
    return math.exp(inner)
