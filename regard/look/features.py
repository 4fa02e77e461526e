"""Feature maps of a convolutional network for one picture, layer by layer, and what a place of each layer sees.

A receptive field is told three ways: by formula; by what can reach the place at all, measured; and by how much each pixel
of this picture moves it, which is its gradient (the effective field of Luo et al. 2016, mostly smaller).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.files import JSON
from regard.look.panels import Box, Facts, Gallery, HeatMap, OnePanel, Panels, Photo, numbers

STRONGEST = 8  # channels of a layer that are shown


@dataclass(frozen=True, eq=False)
class LayerFeatures:
    """What one layer makes of a picture."""

    name: str
    channels: int
    chosen: tuple[int, ...]  # the channels with the greatest mean, the strongest first
    maps: np.ndarray  # (chosen, rows, columns)
    field: int | None  # pixels a side that a place sees, by formula; None: the whole picture
    jump: int | None  # pixels from a place to the next

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = self.maps.shape[1:]
        return rows, columns

    def panel(self) -> Gallery:
        rows, columns = self.grid
        maps = tuple(HeatMap(f"channel {each}", values) for each, values in zip(self.chosen, self.maps, strict=True))
        return Gallery(f"{self.name}: {self.channels} channels of {rows} x {columns} places", maps)

    def data(self) -> dict[str, JSON]:
        return {"name": self.name, "channels": self.channels, "grid": list(self.grid), "field": self.field,
                "jump": self.jump, "chosen": list(self.chosen), "maps": numbers(self.maps)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class PlaceField:
    """What one place of one layer sees of the picture."""

    layer: int
    place: tuple[int, int]  # row, column
    formula: Box  # left, top, right, bottom: pixels
    reached: Box  # the pixels that reach the place, measured
    gradient: np.ndarray  # (height, width): how much each pixel moves the place

    @property
    def moved(self) -> float:
        """The share of the reached pixels that move the place on this picture."""
        left, top, right, bottom = self.reached
        return float((self.gradient > 0).sum() / max(1.0, (right - left) * (bottom - top)))

    def data(self) -> dict[str, JSON]:
        return {"layer": self.layer, "place": list(self.place), "formula": list(self.formula), "reached": list(self.reached),
                "moved": self.moved, "gradient": numbers(self.gradient)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class FeatureMaps(Panels):
    """Feature maps of all layers, and the field of a place of one of them."""

    layers: tuple[LayerFeatures, ...]
    field: PlaceField
    picture: np.ndarray  # (height, width, 3) bytes, as the model sees it

    def panels(self) -> Sequence[OnePanel]:
        found: list[OnePanel] = [self._photo(), self._gradient(), self._facts()]
        return [*found, *(each.panel() for each in self.layers)]

    def _photo(self) -> Photo:
        row, column = self.field.place
        name = self.layers[self.field.layer].name
        return Photo(
            f"what place ({row}, {column}) of {name} sees",
            self.picture,
            {"by formula": self.field.formula, "measured": self.field.reached},
        )

    def _gradient(self) -> HeatMap:
        moved = f"{self.field.moved:.0%} of the pixels that can reach the place move it on this picture"
        height, width = self.gradient_shape
        labels = tuple(map(str, range(height))), tuple(map(str, range(width)))
        return HeatMap("how much each pixel moves it", self.field.gradient, *labels, "|∂ place / ∂ pixel|", note=moved)

    @property
    def gradient_shape(self) -> tuple[int, int]:
        height, width = self.field.gradient.shape
        return height, width

    def _facts(self) -> Facts:
        lines = tuple(
            (
                each.name,
                str(each.channels),
                f"{each.grid[0]} x {each.grid[1]}",
                "all" if each.field is None else str(each.field),
                "" if each.jump is None else str(each.jump),
            )
            for each in self.layers
        )
        columns = ("layer", "channels", "places", "sees", "jump")
        note = "sees: pixels a side, by formula; jump: pixels from a place to the next"
        return Facts("each layer", columns, lines, note)

    def data(self) -> dict[str, JSON]:
        return {"title": self.title, "notes": list(self.notes), "layers": [each.data() for each in self.layers],
                "field": self.field.data()}  # fmt: skip
