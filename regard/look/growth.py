"""How a number grows or falls with the number of accelerators, for each way to lay a model out on them: a chart and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.files import JSON
from regard.look.panels import Chart, Facts, OnePanel, Panels, numbers


@dataclass(frozen=True, eq=False)
class Growth(Panels):
    """Efficiency and seconds of a step over numbers of ranks, of each layout; NaN where it does not fit."""

    called = "a plan"

    ranks: tuple[int, ...]
    efficiency: Mapping[str, np.ndarray]  # layout -> (N,), in percent
    seconds: Mapping[str, np.ndarray]  # layout -> (N,)
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def panels(self) -> Sequence[OnePanel]:
        places, ticks = np.arange(len(self.ranks)), tuple(map(str, self.ranks))
        return [
            Chart("efficiency", places, self.efficiency, "ranks", "% of the time computes", ticks=ticks),
            Chart("time of a step", places, self.seconds, "ranks", "seconds", logarithmic=True, ticks=ticks),
            Facts("layouts", self.columns, self.rows),
        ]

    def data(self) -> dict[str, JSON]:
        return {
            "title": self.title,
            "notes": list(self.notes),
            "ranks": list(self.ranks),
            "efficiency": {name: numbers(values) for name, values in self.efficiency.items()},
            "seconds": {name: numbers(values) for name, values in self.seconds.items()},
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
        }
