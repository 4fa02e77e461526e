"""What a walk is: steps, each with a formula, a few sentences, worked lines, and named arrays of real numbers.

It holds numbers and names only; terminal and page draw it, imported when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError, UsageError
from regard.files import finite, write_text

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
