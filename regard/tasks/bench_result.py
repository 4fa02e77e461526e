"""What `regard bench attention` found: every round, and what the rounds say. Read from here, drawn by `look/growth.py`."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from regard.look.growth import Costs
from regard.tasks.bench_growth import exponent, pays_from
from regard.tasks.bench_subjects import Sizes


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
