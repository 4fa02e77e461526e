"""The data of a walk: steps, each with a formula, a few sentences, worked lines, and named arrays of real numbers.

Everything here is numbers and words. How they are drawn is the business of the terminal and of the page, which import this.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from regard.brief import brief, quoted
from regard.errors import RegardError
from regard.files import finite, write_bytes
from regard.look.labels import visible, visible_title
from regard.look.shown import PICTURES, Written, as_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

Array = np.ndarray  # float64
Shading = Literal["signed", "weight", "plain"]  # of cells: both ways from zero, up from zero, or none
DIGITS = 3  # behind the point, where a person does not say how many
FEW_CELLS = 16  # of an array that is shown although it is folded


@dataclass(frozen=True, eq=False)
class Numbers:
    """A named array (rows, columns) with labels on both axes. A vector is one row, or one column beside another array."""

    name: str
    values: Array  # minus infinity is a masked score
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()  # numbered from 0, where none are given
    shading: Shading = "signed"
    beside: bool = False  # to the right of the array before, with the same rows
    folded: bool = False  # more than most want to see: folded away on a page, left out of a terminal
    picture: bool = False  # drawn as a picture, not as a table
    remarks: tuple[str, ...] = ()  # one for each row, in words
    marked: int | None = None  # the row that the step is about
    called: str = ""  # within its step, where that is shorter than the name, which stands once in a walk

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values = values[None] if values.ndim == 1 else values
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
        if not self.columns:
            object.__setattr__(self, "columns", _numbered(values.shape[1]))
        if values.shape != (len(self.rows), len(self.columns)):
            sizes = f"{len(self.rows)} rows and {len(self.columns)} columns"
            raise RegardError(f"{self.name} is {values.shape}, but has labels for {sizes}")

    @property
    def title(self) -> str:
        """The name and the size, as in `q (4)` or `k (7 x 4)`."""
        rows, columns = self.values.shape
        return f"{self.heading} ({columns})" if rows == 1 else f"{self.heading} ({rows} x {columns})"

    @property
    def heading(self) -> str:
        """The name beside its own step."""
        return self.called or self.name

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number without labels."""
        return self.values.size == 1 and not self.rows[0]

    def cells(self, digits: int) -> list[list[str]]:
        """The numbers as texts. Of a whole map of weights, those that are next to nothing are zeros."""
        if self.shading != "weight" or len(self.columns) == 1:
            return format_cells(self.values, digits)
        return format_cells(np.where(self.values < 0.5 * 10**-digits, 0.0, self.values), digits)

    def data(self) -> dict[str, object]:
        found = {
            "name": self.name,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": finite(self.values.tolist()),
        }
        return {**found, "remarks": list(self.remarks)} if self.remarks else found


def column(
    name: str,
    values: ArrayLike,
    rows: Sequence[str],
    *,
    shading: Shading = "signed",
    beside: bool = False,
    remarks: tuple[str, ...] = (),
    marked: int | None = None,
) -> Numbers:
    """One number for each row, under the array's own name."""
    upright = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    return Numbers(name, upright, tuple(rows), (name,), shading, beside, remarks=remarks, marked=marked)


def scalar(name: str, value: float) -> Numbers:
    """A single number."""
    return Numbers(name, np.array([[value]]), ("",), (name,), shading="plain")


def parameter(name: str, values: Array, rows: tuple[str, ...] = ()) -> Numbers:
    """Learned numbers, folded away: a matrix with numbered rows, or a vector labelled with the first letter of its name."""
    return Numbers(name, values, rows or (_numbered(len(values)) if values.ndim == 2 else (name[0],)), folded=True)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


@dataclass(frozen=True)
class WorkedLine:
    """An equation with its numbers: "q_0 = {} · {} + {} = {}". Its last number stands in an array of the same step."""

    text: str
    numbers: tuple[float, ...]
    of: tuple[str, int, int]  # array, row, column of that last number

    def data(self) -> dict[str, object]:
        return {"text": self.text, "numbers": finite(list(self.numbers)), "of": list(self.of)}


@dataclass(frozen=True, eq=False)
class NumberTable:
    """Arrays with the same rows, shown side by side."""

    arrays: tuple[Numbers, ...]

    @property
    def first(self) -> Numbers:
        return self.arrays[0]

    @property
    def title(self) -> str:
        """The names of all arrays, the first with its size."""
        return ", ".join([self.first.title, *(array.heading for array in self.arrays[1:])])

    @property
    def is_folded(self) -> bool:
        """Whether it is not shown at once: a few cells always are."""
        return self.first.folded and self.first.values.size > FEW_CELLS

    @property
    def remarks(self) -> tuple[str, ...]:
        return next((array.remarks for array in self.arrays if array.remarks), ())

    @property
    def marked(self) -> int | None:
        return next((array.marked for array in self.arrays if array.marked is not None), None)


@dataclass(frozen=True, eq=False)
class Step:
    """One step. The walk numbers them."""

    title: str
    formula: str
    text: str
    arrays: tuple[Numbers, ...] = ()
    lines: tuple[WorkedLine, ...] = ()

    def tables(self) -> list[NumberTable]:
        """Arrays grouped into tables: those that stand beside each other, together."""
        groups: list[list[Numbers]] = []
        for array in self.arrays:
            if array.beside and groups:
                groups[-1].append(array)
            else:
                groups.append([array])
        return [NumberTable(tuple(group)) for group in groups]

    def data(self) -> dict[str, object]:
        return {
            "title": self.title,
            "formula": self.formula,
            "text": self.text,
            "lines": [line.data() for line in self.lines],
            "arrays": [array.data() for array in self.arrays],
        }


def named_apart(step: Step, where: str) -> Step:
    """The same step with `where` behind the names of its arrays, so that two of a kind can stand in one walk."""
    arrays = tuple(replace(each, name=f"{each.name} ({where})", called=each.heading) for each in step.arrays)
    lines = tuple(replace(line, of=(f"{line.of[0]} ({where})", *line.of[1:])) for line in step.lines)
    return replace(step, arrays=arrays, lines=lines)


class About(TypedDict, total=False):
    """Which query of which attention a walk is about. Layers, heads and queries are counted from 0."""

    role: str
    layer: int
    head: int
    query: int
    token: str
    path: str
    queries: list[str]
    keys: list[str]
    task: str
    through: str
    beam: int
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Walk(Written):
    """One query of one head, from its vector to what attention makes of it."""

    called = "a walk"

    title: str
    summary: str
    steps: tuple[Step, ...]
    about: About = field(default_factory=About)
    differences: dict[str, float] = field(default_factory=dict)  # between what was recomputed and what the model gave

    def __repr__(self) -> str:
        return brief(self, quoted(self.title), f"{len(self.steps)} steps", difference=self.difference)

    @property
    def difference(self) -> float:
        """The largest difference between a recomputed number and the model's own; zero where there is no model."""
        return max(self.differences.values(), default=0.0)

    def __getitem__(self, name: str) -> Array:
        """The array of that name; every name is there once."""
        found = {array.name: array.values for step in self.steps for array in step.arrays}
        if name not in found:
            raise KeyError(f"no numbers {name!r} in this walk; there are {', '.join(found)}")
        return found[name]

    def data(self) -> dict[str, object]:
        steps = [{"number": place, **step.data()} for place, step in enumerate(self.steps)]
        head = {"title": self.title, "summary": self.summary, **self.about, "differences": self.differences}
        return {**head, "steps": steps}

    def json(self) -> str:
        """Every number in full precision; null is the minus infinity of a masked score."""
        return json.dumps(self.data(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def text(self, width: int = 80, color: bool = False, digits: int = DIGITS) -> str:
        """The walk for a terminal of that width, with so many digits behind the point."""
        return self._terminal(width, color, digits)

    def drawn(self, width: int, colored: bool, digits: int = DIGITS) -> Text:
        """The same as rich has it."""
        text: Text = self._draw("terminal", width, colored, digits)
        return text

    def html(self, digits: int = DIGITS) -> str:
        """A whole page; nothing is loaded from elsewhere."""
        page: str = self._draw("page", digits)
        return page

    def figure(self, digits: int = DIGITS) -> Figure:
        """A matplotlib figure: the matrices of each step, as people draw them on a board."""
        return self._draw("figure", digits)

    def save(self, path: str | Path, digits: int = DIGITS) -> Path:
        """Write the walk as .html, .json or .txt, or as a picture (.png, .svg); whole or not at all."""
        path = Path(path)
        if path.suffix.lower() in PICTURES:
            return write_bytes(path, as_file(self.figure(digits), path.suffix.lower()))
        return self._save(path, self._texts(digits), PICTURES)

    def _texts(self, digits: int = DIGITS) -> dict[str, Callable[[], str]]:
        return {
            ".html": lambda: self.html(digits),
            ".json": self.json,
            ".txt": lambda: self.text(digits=digits) + "\n",
        }


# --- Numbers as a person reads them

OPERATORS = "·+-−/^√"


def format_number(value: float, digits: int) -> str:
    """A number as in -0.123; 7 where it is whole; 6.1e-8 where all shown digits would be zeros."""
    if not math.isfinite(value):
        return "-∞" if value < 0 else str(value)
    if value == round(value) and abs(value) < 1e6:
        return str(int(value))
    if abs(value) < 0.5 * 10**-digits or abs(value) >= 1e6:
        return format_power(value, min(1, digits))
    return f"{value:.{digits}f}"


def format_power(value: float, digits: int = 0) -> str:
    """A number with its power of ten, as in 6e-8."""
    power = f"{value:.{digits}e}"
    return power.replace("e-0", "e-").replace("e+0", "e") if value else "0"


def format_cells(values: Array, digits: int) -> list[list[str]]:
    """The cells of an array: all whole numbers, or all with digits behind the point."""
    known = values[np.isfinite(values)]
    if (known == known.round()).all() and (np.abs(known) < 1e6).all():
        return [[format_number(value, 0) for value in row] for row in values.tolist()]
    return [[_format_cell(value, digits) for value in row] for row in values.tolist()]


def _format_cell(value: float, digits: int) -> str:
    if not math.isfinite(value) or value != round(value):
        return format_number(value, digits)
    return f"{value + 0.0:.{digits}f}"  # a whole number among others; plus zero, so that none is -0


def format_line(line: WorkedLine, digits: int) -> str:
    """The equation with its numbers; a negative one after an operator stands in brackets."""
    parts = line.text.split("{}")
    text = parts[0]
    for value, after in zip(line.numbers, parts[1:], strict=True):
        shown = format_number(value, digits)
        follows = text.rstrip()[-1:]
        text += (f"({shown})" if shown.startswith("-") and follows and follows in OPERATORS else shown) + after
    return text


def format_label(label: str) -> str:
    """The label of a row or column: a token with its spaces made visible, or our own words as they are."""
    return visible(label) if label != label.strip() else visible_title(label)


# --- Words of sentences


def counted(many: int, one: str) -> str:
    """A number of things, as in 1 key or 2 keys."""
    return f"{many} {one}{'' if many == 1 else 's'}"


def capital(text: str) -> str:
    """The text with a capital first letter, as a sentence begins."""
    return text[:1].upper() + text[1:]


def quoted_token(label: str) -> str:
    """A token in a sentence."""
    return f"“{visible(label)}”"


def quoted_text(text: str) -> str:
    """A whole text in a sentence, which keeps its spaces."""
    return f"“{visible_title(text)}”"


def lower_first(title: str) -> str:
    """A title behind another one: its first word small, unless it is a symbol."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def name_asker(role: str, label: str) -> str:
    """Who looks: a token, a decoder that is about to write one, or a learned query."""
    if role == "cross":
        return f"the decoder (about to write {quoted_token(label)})"
    return "the learned query" if role == "pool" else quoted_token(label)


# --- Worked sums, and the comparison at the end

FIRST_TERMS = 3  # of a sum, written out
MOST_COMPARED = 1024  # numbers that are shown twice at once; more are folded away


def sum_line(name: str, left: Array, right: Array, of: tuple[str, int, int], bias: float | None = None) -> WorkedLine:
    """name = left_0 · right_0 + left_1 · right_1 + ... + bias, an equation that holds with the numbers it shows."""
    first = len(left) if len(left) <= FIRST_TERMS + 1 else FIRST_TERMS
    terms = ["{} · {}"] * first
    numbers = [float(each) for pair in zip(left[:first], right[:first], strict=True) for each in pair]
    if first < len(left):
        terms.append(f"[{len(left) - first} more: {{}}]")
        numbers.append(float(left[first:] @ right[first:]))
    if bias is not None:
        terms.append("{}")
        numbers.append(float(bias))
    total = float(left @ right) + (0.0 if bias is None else float(bias))
    return WorkedLine(f"{name} = {' + '.join(terms)} = {{}}", (*numbers, total), of)


def compare_step(pairs: Mapping[str, tuple[Array, Array]]) -> tuple[Step, dict[str, float]]:
    """The last step: recomputed arrays and the model's own, by name, and how far they differ. The last pair is shown."""
    differences = {name: float(np.abs(mine - model).max()) for name, (mine, model) in pairs.items()}
    name, (mine, model) = list(pairs.items())[-1]
    worst, both = max(differences.values()), np.stack([mine, model])
    text = (
        "All numbers above were computed again from the model's weights, in double precision and without its own code. "
        f"recomputed = the model's output, difference {format_power(worst)} "
        f"(the largest number is {np.abs(model).max():.3g})."
    )
    arrays = (
        Numbers(f"{name}, twice", both, ("recomputed", "the model's"), folded=mine.size > MOST_COMPARED),
        column("differences", list(differences.values()), tuple(differences), shading="plain"),
    )
    return Step("Recomputed = the model's output", "max |recomputed - model|", text, arrays), differences
