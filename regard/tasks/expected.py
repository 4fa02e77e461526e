"""Results that were measured with runs by the clock: what to expect of data of a size in a time. No torch here.

A value is that of the plane through the measured ones over log(examples) and log(minutes), by least squares, or the flattest
where they are too few for one; what a measured one lies above or below it counts the more, the nearer it is (Shepard 1968), so
that what was measured is given as it was. Far from all of them nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measured:
    """One result on a test set, of a run that nobody configured, in minutes of one core (`benchmarks/how_much.py`)."""

    task: str
    data: str  # as its paper calls it
    examples: int
    minutes: float
    metric: str
    value: float


EXPECTED = (
    Measured("translate", "Multi30k", 1_000, 1, "bleu", 12.56),
    Measured("translate", "Multi30k", 1_000, 3, "bleu", 15.3),
    Measured("translate", "Multi30k", 5_000, 1, "bleu", 17.6),
    Measured("translate", "Multi30k", 5_000, 3, "bleu", 22.96),
    Measured("translate", "Multi30k", 29_000, 1, "bleu", 23.72),
    Measured("translate", "Multi30k", 29_000, 3, "bleu", 36.01),
    Measured("translate", "Multi30k", 29_000, 10, "bleu", 40.18),
    Measured("classify", "SST-2", 300, 0.33, "accuracy", 60.63),
    Measured("classify", "SST-2", 300, 1, "accuracy", 60.63),
    Measured("classify", "SST-2", 1_400, 0.33, "accuracy", 70.4),
    Measured("classify", "SST-2", 1_400, 1, "accuracy", 70.13),
    Measured("classify", "SST-2", 6_920, 0.33, "accuracy", 79.96),
    Measured("classify", "SST-2", 6_920, 1, "accuracy", 80.62),
    Measured("translate", "Multi30k", 5_000, 15, "bleu", 24.03),
    Measured("translate", "Multi30k", 29_000, 30, "bleu", 41.29),
    Measured("classify", "SST-2", 6_920, 3, "accuracy", 81.71),
)
UNITS = {"generate": "characters", "translate": "pairs", "classify": "texts"}
FAR = math.log(8.0)  # from the nearest measured one, beyond which nothing is said


@dataclass(frozen=True)
class Expectation:
    """A value to expect, and the measured results that it is taken from, the nearest first."""

    metric: str
    value: float
    by: tuple[Measured, ...]

    def __str__(self) -> str:
        near = self.by[0]
        unit = UNITS.get(near.task, "examples")
        measured = f"measured: {near.value:.3g} with {near.examples:,} {unit} in {near.minutes:.2g} min of one core"
        return f"{self.metric} about {self.value:.2g} on data like {near.data} ({measured})"


def expected(task: str, examples: float, minutes: float, table: tuple[Measured, ...] = EXPECTED) -> Expectation | None:
    """The value to expect of so many examples of a task in so many minutes; None where nothing like it was measured."""
    rows = [(distance(each, examples, minutes), each) for each in table if each.task == task]
    rows.sort(key=lambda row: row[0])
    if not rows or rows[0][0] > FAR:
        return None
    near = [(apart, each) for apart, each in rows if each.metric == rows[0][1].metric and each.data == rows[0][1].data]
    value = interpolated([each for _, each in near], examples, minutes)
    return Expectation(near[0][1].metric, min(100.0, max(0.0, value)), tuple(each for _, each in near))


def interpolated(rows: Sequence[Measured], examples: float, minutes: float) -> float:
    """The plane through the measured values, and what the near ones lie above or below it."""
    places = np.array([place(each.examples, each.minutes) for each in rows])  # (rows, 2)
    values, here = np.array([each.value for each in rows]), np.array(place(examples, minutes))
    middle = places.mean(axis=0)
    gradient = np.linalg.lstsq(places - middle, values - values.mean(), rcond=None)[
        0
    ]  # the least one, if there are many
    above = values - values.mean() - (places - middle) @ gradient
    weights = 1 / np.maximum(1e-6, np.linalg.norm(places - here, axis=1)) ** 2
    return float(values.mean() + (here - middle) @ gradient + weights @ above / weights.sum())


def place(examples: float, minutes: float) -> tuple[float, float]:
    return math.log(max(1.0, examples)), math.log(max(0.01, minutes))


def distance(measured: Measured, examples: float, minutes: float) -> float:
    """How far from a measured result, in powers of e of the examples and of the minutes."""
    return math.dist(place(measured.examples, measured.minutes), place(examples, minutes))
