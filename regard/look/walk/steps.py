"""The data of a walk: steps, each with a formula, a few sentences, worked lines, and named arrays of real numbers.

It holds numbers and names only; terminal and page draw it, imported when they are asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError, UsageError
from regard.files import finite, write_text
from regard.look.labels import visible, visible_title

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

DIGITS = 3  # behind the point, where a person does not say how many
SUFFIXES = (".html", ".json", ".txt")
Kind = Literal["signed", "weight", "plain"]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A named array (rows, columns) with labels on both axes. A vector is one row, or one column beside another array."""

    name: str
    values: np.ndarray  # float64; minus infinity is a masked score
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()  # their numbers, where nothing is given
    kind: Kind = "signed"  # how cells are shaded: both ways from zero, up from zero, or not
    beside: bool = False  # to the right of the array before, with the same rows
    aside: bool = False  # more than most want to see: folded away on a page, left out of a terminal
    picture: bool = False  # drawn as a picture, not as a table
    remarks: tuple[str, ...] = ()  # of each row, in words
    marked: int | None = None  # the row that all is about

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values = values[None] if values.ndim == 1 else values
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
        if not self.columns:
            object.__setattr__(self, "columns", tuple(str(number) for number in range(values.shape[1])))
        if values.shape != (len(self.rows), len(self.columns)):
            sizes = f"{len(self.rows)} rows and {len(self.columns)} columns"
            raise RegardError(f"{self.name} is {values.shape}, but has labels for {sizes}")

    def data(self) -> dict[str, Any]:
        found = {
            "name": self.name,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": finite(self.values.tolist()),
        }
        return {**found, "remarks": list(self.remarks)} if self.remarks else found


def column(name: str, values: Any, rows: Sequence[str], **more: Any) -> Numbers:
    """One number for each row, under the array's own name."""
    return Numbers(name, np.asarray(values, dtype=np.float64).reshape(-1, 1), tuple(rows), (name,), **more)


def number(name: str, value: float) -> Numbers:
    """A single number."""
    return Numbers(name, np.array([[value]]), ("",), (name,), kind="plain")


@dataclass(frozen=True)
class Line:
    """An equation with its numbers: "q_0 = {} · {} + {} = {}". Its last number stands in an array of the same step."""

    text: str
    numbers: tuple[float, ...]
    of: tuple[str, int, int]  # array, row, column

    def data(self) -> dict[str, Any]:
        return {"text": self.text, "numbers": finite(list(self.numbers)), "of": list(self.of)}


@dataclass(frozen=True, eq=False)
class Step:
    """One step. The walk numbers them."""

    title: str
    formula: str
    text: str
    arrays: tuple[Numbers, ...] = ()
    lines: tuple[Line, ...] = ()

    def data(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "formula": self.formula,
            "text": self.text,
            "lines": [line.data() for line in self.lines],
            "arrays": [array.data() for array in self.arrays],
        }


@dataclass(frozen=True, eq=False)
class Walk:
    """One query of one head, from its vector to what attention makes of it. Shows itself on a console and in a notebook."""

    title: str
    summary: str
    steps: tuple[Step, ...]
    about: dict[str, Any] = field(default_factory=dict)  # role, layer, head, query, as numbers and words
    differences: dict[str, float] = field(default_factory=dict)  # between what was recomputed and what the model gave

    def __repr__(self) -> str:
        return brief(self, quoted(self.title), f"{len(self.steps)} steps", difference=self.difference)

    @property
    def difference(self) -> float:
        """The largest difference between a recomputed number and the model's own; zero where there is no model."""
        return max(self.differences.values(), default=0.0)

    def __getitem__(self, name: str) -> np.ndarray:
        """The array of that name; every name is there once."""
        found = {array.name: array.values for step in self.steps for array in step.arrays}
        if name not in found:
            raise KeyError(f"no numbers {name!r} in this walk; there are {', '.join(found)}")
        return found[name]

    def data(self) -> dict[str, Any]:
        steps = [{"number": place, **step.data()} for place, step in enumerate(self.steps)]
        head = {"title": self.title, "summary": self.summary, **self.about, "differences": self.differences}
        return {**head, "steps": steps}

    def json(self) -> str:
        """Every number in full precision; null is the minus infinity of a masked score."""
        return json.dumps(self.data(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def text(self, width: int = 80, color: bool = False, digits: int = DIGITS) -> str:
        """The walk for a terminal of that width."""
        from regard.look.terminal.map import ansi

        drawn = self.drawn(width, color, digits)
        return ansi(drawn) if color else drawn.plain

    def drawn(self, width: int, colored: bool, digits: int = DIGITS) -> Text:
        """The same as rich has it."""
        from regard.look.walk.terminal import draw

        return draw(self, width, colored, digits)

    def html(self, digits: int = DIGITS) -> str:
        """A whole page; nothing is loaded from elsewhere."""
        from regard.look.walk.page import page

        return page(self, digits)

    def save(self, path: str | Path, digits: int = DIGITS) -> Path:
        """Write the walk in the format that the suffix names, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() == ".html":
            return write_text(path, self.html(digits))
        if path.suffix.lower() == ".json":
            return write_text(path, self.json())
        if path.suffix.lower() == ".txt":
            return write_text(path, self.text(digits=digits) + "\n")
        found = f"ends in {path.suffix}" if path.suffix else "has no suffix"
        raise UsageError(f"cannot tell how to write a walk to {path.name}, which {found}; use {', '.join(SUFFIXES)}")

    def _repr_html_(self) -> str:
        from regard.look.walk.page import fragment

        return fragment(self, DIGITS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.drawn(options.max_width, console.color_system is not None)


OPERATORS = "·+-−/^√"


def figure(value: float, digits: int) -> str:
    """Like -0.123; 7 where it is whole; 6.1e-08 where all shown digits would be zeros."""
    if not math.isfinite(value):
        return "-∞" if value < 0 else str(value)
    if value == round(value) and abs(value) < 1e6:
        return str(int(value))
    if abs(value) < 0.5 * 10**-digits or abs(value) >= 1e6:
        return short(value, min(1, digits))
    return f"{value:.{digits}f}"


def short(value: float, digits: int = 0) -> str:
    """Like 6e-8."""
    power = f"{value:.{digits}e}"
    return power.replace("e-0", "e-").replace("e+0", "e") if value else "0"


def figures(values: np.ndarray, digits: int) -> list[list[str]]:
    """The cells of an array: all whole numbers, or all with digits behind the point."""
    known = values[np.isfinite(values)]
    if (known == known.round()).all() and (np.abs(known) < 1e6).all():
        return [[figure(value, 0) for value in row] for row in values.tolist()]
    return [[_cell(value, digits) for value in row] for row in values.tolist()]


def written(line: Line, digits: int) -> str:
    """The equation with its numbers; a negative one after an operator stands in brackets."""
    parts = line.text.split("{}")
    text = parts[0]
    for value, after in zip(line.numbers, parts[1:], strict=True):
        shown = figure(value, digits)
        follows = text.rstrip()[-1:]
        text += (f"({shown})" if shown.startswith("-") and follows and follows in OPERATORS else shown) + after
    return text


def named(label: str) -> str:
    """The label of a row or column: a token with its spaces made visible, or our own words as they are."""
    return visible(label) if label != label.strip() else visible_title(label)


def size_of(array: Numbers) -> str:
    """Its name and its size."""
    rows, columns = array.values.shape
    return f"{array.name} ({columns})" if rows == 1 else f"{array.name} ({rows} x {columns})"


def tables(arrays: Sequence[Numbers]) -> list[list[Numbers]]:
    """Arrays that stand beside each other, together."""
    found: list[list[Numbers]] = []
    for array in arrays:
        if array.beside and found:
            found[-1].append(array)
        else:
            found.append([array])
    return found


def _cell(value: float, digits: int) -> str:
    if not math.isfinite(value) or value != round(value):
        return figure(value, digits)
    return f"{value + 0.0:.{digits}f}"  # a whole number among others; plus zero, so that none is -0


FIRST = 3  # terms that are written out


def sum_line(
    name: str, left: np.ndarray, right: np.ndarray, of: tuple[str, int, int], bias: float | None = None
) -> Line:
    """name = left_0 · right_0 + left_1 · right_1 + ... + bias, an equation that holds with the numbers it shows."""
    first = len(left) if len(left) <= FIRST + 1 else FIRST
    terms = ["{} · {}"] * first
    numbers = [float(each) for pair in zip(left[:first], right[:first], strict=True) for each in pair]
    if first < len(left):
        terms.append(f"[{len(left) - first} more: {{}}]")
        numbers.append(float(left[first:] @ right[first:]))
    if bias is not None:
        terms.append("{}")
        numbers.append(float(bias))
    total = float(left @ right) + (0.0 if bias is None else float(bias))
    return Line(f"{name} = {' + '.join(terms)} = {{}}", (*numbers, total), of)


def counted(many: int, one: str) -> str:
    """1 key, 2 keys."""
    return f"{many} {one}{'' if many == 1 else 's'}"


def capital(text: str) -> str:
    """The beginning of a sentence."""
    return text[:1].upper() + text[1:]


def quoted_token(label: str) -> str:
    """A token in a sentence."""
    from regard.look.labels import visible

    return f"“{visible(label)}”"


def asker(role: str, label: str) -> str:
    """Who looks: a token, a decoder that is about to write one, or a learned query."""
    return {"cross": f"the decoder (about to write {quoted_token(label)})", "pool": "the learned query"}.get(
        role, quoted_token(label)
    )


def ending_step(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[Step, dict[str, float]]:
    """Of each name, the recomputed array and the model's; the last pair is shown whole."""
    differences = {name: float(np.abs(mine - model).max()) for name, (mine, model) in pairs.items()}
    name, (mine, model) = list(pairs.items())[-1]
    worst = max(differences.values())
    text = (
        "All numbers above were computed again from the model's weights, in double precision and without its own code. "
        f"recomputed = the model's output, difference {short(worst)} "
        f"(the largest number is {np.abs(model).max():.3g})."
    )
    arrays = (
        Numbers(f"{name}, twice", np.stack([mine, model]), ("recomputed", "the model's")),
        column("differences", list(differences.values()), tuple(differences), kind="plain"),
    )
    return Step("Recomputed = the model's output", "max |recomputed - model|", text, arrays), differences
