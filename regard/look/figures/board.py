"""A walk as people draw it on a board: each step a line of matrices in brackets, numbers in their cells, shaded by size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.colors import INK, color, hexadecimal, ink_on
from regard.look.figures.sheet import QUIET, TEXT, Pen, cut, families_of, heading, heading_height, sheet, write_heading
from regard.look.walk.shades import signed
from regard.look.walk.steps import Numbers, Step, Walk, format_label, format_line

WIDTH = 9.0  # inches within the margins
GAP = 0.34  # between two matrices
NEAR = 0.04  # between two with the same rows
PAD = 0.16  # in a cell, beside its number
WIDEST_LABEL, WIDEST_HEADING = 1.9, 1.6  # of a row, of a column
BRACKET = 0.05  # how far the ends of a bracket reach in
MOST_CELLS = 400  # of a matrix that is drawn; larger ones are on the page and in the JSON


@dataclass(frozen=True)
class Pens:
    """What titles, formulas, names and numbers are written with."""

    title: Pen
    words: Pen
    name: Pen
    number: Pen

    @classmethod
    def for_walk(cls, walk: Walk) -> Pens:
        arrays = [array for step in walk.steps for array in step.arrays]
        texts = [walk.title, walk.summary, *(f"{step.title}{step.formula}" for step in walk.steps)]
        families = families_of(
            *texts, *(label for array in arrays for label in (*array.rows, *array.columns, *array.remarks, array.name))
        )
        quiet = Pen(9.5, families, color=QUIET)
        return cls(Pen(11.5, families, weight="bold"), quiet, Pen(9.5, families, weight="bold"), Pen(9.5, families))


@dataclass(frozen=True)
class Grid:
    """One matrix as it is drawn: its texts and its sizes in inches. A number alone has a title and no cells."""

    array: Numbers
    title: str
    cells: list[list[str]]
    places: list[int | None]  # the column of each cell; None: those that are left out
    rows: list[str]
    columns: list[str]
    label: float  # width of the labels of rows
    cell: float  # width of a cell
    line: float  # height of a row
    heading: float  # width of the title
    remark: float = 0.0  # width of the words behind the rows
    joins: bool = False  # stands close to the one before, whose rows it has

    @property
    def width(self) -> float:
        inside = self.cell * len(self.columns) + 2 * BRACKET + self.remark
        return self.label + max(inside, self.heading)

    @property
    def height(self) -> float:
        return self.line * (len(self.rows) + 2 if self.rows else 1)  # its name, the labels of columns, the rows


def draw_board(walk: Walk, digits: int = 3) -> Figure:
    """The whole walk on one page."""
    pens = Pens.for_walk(walk)
    lines = [(step, laid_out(step, pens, digits)) for step in walk.steps]
    top = heading(walk.title, walk.summary, pens.title.families, WIDTH)
    height = heading_height(top) + sum(step_height(step, rows, pens) for step, rows in lines)
    figure, axes = sheet(WIDTH, height)
    y = write_heading(axes, top)
    for step, rows in lines:
        y = _write_step(axes, step, rows, pens, y, digits)
    return figure


def laid_out(step: Step, pens: Pens, digits: int) -> list[list[Grid]]:
    """The matrices of a step in lines that fit the page; those that nobody could read are left out."""
    rows: list[list[Grid]] = []
    room = 0.0
    for table in step.tables():
        if table.first.values.size > MOST_CELLS or table.first.picture:
            continue
        grids = [_grid(array, pens, digits, joins=place > 0) for place, array in enumerate(table.arrays)]
        together = sum(grid.width + NEAR for grid in grids)
        if not rows or room + GAP + together > WIDTH:
            rows, room = [*rows, []], 0.0
        for grid in grids:
            gap = 0.0 if not rows[-1] else NEAR if grid.joins else GAP
            if rows[-1] and room + gap + grid.width > WIDTH:  # even alone the table is too wide: its labels once more
                grid, gap = _grid(grid.array, pens, digits, joins=False), 0.0
                rows, room = [*rows, []], 0.0
            rows[-1].append(grid)
            room += gap + grid.width
    return rows


def _grid(array: Numbers, pens: Pens, digits: int, *, joins: bool) -> Grid:
    pen = pens.number
    cells = array.cells(digits)
    if array.is_scalar:
        title = f"{array.heading} = {cells[0][0]}"
        return Grid(array, title, [], [], [], [], 0.0, 0.0, pen.pitch, pens.name.ruler(title), joins=joins)
    rows = [cut(format_label(label), pen, WIDEST_LABEL) if label and not joins else "" for label in array.rows]
    columns = [cut(format_label(label), pen, WIDEST_HEADING) for label in array.columns]
    label = max((pen.ruler(text) for text in rows), default=0.0) + 0.1
    widest = max(pen.ruler(text) for text in [*columns, *(text for row in cells for text in row)]) + PAD
    places = _fitting(len(columns), int((WIDTH - label - 2 * BRACKET) // widest))
    columns = ["…" if place is None else columns[place] for place in places]
    cells = [["…" if place is None else row[place] for place in places] for row in cells]
    remark = max((pens.words.ruler(text) + PAD for text in array.remarks if text), default=0.0)
    title = array.title if len(array.columns) > 1 else ""
    heading = pens.name.ruler(title)
    return Grid(array, title, cells, places, rows, columns, label, widest, pen.pitch, heading, remark, joins)


def _fitting(columns: int, most: int) -> list[int | None]:
    """The columns that fit: all, or the first and the last, and None between them."""
    if columns <= most:
        return list(range(columns))
    front = most // 2
    return [*range(front), None, *range(columns - (most - front - 1), columns)]


def step_height(step: Step, rows: list[list[Grid]], pens: Pens) -> float:
    words = pens.words.pitch * (1 + len(step.lines[:1]))
    return pens.title.pitch + words + sum(max(grid.height for grid in row) + 0.1 for row in rows) + 0.14


def _write_step(axes: Axes, step: Step, rows: list[list[Grid]], pens: Pens, y: float, digits: int) -> float:
    """Title, formula, one worked line, then the matrices; where the next step begins."""
    pens.title.write(axes, 0.0, y, cut(step.title, pens.title, WIDTH))
    y += pens.title.pitch
    for text in (step.formula, *(format_line(line, digits) for line in step.lines[:1])):
        pens.words.write(axes, 0.0, y, cut(text, pens.words, WIDTH))
        y += pens.words.pitch
    for row in rows:
        x, tallest = 0.0, max(grid.height for grid in row)
        for place, grid in enumerate(row):
            x += 0.0 if place == 0 else NEAR if grid.joins else GAP
            _write_grid(axes, grid, pens, x, y)
            x += grid.width
        y += tallest + 0.1
    return y + 0.14


def _write_grid(axes: Axes, grid: Grid, pens: Pens, x: float, y: float) -> None:
    left, first = x + grid.label + BRACKET, y + 2 * grid.line
    pens.name.write(axes, left if grid.rows else x, y, cut(grid.title, pens.name, WIDTH - x))
    if not grid.rows:
        return
    for number, text in enumerate(grid.columns):
        _centred(axes, pens.words, left + (number + 0.5) * grid.cell, y + grid.line, text)
    known = np.abs(grid.array.values[np.isfinite(grid.array.values)])
    top = float(known.max(initial=0.0))
    for number, (label, cells) in enumerate(zip(grid.rows, grid.cells, strict=True)):
        height = first + number * grid.line
        pens.words.write(axes, x + grid.label - 0.06 - pens.words.ruler(label), height, label)
        for at, (place, text) in enumerate(zip(grid.places, cells, strict=True)):
            value = np.nan if place is None else float(grid.array.values[number, place])
            ground = _ground(grid.array, value, top)
            corner = (left + at * grid.cell, height)
            axes.add_patch(Rectangle(corner, grid.cell, grid.line, facecolor=ground, linewidth=0, zorder=1))
            _centred(axes, pens.number, corner[0] + grid.cell / 2, height, text, _ink(ground))
    right = left + grid.cell * len(grid.columns)
    for number, text in enumerate(grid.array.remarks):
        pens.words.write(axes, right + PAD, first + number * grid.line, text)
    _bracket(axes, left - BRACKET / 2, first, grid.line * len(grid.rows), 1)
    _bracket(axes, right + BRACKET / 2, first, grid.line * len(grid.rows), -1)


def _centred(axes: Axes, pen: Pen, middle: float, y: float, text: str, ink: str = "") -> None:
    pen.write(axes, middle - pen.ruler(text) / 2, y, text, ink)


def _ground(array: Numbers, value: float, top: float) -> str:
    """The colour of a cell, paler than on a page, so that the numbers stay what is read first."""
    if array.shading == "plain" or not np.isfinite(value) or not top:
        return "#ffffff"
    share = 0.55 * value / top
    return hexadecimal(color(INK, abs(share)) if array.shading == "weight" else signed(share))


def _ink(ground: str) -> str:
    red, green, blue = (int(ground[place : place + 2], 16) for place in (1, 3, 5))
    return hexadecimal(ink_on((red, green, blue)))


def _bracket(axes: Axes, x: float, y: float, height: float, side: int) -> None:
    """A square bracket around rows: side 1 opens to the right."""
    reach = x + side * BRACKET
    axes.plot([reach, x, x, reach], [y, y, y + height, y + height], color=TEXT, linewidth=1.1, solid_joinstyle="miter")
