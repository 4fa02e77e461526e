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
from regard.look.walk.steps import Numbers, Step, Walk, format_cells, format_label, format_line

WIDTH = 9.0  # inches within the margins
GAP = 0.34  # between two matrices
PAD = 0.16  # in a cell, beside its number
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
    """One matrix as it is drawn: its texts and its sizes in inches."""

    array: Numbers
    cells: list[list[str]]
    rows: list[str]
    columns: list[str]
    label: float  # width of the labels of rows
    cell: float  # width of a cell
    line: float  # height of a row
    remark: float = 0.0  # width of the words behind the rows

    @property
    def width(self) -> float:
        return self.label + self.cell * len(self.columns) + 2 * BRACKET + self.remark

    @property
    def height(self) -> float:
        return self.line * (len(self.rows) + 2)  # its name, the labels of columns, the rows


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
    for array in step.arrays:
        if array.values.size > MOST_CELLS or array.picture:
            continue
        grid = _grid(array, pens, digits)
        if not rows or room + GAP + grid.width > WIDTH:
            rows, room = [*rows, [grid]], grid.width
        else:
            rows[-1].append(grid)
            room += GAP + grid.width
    return rows


def _grid(array: Numbers, pens: Pens, digits: int) -> Grid:
    pen = pens.number
    cells = format_cells(array.values, digits)
    rows = [cut(format_label(label), pen, 1.4) if label else "" for label in array.rows]
    columns = [cut(format_label(label), pen, 1.1) for label in array.columns]
    widest = max(pen.ruler(text) for text in [*columns, *(text for row in cells for text in row)])
    label = max((pen.ruler(text) for text in rows), default=0.0)
    remark = max((pens.words.ruler(text) + PAD for text in array.remarks if text), default=0.0)
    return Grid(array, cells, rows, columns, label + 0.1, widest + PAD, pen.pitch, remark)


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
        for grid in row:
            _write_grid(axes, grid, pens, x, y)
            x += grid.width + GAP
        y += tallest + 0.1
    return y + 0.14


def _write_grid(axes: Axes, grid: Grid, pens: Pens, x: float, y: float) -> None:
    left, first = x + grid.label + BRACKET, y + 2 * grid.line
    pens.name.write(axes, left, y, cut(grid.array.title, pens.name, max(grid.width, 1.2)))
    for number, text in enumerate(grid.columns):
        _centred(axes, pens.words, left + (number + 0.5) * grid.cell, y + grid.line, text)
    known = np.abs(grid.array.values[np.isfinite(grid.array.values)])
    top = float(known.max(initial=0.0))
    for number, (label, cells) in enumerate(zip(grid.rows, grid.cells, strict=True)):
        height = first + number * grid.line
        pens.words.write(axes, x + grid.label - 0.06 - pens.words.ruler(label), height, label)
        for place, text in enumerate(cells):
            ground = _ground(grid.array, float(grid.array.values[number, place]), top)
            corner = (left + place * grid.cell, height)
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
