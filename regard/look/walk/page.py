"""A walk as one self-contained page, also well-formed XML: steps as sections, numbers as shaded tables, nothing loaded.

Here each step becomes what the template shows of it, cell by cell; markup and style are in `templates` and `static`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
from markupsafe import Markup

from regard.look.colors import scale_top
from regard.look.pages.template import render
from regard.look.walk.shades import shade_class, shade_rules
from regard.look.walk.steps import (
    DIGITS,
    Numbers,
    NumberTable,
    Shading,
    Step,
    Walk,
    format_label,
    format_line,
    format_number,
)

MANY_COLUMNS = 8  # from which on sums stay in sight
PAPER_COLUMNS = 12  # that fit on paper; rows with more take several lines there
MOST_CELLS = 5000  # of a folded table that a page holds; larger ones are in the JSON only


def render_page(walk: Walk, digits: int = DIGITS) -> str:
    """The walk as a whole page."""
    return _render("walk.html", walk, digits)


def render_fragment(walk: Walk, digits: int = DIGITS) -> str:
    """The walk as one element, for a notebook."""
    return _render("walk_fragment.html", walk, digits)


def _render(template: str, walk: Walk, digits: int) -> str:
    steps = [_step(step, digits) for step in walk.steps]
    return render(template, title=walk.title, summary=walk.summary, steps=steps, shades=Markup(shade_rules()))


# --- What the template shows


class Cell(NamedTuple):
    """A number as text, with the class of its shade."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class PageColumns:
    """The headings of one array; at the `end` they stay in sight."""

    names: tuple[str, ...]
    end: bool


@dataclass(frozen=True)
class NumberRow:
    """A row of a table: a group of cells for each array."""

    label: str
    groups: tuple[tuple[Cell, ...], ...]
    remark: str
    here: bool


@dataclass(frozen=True)
class Scale:
    """The legend of a shading, from its lowest to its highest number."""

    name: str
    low: str
    high: str
    shading: Shading


@dataclass(frozen=True)
class PagePart:
    """A table, a table that is folded away, numbers alone, a picture, or a note in place of a table."""

    form: Literal["table", "folded", "scalars", "picture", "note"]
    title: str = ""
    scalars: tuple[str, ...] = ()
    png: bytes = b""
    dark_png: bytes = b""  # on dark ground
    header: tuple[PageColumns, ...] = ()
    rows: tuple[NumberRow, ...] = ()
    scales: tuple[Scale, ...] = ()
    has_remarks: bool = False
    wide: bool = False


@dataclass(frozen=True)
class StepSection:
    """A step as it stands on the page."""

    title: str
    formula: str
    text: str
    lines: tuple[str, ...]
    parts: tuple[PagePart, ...]


def _step(step: Step, digits: int) -> StepSection:
    lines = tuple(format_line(line, digits) for line in step.lines)
    return StepSection(step.title, step.formula, step.text, lines, tuple(_parts(step, digits)))


def _parts(step: Step, digits: int) -> Iterator[PagePart]:
    """The parts of a step. Numbers that follow each other stand in one line, and folded matrices before their biases."""
    for (alone, _), tables in groupby(step.tables(), key=lambda each: (each.first.is_scalar, each.first.folded)):
        if alone:
            numbers = [(table.first.heading, float(table.first.values[0, 0])) for table in tables]
            yield PagePart(
                "scalars", scalars=tuple(f"{name} = {format_number(value, digits)}" for name, value in numbers)
            )
        else:
            yield from (_part(table, digits) for table in sorted(tables, key=lambda each: not each.is_folded))


def _part(table: NumberTable, digits: int) -> PagePart:
    if table.first.picture:
        return _picture(table.first)
    if not table.is_folded:
        return _table("table", table.title if len(table.first.columns) > 1 else "", table, digits)
    if table.first.values.size > MOST_CELLS:
        return PagePart("note", table.title)
    return _table("folded", table.title, table, digits)


def _picture(table: Numbers) -> PagePart:
    from regard.look.walk.picture import png  # matplotlib is heavy, and most pages have no picture

    rows, columns = table.values.shape
    title = f"Sines and cosines of positions 0 to {rows - 1} in {columns} dimensions"
    return PagePart("picture", title, png=png(table), dark_png=png(table, dark=True))


def _table(form: Literal["table", "folded"], title: str, table: NumberTable, digits: int) -> PagePart:
    ends = [array.name == "sums" and len(table.first.columns) > MANY_COLUMNS for array in table.arrays]
    cells = [_cells(array, digits, end) for array, end in zip(table.arrays, ends, strict=True)]
    remarks = table.remarks or ("",) * len(table.first.rows)
    return PagePart(
        form,
        title,
        header=tuple(
            PageColumns(tuple(map(format_label, array.columns)), end)
            for array, end in zip(table.arrays, ends, strict=True)
        ),
        rows=tuple(
            NumberRow(format_label(label), tuple(group[row] for group in cells), remarks[row], row == table.marked)
            for row, label in enumerate(table.first.rows)
        ),
        scales=tuple(_scale(array, len(table.arrays) > 1) for array in table.arrays if array.shading != "plain"),
        has_remarks=bool(table.remarks),
        wide=sum(len(array.columns) for array in table.arrays) > PAPER_COLUMNS,
    )


def _cells(array: Numbers, digits: int, end: bool) -> list[tuple[Cell, ...]]:
    """The cells of each row of an array; at the `end` they stay in sight."""
    top = _top(array)
    return [
        tuple(Cell(text, _style(value, top, array.shading, end)) for text, value in zip(texts, row, strict=True))
        for texts, row in zip(array.cells(digits), array.values.tolist(), strict=True)
    ]


def _style(value: float, top: float, shading: Shading, end: bool) -> str:
    """The classes of a cell."""
    if not np.isfinite(value):
        return "masked"
    if shading == "plain":
        return ""
    return shade_class(value / top, shading) + (" end" if end else "")


def _top(array: Numbers) -> float:
    """The number that gets the last shade."""
    return scale_top(np.where(np.isfinite(array.values), np.abs(array.values), 0.0))


def _scale(array: Numbers, named: bool) -> Scale:
    high = f"{_top(array):g}"
    return Scale(array.heading if named else "", f"-{high}" if array.shading == "signed" else "0", high, array.shading)
