"""Routing of experts: which token of a text goes to which expert, with which weight, layer by layer, and the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.files import JSON
from regard.look.panels import Facts, HeatMap, OnePanel, Panels, numbers


@dataclass(frozen=True, eq=False)
class LayerRouting:
    """The choice of one layer for each token."""

    name: str
    weights: np.ndarray  # (T, experts): what an expert's answer is multiplied by; 0 where it is not asked
    probabilities: np.ndarray  # (T, experts): of all, before the choice

    @property
    def load(self) -> np.ndarray:
        """The share of all questions that each expert gets: (experts,)."""
        asked = self.weights > 0
        found: np.ndarray = asked.sum(axis=0) / asked.sum()
        return found

    def data(self) -> dict[str, JSON]:
        return {"name": self.name, "weights": numbers(self.weights), "probabilities": numbers(self.probabilities),
                "load": numbers(self.load)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Routing(Panels):
    """The experts of every layer for one text."""

    labels: tuple[str, ...]
    layers: tuple[LayerRouting, ...]
    used: int  # experts that each token goes to

    def panels(self) -> Sequence[OnePanel]:
        experts = tuple(f"expert {number}" for number in range(self.layers[0].weights.shape[1]))
        maps: list[OnePanel] = [
            HeatMap(f"{each.name}: which token goes where", each.weights.T, experts, self.labels, "weight", top=1.0)
            for each in self.layers
        ]
        lines = tuple((each.name, *(f"{share:.0%}" for share in each.load)) for each in self.layers)
        even = f"the share of all questions that each gets; evenly it would be {1 / len(experts):.0%}"
        return [*maps, Facts("load", ("layer", *experts), lines, note=even)]

    def data(self) -> dict[str, JSON]:
        return {"title": self.title, "notes": list(self.notes), "labels": list(self.labels), "used": self.used,
                "layers": [each.data() for each in self.layers]}  # fmt: skip
