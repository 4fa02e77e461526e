"""Landscapes of the loss as they are shown: a table, lines, maps with contours, and what went on in each layer in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from regard.files import JSON
from regard.look.panels import Chart, Contours, Facts, OnePanel, Panels, numbers

HIGH = 3.0  # a map's last colour: so many times the loss at half of the distance, of the steepest model
MOST = 12  # lines of a chart
CLEAR = 0.005  # share of an eigenvalue below which what it may be off is not told


@dataclass(frozen=True)
class Eigenvalue:
    """An eigenvalue λ that was found, and ‖H v - λ v‖ of its unit vector: one lies within that of it."""

    value: float
    residual: float

    def __str__(self) -> str:
        told = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        return told + (f" ± {self.residual:.1g}" if self.residual > CLEAR * abs(self.value) else "")


@dataclass(frozen=True)
class Eigenvalues:
    """The largest and the smallest of a Hessian, and how often it was applied."""

    largest: Eigenvalue
    smallest: Eigenvalue
    iterations: int


@dataclass(frozen=True, eq=False)
class Surface:
    """The loss of one model around where it is."""

    name: str
    loss: float  # where it is
    examples: int  # what the loss is a mean over
    places: np.ndarray  # (X,): distances α from it, and β
    line: np.ndarray  # (X,): along the first direction
    grid: np.ndarray  # (X, X): [row of β, column of α]
    rises: Mapping[float, float]  # by the distance
    directions: int  # over which a rise is the mean
    eigenvalues: Eigenvalues | None

    def summary(self) -> dict[str, JSON]:
        """The numbers, without those of the maps."""
        found = self.eigenvalues
        return {
            "name": self.name, "loss": self.loss, "examples": self.examples, "directions": self.directions,
            "rises": {f"{radius:g}": value for radius, value in self.rises.items()},
            "eigenvalues": None if found is None else asdict(found),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class ByLayer:
    """One number of each layer at some steps of a training."""

    steps: np.ndarray  # (N,)
    layers: Mapping[str, np.ndarray]  # name -> (N,)

    def data(self) -> dict[str, JSON]:
        layers: dict[str, JSON] = {name: numbers(values) for name, values in self.layers.items()}
        return {"steps": [int(step) for step in self.steps], "layers": layers}


@dataclass(frozen=True, eq=False)
class Landscape(Panels):
    """Landscapes of some runs beside each other; gradients and entropies by run, where there are any."""

    called = "a landscape"

    surfaces: tuple[Surface, ...]
    gradients: Mapping[str, ByLayer]
    entropies: Mapping[str, ByLayer]

    def panels(self) -> Sequence[OnePanel]:
        return [
            self._table(),
            self._lines(),
            *(self._map(each, begins_line=not number) for number, each in enumerate(self.surfaces)),
            *_charts("gradient norm by layer", self.gradients, "norm", logarithmic=True),
            *_charts("attention entropy by layer", self.entropies, "nats", logarithmic=False),
        ]

    def data(self) -> dict[str, JSON]:
        return {
            "title": self.title,
            "notes": list(self.notes),
            "surfaces": [
                {
                    **each.summary(),
                    "places": numbers(each.places),
                    "line": numbers(each.line),
                    "grid": numbers(each.grid),
                }
                for each in self.surfaces
            ],
            "gradients": {name: each.data() for name, each in self.gradients.items()},
            "entropies": {name: each.data() for name, each in self.entropies.items()},
        }

    def _table(self) -> Facts:
        radii = tuple(self.surfaces[0].rises)
        columns = ("model", "loss", *(f"rise at {radius:g}" for radius in radii), "largest eigenvalue", "smallest")
        lines = tuple(
            (each.name, f"{each.loss:.3f}", *(f"{each.rises[radius]:.3g}" for radius in radii), *_ends(each))
            for each in self.surfaces
        )
        return Facts("how sharp the place is", columns, lines)

    def _lines(self) -> Chart:
        lines = {each.name: each.line for each in self.surfaces}
        high = self._high()
        cut = {name: np.where(line > high, np.nan, line) for name, line in lines.items()}
        return Chart(
            "along one direction", self.surfaces[0].places, cut, "filter-normalised distance", "loss",
            note=f"losses above {high:.3g} are left out" if any(line.max() > high for line in lines.values()) else "",
        )  # fmt: skip

    def _map(self, each: Surface, begins_line: bool) -> OnePanel:
        names = tuple(f"{place:g}" for place in np.round(each.places, 3))
        return Contours(
            f"along two directions: {each.name}", each.grid[::-1], names[::-1], names, "loss", top=self._high(),
            places=each.places, begins_line=begins_line,
        )  # fmt: skip

    def _high(self) -> float:
        """The loss of the last colour, the same for all."""
        most = max(float(np.nanmax(each.grid)) for each in self.surfaces)
        steepest = max(each.loss + max(each.rises.get(0.5, 0.0), 0.0) for each in self.surfaces)
        return min(most, HIGH * steepest)


def _ends(each: Surface) -> tuple[str, str]:
    found = each.eigenvalues
    return ("", "") if found is None else (str(found.largest), str(found.smallest))


def _charts(what: str, found: Mapping[str, ByLayer], unit: str, *, logarithmic: bool) -> Iterator[Chart]:
    """A chart for each run, with lines of its layers; of many, some from the first to the last."""
    for number, (run, each) in enumerate(found.items()):
        names = list(each.layers)
        kept = [names[place] for place in sorted({round(place) for place in np.linspace(0, len(names) - 1, MOST)})]
        note = f"{len(kept)} of {len(names)} layers" if len(kept) < len(names) else ""
        lines = {name or "(itself)": each.layers[name] for name in kept}
        yield Chart(
            f"{what}: {run}", each.steps, lines, "update", unit, logarithmic=logarithmic, note=note,
            begins_line=not number,
        )  # fmt: skip
