"""Views of what is not attention, made of panels: heat maps with labels, galleries, charts, pictures with boxes, tables.

A view derives from `Panels` and says of which panels it is made; how a panel looks in each medium is told once, in
`figures/panels.py`, `pages/panels.py` and `terminal/panels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.errors import RegardError
from regard.files import JSON
from regard.look.colors import scale_top
from regard.look.labels import visible, visible_title
from regard.look.shown import Shown

UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class HeatMap:
    """Numbers as colours. Without labels it is one of a gallery; with `texts` each cell has words in it."""

    title: str
    values: np.ndarray  # (R, C); NaN: there is none
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    meaning: str = ""  # what a number is: "update gate"
    top: float | None = None  # the number with the last colour; None: the smallest round one that none exceeds
    texts: tuple[tuple[str, ...], ...] = ()  # (R, C) words in the cells
    row_tokens: bool = False  # rows are tokens, as columns are, and not names
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        shape = (len(self.rows), len(self.columns))
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise RegardError(f"a heat map has rows and columns, (R, C), not shape {self.values.shape}")
        if self.labelled and shape != self.values.shape:
            raise RegardError(f"{self.title}: labels for {shape} rows and columns, and numbers for {self.values.shape}")

    @property
    def row_names(self) -> tuple[str, ...]:
        """The labels of rows as a reader sees them: of tokens, spaces are shown."""
        return tuple(map(visible if self.row_tokens else visible_title, self.rows))

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(map(visible, self.columns))

    @property
    def labelled(self) -> bool:
        return bool(self.rows or self.columns)

    @property
    def signed(self) -> bool:
        """Whether some numbers are below zero: then colours go both ways from it."""
        return bool(np.nanmin(self.values, initial=0.0) < 0)

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers of the first colour and of the last."""
        top = scale_top(np.abs(self.values).ravel()) if self.top is None else self.top
        return (-top if self.signed else 0.0), top

    def shares(self) -> np.ndarray:
        """How far each number is from the first colour to the last: (R, C)."""
        low, high = self.ends
        return (self.values - low) / (high - low)

    def part(self, columns: slice) -> HeatMap:
        """Only some columns, on the same scale."""
        return HeatMap(
            self.title, self.values[:, columns], self.rows, self.columns[columns], self.meaning, self.ends[1],
            tuple(row[columns] for row in self.texts), self.row_tokens, self.note,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Contours(HeatMap):
    """A heat map of a surface, the last row at the bottom: figures draw it smooth, with lines of equal height."""

    places: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (C,) along the columns, and along the rows
    begins_line: bool = False  # in a figure, nothing stands to its left


@dataclass(frozen=True, eq=False)
class Gallery:
    """Small pictures of numbers side by side, such as the channels of a layer; each is a heat map without labels."""

    title: str
    maps: tuple[HeatMap, ...]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Chart:
    """Lines over one axis."""

    title: str
    across: np.ndarray  # (X,)
    lines: Mapping[str, np.ndarray]  # name -> (X,); NaN: there is no point
    x_label: str = ""
    y_label: str = ""
    logarithmic: bool = False
    ticks: tuple[str, ...] = ()  # labels of the points across, as they are shown, instead of their numbers
    note: str = ""
    begins_line: bool = False  # in a figure, nothing stands to its left


@dataclass(frozen=True, eq=False)
class Curve:
    """Points, in the order of their places across."""

    across: np.ndarray  # (X,)
    up: np.ndarray  # (X,)


@dataclass(frozen=True, eq=False)
class Curves:
    """Points, each curve at places of its own, and the laws that they follow, on logarithmic axes.

    A law of the name of a curve has its colour.
    """

    title: str
    points: Mapping[str, Curve]
    laws: Mapping[str, Curve]
    x_label: str = ""
    y_label: str = ""
    note: str = ""
    begins_line: bool = False  # in a figure, nothing stands to its left


@dataclass(frozen=True, eq=False)
class Photo:
    """A picture with boxes on it."""

    title: str
    pixels: np.ndarray  # (H, W, 3) bytes
    boxes: Mapping[str, Box] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """A small table of words and numbers."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str = ""


OnePanel = HeatMap | Gallery | Chart | Curves | Photo | Facts


@dataclass(frozen=True, eq=False)
class Panels(Shown):
    """The base of a view: a title, notes, and panels that follow from its data."""

    called = "a view"

    title: str
    notes: tuple[str, ...]

    def panels(self) -> Sequence[OnePanel]:
        """The panels of which the view is made."""
        raise NotImplementedError

    def html(self) -> str:
        """A whole page, with the number of each cell under the pointer; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """The view for a terminal of that width."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json}

    def _alternative(self) -> str:
        return "; ".join((self.title, *(panel.title for panel in self.panels())))


def numbers(values: np.ndarray, digits: int = 6) -> list[JSON]:
    """An array for JSON, with so many significant digits."""
    found: list[JSON] = np.vectorize(lambda each: float(f"{each:.{digits}g}"), otypes=[float])(values).tolist()
    return found


def short(number: float) -> str:
    """A number with three digits: 0.2, 14.9k, 4.92M, 1.3T."""
    size, unit = next(((size, unit) for size, unit in UNITS if abs(number) >= size), (1.0, ""))
    return f"{number / size:.3g}{unit}"


def liveliest(values: np.ndarray, most: int) -> np.ndarray:
    """The numbers of the columns of (T, units) that change most from row to row, in their order."""
    order = np.argsort(-values.std(axis=0), kind="stable")[:most]
    return np.sort(order)
