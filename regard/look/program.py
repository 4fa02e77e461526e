"""A program that was chosen by attention: the weights of each choice, step by step, and the rows that each step selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.programs import ANSWER, OPERATIONS, Step, Table
from regard.files import JSON
from regard.look.panels import HeatMap, OnePanel, Panels


@dataclass(frozen=True)
class StepWeights:
    """The weights of one step: of every operation, every column of the table, every number of the question."""

    operation: tuple[float, ...]
    column: tuple[float, ...]
    number: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ProgramView(Panels):
    """Panels of a program: operations, columns, numbers, and rows."""

    table: Table
    steps: tuple[Step, ...]
    weights: tuple[StepWeights, ...]
    rows: tuple[tuple[int, ...], ...]  # selected behind each step, from 0
    numbers: tuple[float, ...]

    def panels(self) -> Sequence[OnePanel]:
        """A column for each step in all of them."""
        found = [self._panel("operation", [each.operation for each in self.weights], OPERATIONS)]
        columns = [each.column for each in self.weights]
        if np.any(columns):
            found.append(self._panel("column", columns, self.table.columns))
        if self.numbers:
            named = tuple(f"{each:g}" for each in self.numbers)
            found.append(self._panel("number", [each.number for each in self.weights], named))
        return [*found, self._panel("rows selected behind it", self.selected(), self.labels, "selected")]

    def _panel(
        self,
        title: str,
        values: Sequence[Sequence[float]] | np.ndarray,
        names: tuple[str, ...],
        meaning: str = "weight",
    ) -> HeatMap:
        numbers = tuple(str(number) for number in range(1, len(self.steps) + 1))
        return HeatMap(title, np.array(values).T, names, numbers, meaning, 1.0)

    def selected(self) -> np.ndarray:
        """One where a step selects a row, zero where not; NaN behind a step that gives an answer: (steps, rows)."""
        found = np.zeros((len(self.steps), len(self.table.rows)))
        for place, (step, rows) in enumerate(zip(self.steps, self.rows, strict=True)):
            found[place, list(rows)] = 1.0
            if step.operation in ANSWER:
                found[place] = np.nan
        return found

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows by their number and their first word."""
        words = [place for place, is_number in enumerate(self.table.numeric) if not is_number]
        return tuple(
            " ".join([str(number), *(str(row[place]) for place in words[:1])])
            for number, row in enumerate(self.table.rows, start=1)
        )

    def data(self) -> dict[str, JSON]:
        return {
            "title": self.title,
            "notes": list(self.notes),
            "operations": list(OPERATIONS),
            "columns": list(self.table.columns),
            "numbers": list(self.numbers),
            "steps": [
                {
                    "step": str(step),
                    "operation": list(weights.operation),
                    "column": list(weights.column),
                    "number": list(weights.number),
                    "rows": list(rows),
                }
                for step, weights, rows in zip(self.steps, self.weights, self.rows, strict=True)
            ],
        }
