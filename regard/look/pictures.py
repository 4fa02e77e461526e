"""Maps over a picture: for each word, head or layer, a weight on every place of a grid."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError, UsageError
from regard.files import JSON, write_bytes
from regard.look.colors import scale_top
from regard.look.labels import visible, visible_title
from regard.look.shown import PICTURES, Shown, as_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.look.overlay import Box, Boxes

NEARLY_EVEN = 0.1  # of the weight lies elsewhere than in an even map


@dataclass(frozen=True)
class Even:
    """Places of equal size over one box of a picture, such as all of it."""

    box: Box  # left, top, right, bottom

    def cell(self, row: int, column: int, grid: tuple[int, int]) -> Box:
        left, top, right, bottom = self.box
        wide, high = (right - left) / grid[1], (bottom - top) / grid[0]
        return left + column * wide, top + row * high, left + (column + 1) * wide, top + (row + 1) * high


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Panel:
    """Weights that one word, head or layer gives each place."""

    title: str
    weights: np.ndarray  # (rows, columns), 0 or more
    note: str = ""

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        if not np.isfinite(weights).all() or (weights < 0).any():
            wrong = weights[~(np.isfinite(weights) & (weights >= 0))][0]
            raise RegardError(f"a weight of {self.title!r} is {wrong:g}; give numbers, 0 or more")

    @property
    def name(self) -> str:
        """The title as it can be shown; a word that is only a space is ␣."""
        return visible_title(self.title) or visible(self.title)

    @property
    def peak(self) -> float:
        return float(self.weights.max())

    @property
    def even(self) -> bool:
        """Whether every place weighs about the same: a tenth of the weight, moved, would make it so exactly.

        Such a panel has nothing to point at, and colours would only be a veil over the picture.
        """
        total, places = float(self.weights.sum()), self.weights.size
        return places > 1 and total > 0 and float(np.abs(self.weights / total - 1 / places).sum()) / 2 <= NEARLY_EVEN

    @property
    def value(self) -> str:
        """The number beside the name: the greatest weight, unless none is."""
        return "even" if self.even else f"{self.peak:.2g}"


@dataclass(frozen=True, eq=False)
class PictureMap(Shown):
    """A picture and panels of weights over its places."""

    called = "a map"

    picture: np.ndarray  # (H, W, 3) bytes: the original, not what was cut out of it
    boxes: Boxes  # where each place lies on the original
    grid: tuple[int, int]  # rows, columns
    panels: tuple[Panel, ...]
    title: str = ""
    caption: str = ""
    heads: tuple[int, ...] = ()  # of each layer, where one can be chosen
    colored: bool = False  # whether the picture keeps its colours below the weights, where they are asked about

    def __repr__(self) -> str:
        shape = f"{self.grid[0]} x {self.grid[1]}"
        return brief(self, quoted(self.title) if self.title else "", f"{len(self.panels)} panels", shape)

    def __post_init__(self) -> None:
        picture = np.asarray(self.picture)
        if picture.dtype == np.uint8 and (picture.ndim == 2 or picture.shape[2:] == (1,)):  # grey
            picture = np.repeat(picture.reshape(*picture.shape[:2], 1), 3, axis=2)  # (H, W, 3)
        for name, value in (("picture", picture), ("grid", tuple(self.grid)), ("panels", tuple(self.panels))):
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        shape = self.picture.shape
        if self.picture.dtype != np.uint8 or self.picture.ndim != 3 or shape[2] != 3 or 0 in shape:
            raise RegardError(f"a picture is bytes (H, W, 3), not {self.picture.dtype} of shape {shape}")
        if len(self.grid) != 2 or min(self.grid) < 1:
            raise RegardError(f"a grid is (rows, columns), not {self.grid}")
        if not self.panels:
            raise RegardError("a map without panels: give one for each word, head or layer")
        for panel in self.panels:
            if panel.weights.shape != self.grid:
                raise RegardError(
                    f"{panel.title!r} has weights of shape {panel.weights.shape} for a grid of {self.grid}"
                )

    @property
    def top(self) -> float:
        """The weight that gets the last colour, the same in all panels; those that are even have none."""
        drawn = [panel.weights for panel in self.panels if not panel.even] or [self.panels[0].weights]
        return scale_top(np.stack(drawn))

    @property
    def even(self) -> bool:
        """Whether no panel has anything to point at."""
        return all(panel.even for panel in self.panels)

    @property
    def seen(self) -> Box:
        """The box that the places cover, in pixels of the picture; it may reach beyond its edges."""
        first = self.boxes.cell(0, 0, self.grid)
        last = self.boxes.cell(self.grid[0] - 1, self.grid[1] - 1, self.grid)
        return first[0], first[1], last[2], last[3]

    @property
    def cut(self) -> bool:
        """Whether the model did not see all of the picture (by half a pixel or more)."""
        (left, top, right, bottom), (height, width) = self.seen, self.picture.shape[:2]
        return left > 0.5 or top > 0.5 or right < width - 0.5 or bottom < height - 0.5

    def outside(self, panel: Panel) -> float:
        """The weight of a panel on places beyond the picture: on the border around it."""
        height, width = self.picture.shape[:2]
        total = 0.0
        for (row, column), weight in np.ndenumerate(panel.weights):
            left, top, right, bottom = self.boxes.cell(row, column, self.grid)
            if right <= 0 or bottom <= 0 or left >= width or top >= height:
                total += float(weight)
        return total

    def note(self, panel: Panel) -> str:
        """The panel's own note, whether it is even, and how much weight lies where there is no picture."""
        outside = self.outside(panel)
        beyond = f"{outside:.2g} outside the picture" if outside else ""
        even = f"about {panel.weights.mean():.2g} everywhere" if panel.even else ""
        return " · ".join(each for each in (panel.note, even, beyond) if each)

    def save(self, path: str | Path, *, smooth: bool = False, own_scale: bool = False) -> Path:
        """Write the map in the format that the suffix names, whole or not at all. `figure` says what the options do."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix in PICTURES:
            return write_bytes(path, as_file(self.figure(smooth=smooth, own_scale=own_scale), suffix))
        if suffix in self._texts() and (smooth or own_scale):
            raise UsageError(f"{suffix} has the weights as they are; smooth and own_scale are for .png and .svg")
        return super().save(path)

    def data(self) -> dict[str, JSON]:
        """Everything but the pixels, as JSON holds it."""
        rows, columns = self.grid
        height, width = self.picture.shape[:2]
        panels = [
            {"title": panel.title, "note": panel.note, "peak": panel.peak, "outside": self.outside(panel),
             "weights": panel.weights.tolist()}
            for panel in self.panels
        ]  # fmt: skip
        boxes = [
            [list(map(float, self.boxes.cell(row, column, self.grid))) for column in range(columns)]
            for row in range(rows)
        ]
        return {
            "title": self.title, "caption": self.caption, "height": height, "width": width,
            "grid": list(self.grid), "heads": list(self.heads), "boxes": boxes, "panels": panels,
        }  # fmt: skip

    def csv(self) -> str:
        """A line for each place of each panel, with its box on the picture."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "title", "row", "column", "left", "top", "right", "bottom", "weight"])
        for number, panel in enumerate(self.panels):
            for (row, column), weight in np.ndenumerate(panel.weights):
                box = map(float, self.boxes.cell(row, column, self.grid))
                writer.writerow([number, panel.title, row, column, *box, float(weight)])
        return file.getvalue()

    def html(self) -> str:
        """A whole page: no script, nothing loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def terminal(self, width: int = 80, color: bool = False) -> str:
        """The map for a terminal of that width: with ANSI colours, or with the shades ░▒▓█."""
        return self._terminal(width, color)

    def figure(self, *, smooth: bool = False, own_scale: bool = False) -> Figure:
        """A matplotlib figure: the picture, then a panel each; the places are flat squares on one scale of colour.

        `smooth` runs a curve through the places, `own_scale` ends each panel's scale at its peak; the figure says so.
        """
        return self._draw("figure", smooth=smooth, own_scale=own_scale)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json, ".csv": self.csv}
