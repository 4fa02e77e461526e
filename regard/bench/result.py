"""What measurements over lengths say: with which power of T a cost grows, and from which T on a kernel pays."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regard.bench.scout import Sizes
from regard.look.figures.costs import Costs

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


@dataclass(frozen=True)
class Point:
    """One kind of attention at one length."""

    length: int
    memory: int  # bytes at the peak, beside inputs
    inputs: int  # bytes
    forward: tuple[float, ...]  # seconds of each round
    both: tuple[float, ...]  # seconds of each round, forward and backward; empty where only forward was asked for


@dataclass(frozen=True)
class Line:
    """One kind of attention over all lengths."""

    name: str
    settings: dict[str, Any]
    points: tuple[Point, ...]

    def forward(self) -> dict[int, float]:
        """The median seconds at each length."""
        return {point.length: statistics.median(point.forward) for point in self.points}

    def time(self) -> dict[int, float]:
        """Of forward and backward, if that was asked for."""
        return {point.length: statistics.median(point.both or point.forward) for point in self.points}

    def memory(self) -> dict[int, float]:
        return {point.length: float(point.memory) for point in self.points}


@dataclass(frozen=True)
class AttentionBench:
    """All that was measured, and what it says."""

    sizes: Sizes
    rounds: int
    lines: tuple[Line, ...]
    how: str  # memory was measured: see bench_memory
    conditions: dict[str, Any]
    notes: tuple[str, ...] = ()

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    def pays_from(self, line: Line) -> float | None:
        """See `bench_growth.pays_from`; None also where there is nothing to compare with."""
        exact = self.line("exact")
        return None if exact is None or line.name == "exact" else pays_from(line.time(), exact.time())

    def costs(self) -> list[Costs]:
        """As a figure shows them."""
        return [Costs(line.name, line.time(), line.memory(), self.pays_from(line)) for line in self.lines]

    def data(self) -> dict[str, Any]:
        return {
            **asdict(self.sizes),
            "rounds": self.rounds,
            "memory_measured_by": self.how,
            "conditions": self.conditions,
            "notes": list(self.notes),
            "kernels": [self._data(line) for line in self.lines],
        }

    def _data(self, line: Line) -> dict[str, Any]:
        growth = {"forward": line.forward(), "time": line.time(), "memory": line.memory()}
        return {
            **asdict(line),
            "growth": {name: exponent(costs) for name, costs in growth.items()},
            "pays_from": self.pays_from(line),
        }
