"""Lines between two sentences: from each word that looks to the words that it looks at, the more weight the stronger.

Words stand in two columns: labels are never turned, never meet, and read in any script; a longer sentence makes the page
taller, not the letters smaller. Faint lines would cover the others, so weights below a threshold are left out, and the
legend says which, and how much of all weight they are. Several heads have a colour each; more than eight are averaged.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.errors import RegardError
from regard.files import JSON, finite
from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.shown import Shown

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

# One for each head: Okabe & Ito 2008, as in `series`, and an indigo (Tol 2021) that none is near.
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d", "#332288")
FAINTEST = 1 / 20  # of the top of the scale: what is fainter can hardly be seen
MOST = 4000  # lines: more are only ink


class WordLine(NamedTuple):
    """One line of the picture."""

    head: int
    row: int  # who looks
    column: int  # what is looked at
    weight: float


class Stroke(NamedTuple):
    """Colour, width and opacity of a line."""

    color: str
    width: float  # points
    opacity: float


def number(weight: float) -> str:
    """A weight as a person reads it: two places, or more of a small one."""
    return f"{weight:.2f}" if weight >= 0.0995 else f"{weight:.2g}"


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Lines(Shown):
    """A map as lines. Its figure has two columns of words, and is as tall as they need."""

    called = "lines"

    map: AttentionMap
    below: float | None = (
        None  # what weighs less is not drawn; None: a twentieth of the strongest, or more if that is many
    )

    def __post_init__(self) -> None:
        if self.below is not None and not 0 <= self.below < np.inf:
            raise RegardError(f"lines are drawn from a weight on, 0 or more, not from {self.below:g}")

    @cached_property
    def weights(self) -> np.ndarray:
        """The weights that lines are drawn for: (H, T, S), NaN where masked."""
        whole = self.map.mean().weights if self.map.heads > len(HUES) else self.map.weights
        return whole if whole.ndim == 3 else whole[None]

    @property
    def colored(self) -> bool:
        """Whether each head has a colour of its own."""
        return len(self.weights) > 1

    @cached_property
    def top(self) -> float:
        """The weight of the strongest look."""
        return scale_top(self.weights)

    @cached_property
    def threshold(self) -> float:
        """The weight below which no line is drawn."""
        if self.below is not None:
            return self.below
        known = np.sort(self.weights[~np.isnan(self.weights)])[::-1]
        least = known[MOST - 1] if len(known) > MOST else 0.0
        if (known >= least).sum() > 2 * MOST:  # all about equal: there is nothing to tell apart
            least = np.min(known, initial=self.top, where=known > least)
        return float(f"{max(self.top * FAINTEST, least):.3g}")

    @cached_property
    def drawn(self) -> tuple[WordLine, ...]:
        """Every line, the faintest first, so that the strongest lie on top."""
        with np.errstate(invalid="ignore"):
            places = np.argwhere((self.weights >= self.threshold) & (self.weights > 0))  # False for NaN
        found = [WordLine(int(h), int(t), int(s), float(self.weights[h, t, s])) for h, t, s in places]
        return tuple(sorted(found, key=lambda line: line.weight))

    @cached_property
    def hidden(self) -> float:
        """The share of all weight that is not drawn, from 0 to 1."""
        whole = float(np.nansum(np.abs(self.weights)))
        shown = float(sum(line.weight for line in self.drawn))
        return max(0.0, 1 - shown / whole) if whole > 0 else 0.0

    def stroke(self, weight: float, head: int | None = None) -> Stroke:
        """Thicker, darker and less transparent with the weight. Of several heads each has its hue, and None is black."""
        share = min(max(weight / self.top, 0.0), 1.0)
        if self.colored:
            return Stroke("#000000" if head is None else HUES[head], 0.5 + 2.4 * share, 0.12 + 0.83 * share)
        return Stroke(hexadecimal(color(INK, 0.42 + 0.58 * share)), 0.6 + 3.1 * share, 0.45 + 0.55 * share)

    @cached_property
    def samples(self) -> tuple[float, ...]:
        """Weights whose lines the legend shows."""
        return tuple(sorted({weight for weight in (self.threshold, self.top / 2, self.top) if 0 < weight <= self.top}))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences about all that the lines leave out."""
        per_cent = "less than 1%" if 0 < self.hidden < 0.01 else f"{self.hidden:.0%}"
        left_out = f"weights below {self.threshold:g} are left out: {per_cent} of all weight"
        notes = [left_out if self.hidden > 1e-9 else "no weight is left out"]
        notes += ["masked: no line"] if np.isnan(self.weights).any() else []
        notes += [f"mean of {self.map.heads} heads"] if self.map.heads > len(self.weights) else []
        return (*notes, *self.map.notes)

    def data(self) -> dict[str, JSON]:
        """Every weight of the map, and what is drawn of it, as strict JSON holds it; a masked cell is null."""
        names = {"title": self.map.title, "rows": self.map.rows, "columns": self.map.columns}
        lines = [line._asdict() for line in reversed(self.drawn)]
        drawn = {"below": self.threshold, "left_out": self.hidden, "notes": self.notes, "lines": lines}
        return finite({**names, "weights": self.map.weights.tolist(), **drawn})

    def csv(self) -> str:
        """A line for each line that is drawn, the strongest first; places count from 0."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["head", "row", "column", "looks", "is_looked_at", "weight"])
        for head, row, column, weight in reversed(self.drawn):
            writer.writerow([head, row, column, self.map.rows[row], self.map.columns[column], repr(weight)])
        return file.getvalue()

    def html(self) -> str:
        """A whole page: nothing is loaded from elsewhere, and without script it is a picture."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """For a terminal of that width: each word that looks, and the words that it looks at most."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json, ".csv": self.csv}
