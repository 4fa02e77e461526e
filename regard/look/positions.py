"""Positions as a model is told them: the numbers themselves, and how two places are alike, by the way between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.files import JSON
from regard.look.panels import Chart, HeatMap, OnePanel, Panels, numbers

FEW = 8  # lines of a chart, at most


@dataclass(frozen=True, eq=False)
class PositionTable(Panels):
    """One kind of positions over T places."""

    kind: str  # sinusoidal, learned, rotary, alibi, shaw, t5, none
    table: np.ndarray  # (T or distances, numbers): what each place, or each distance, is told by
    rows: tuple[str, ...]  # of the table
    columns: tuple[str, ...]
    meaning: str  # what a number of the table is
    pairs: np.ndarray  # (T, T): how two places are alike, or what is added to their score (of the first head)
    pairs_mean: str  # what a number of the pairs is
    distances: np.ndarray  # (distances,): key minus query
    by_distance: Mapping[str, np.ndarray]  # the same by distance: name -> (distances,)
    pairs_of: str = ""  # of which head the pairs are, where each has its own

    def panels(self) -> Sequence[OnePanel]:
        places = tuple(map(str, range(len(self.pairs))))
        lines = dict(list(self.by_distance.items())[:FEW])
        left_out = len(self.by_distance) - len(lines)
        return [
            HeatMap(f"{self.kind}: {self.meaning}", self.table, self.rows, self.columns, self.meaning),
            HeatMap(f"{self.kind}: {self.pairs_mean}{self.pairs_of}", self.pairs, places, places, self.pairs_mean),
            Chart(f"{self.kind}: {self.pairs_mean}, by distance", self.distances, lines, x_label="key − query",
                  y_label=self.pairs_mean, note=f"{left_out} more are in the JSON" if left_out else ""),
        ]  # fmt: skip

    def data(self) -> dict[str, JSON]:
        by_distance = {name: numbers(values) for name, values in self.by_distance.items()}
        return {
            "title": self.title, "notes": list(self.notes), "kind": self.kind, "table": numbers(self.table),
            "meaning": self.meaning, "pairs": numbers(self.pairs), "pairs_mean": self.pairs_mean,
            "distances": self.distances.tolist(), "by_distance": by_distance,
        }  # fmt: skip
