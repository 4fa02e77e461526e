"""A walk in a terminal: formulas, sentences, and tables whose wide rows are cut in the middle so that they fit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal, ink_on, scale_top
from regard.look.walk.shades import signed
from regard.look.walk.steps import DIGITS, Numbers, NumberTable, Step, Walk, format_label, format_line

WIDEST_LABEL = 24
MOST_ROWS = 40  # of a table; what is more is cut in the middle
MOST_POSITIONS = 16  # of the picture of sines and cosines
INDENT = "   "
MORE, WHOLE = " more: ", "\u00a0more:\u00a0"  # of a sum: not to be broken over two lines
SHADES = " ░▒▓█"  # from -1 to 1, where there is no colour


def draw(walk: Walk, width: int, colored: bool, digits: int = DIGITS) -> Text:
    """Draw the whole walk."""
    lines = [Text(line, style="bold") for line in textwrap.wrap(walk.title, width)]
    lines += [Text(line) for line in textwrap.wrap(walk.summary, width)]
    for number, step in enumerate(walk.steps):
        lines += [Text(), *_step(step, number, width, colored, digits)]
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _step(step: Step, number: int, width: int, colored: bool, digits: int) -> Iterator[Text]:
    yield Text(f"{number} · {step.title}", style="bold")
    yield from _wrapped(step.formula, width, "italic")
    yield from _wrapped(step.text, width)
    for line in step.lines:
        yield from _wrapped(format_line(line, digits).replace(MORE, WHOLE), width, "cyan", more=INDENT * 2)
    for table in step.tables():
        if table.first.picture:
            yield from (Text(INDENT).append(line) for line in _picture(table.first, width - len(INDENT), colored))
        elif not table.is_folded:
            yield from (Text(INDENT).append(line) for line in _table(table, width - len(INDENT), colored, digits))


def _wrapped(text: str, width: int, style: str = "", more: str = INDENT) -> Iterator[Text]:
    for line in textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=more, break_long_words=True):
        yield Text(line.replace(WHOLE, MORE), style=style)


@dataclass(frozen=True, eq=False)
class TerminalColumn:
    """A column as text: its heading, its cells, and the array it belongs to (None for the gap in a wide array)."""

    name: str
    cells: list[str]
    array: Numbers | None

    @cached_property
    def width(self) -> int:
        return max(map(cell_len, [self.name, *self.cells]))


def _table(table: NumberTable, width: int, colored: bool, digits: int) -> Iterator[Text]:
    """One table of one or several arrays with the same rows."""
    first, remarks = table.first, table.remarks
    labels = [_cut(format_label(row)) for row in first.rows]
    margin = max(map(cell_len, labels))
    room = width - margin - (max(map(len, remarks)) + 2 if remarks else 0)
    columns = _columns(table.arrays, room, digits)
    if first.is_scalar:
        yield Text(f"{first.heading} = {columns[0].cells[0]}")
        return
    if len(first.columns) > 1:
        yield Text(table.title, style="dim")
    yield Text(" " * margin + "".join("  " + _right(each.name, each.width) for each in columns), style="dim")
    for row in _some(len(labels)):
        if row is None:
            yield Text(f"… {len(labels) - MOST_ROWS} more", style="dim")
            continue
        line = Text(set_cell_size(labels[row], margin), style="bold" if row == first.marked else "")
        for column in columns:
            line.append("  ")
            line.append(_right(column.cells[row], column.width), style=_style(column.array, row, colored))
        if remarks and remarks[row]:
            line.append(f"  {remarks[row]}", style="dim")
        yield line


def _columns(arrays: Sequence[Numbers], room: int, digits: int) -> list[TerminalColumn]:
    """Every column as text; of an array with many, those that fit."""
    each = [_texts(array, digits) for array in arrays]
    single = sum(columns[0].width + 2 for columns in each if len(columns) == 1)
    return [column for columns in each for column in _fitting(columns, room - single)]


def _texts(array: Numbers, digits: int) -> list[TerminalColumn]:
    cells = array.cells(digits)
    return [TerminalColumn(name, [row[place] for row in cells], array) for place, name in enumerate(array.columns)]


def _fitting(columns: list[TerminalColumn], room: int) -> list[TerminalColumn]:
    """The columns, or the first and the last that fit, and between them how many more."""
    widest = max(column.width + 2 for column in columns)
    fitting = max(2, room // widest)
    if len(columns) == 1 or fitting >= len(columns):
        return columns
    more = f"… {len(columns) - fitting} more …"
    fitting = max(2, (room - len(more) - 2) // widest)
    gap = TerminalColumn(f"… {len(columns) - fitting} more …", ["…"] * len(columns[0].cells), None)
    front = (fitting + 1) // 2
    return [*columns[:front], gap, *columns[len(columns) - (fitting - front) :]]


def _cut(label: str) -> str:
    return label if cell_len(label) <= WIDEST_LABEL else set_cell_size(label, WIDEST_LABEL - 1) + "…"


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _some(rows: int) -> list[int | None]:
    """All rows, or the first and the last of very many; None stands for those between."""
    if rows <= MOST_ROWS:
        return list(range(rows))
    half = MOST_ROWS // 2
    return [*range(half), None, *range(rows - half, rows)]


def _style(array: Numbers | None, row: int, colored: bool) -> str:
    """Weights have their colour behind them."""
    if array is None or not colored or array.shading != "weight" or array.values.shape[1] > 1:
        return ""
    ground = color(GLOW, float(array.values[row, 0]) / scale_top(np.asarray(array.values)))
    return f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}"


def _picture(table: Numbers, width: int, colored: bool) -> Iterator[Text]:
    """A table of sines and cosines as rows of cells, sines left and cosines right, some of the pairs where room is short."""
    rows, columns = table.values.shape
    margin = len(str(rows - 1)) + 2
    pairs = columns // 2
    chosen = np.unique(np.linspace(0, pairs - 1, min(pairs, (width - margin - 2) // 2)).round().astype(int))
    some = "" if len(chosen) == pairs else f" ({len(chosen)} shown)"
    for caption in textwrap.wrap(f"positions down, {pairs} pairs of dimensions{some} across, fast to slow", width):
        yield Text(caption, style="dim")
    yield Text(" " * margin + "sines".ljust(len(chosen) + 2) + "cosines", style="dim")
    first = min(max(0, (table.marked or 0) - MOST_POSITIONS + 3), max(0, rows - MOST_POSITIONS))
    for row in range(first, min(rows, first + MOST_POSITIONS)):
        mark = "→" if row == table.marked else " "
        line = Text(f"{mark}{row:>{margin - 2}} ", style="bold" if row == table.marked else "dim")
        for half in (0, 1):
            for value in table.values[row, 2 * chosen + half]:
                line.append(_block(float(value), colored), style=_ground(float(value)) if colored else "")
            line.append("" if half else "  ")
        yield line
    yield _legend(colored)


def _ground(value: float) -> str:
    return f"on {hexadecimal(signed(value, dark=True))}"


def _block(value: float, colored: bool) -> str:
    return " " if colored else SHADES[min(int((value + 1) / 2 * len(SHADES)), len(SHADES) - 1)]


def _legend(colored: bool) -> Text:
    if not colored:
        return Text(f"-1 {SHADES} 1", style="dim")
    legend = Text("-1 ")
    for step in range(-8, 9):
        legend.append(" ", style=_ground(step / 8))
    return legend.append(" 1")
