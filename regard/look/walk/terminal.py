"""A walk in a terminal: formulas, sentences, and tables whose wide rows are cut in the middle so that they fit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal, ink_on, scale_top
from regard.look.walk.shades import signed
from regard.look.walk.steps import Numbers, Step, Walk, figures, named, size_of, tables, written

WIDEST_LABEL = 16
FEW = 16  # cells of an array that is shown although it is aside
MOST_ROWS = 40  # of a table; what is more is cut in the middle
INDENT = "   "
MORE, WHOLE = " more: ", "\u00a0more:\u00a0"  # of a sum: not to be broken over two lines


def draw(walk: Walk, width: int, colored: bool, digits: int) -> Text:
    """The whole walk."""
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
        yield from _wrapped(written(line, digits).replace(MORE, WHOLE), width, "cyan", more=INDENT * 2)
    for table in tables(step.arrays):
        if table[0].picture:
            yield from (Text(INDENT).append(line) for line in blocks(table[0], width - len(INDENT), colored))
        elif not table[0].aside or table[0].values.size <= FEW:
            yield from (Text(INDENT).append(line) for line in _table(table, width - len(INDENT), colored, digits))


def _wrapped(text: str, width: int, style: str = "", more: str = INDENT) -> Iterator[Text]:
    for line in textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=more, break_long_words=True):
        yield Text(line.replace(WHOLE, MORE), style=style)


def _table(table: Sequence[Numbers], width: int, colored: bool, digits: int) -> Iterator[Text]:
    """One table of one or several arrays with the same rows."""
    first = table[0]
    remarks = next((each.remarks for each in table if each.remarks), ())
    labels = [_cut(named(row)) for row in first.rows]
    margin = max(map(cell_len, labels))
    room = width - margin - (max(map(len, remarks)) + 2 if remarks else 0)
    columns = _columns(table, room, digits)
    if first.values.size == 1 and not first.rows[0]:
        yield Text(f"{first.name} = {columns[0][1][0]}")
        return
    if len(first.columns) > 1:
        yield Text(", ".join([size_of(first), *(each.name for each in table[1:])]), style="dim")
    wide = [max(map(cell_len, [name, *cells])) for name, cells, _ in columns]
    header = "".join("  " + _right(name, size) for (name, _, _), size in zip(columns, wide, strict=True))
    yield Text(" " * margin + header, style="dim")
    for row in _some(len(labels)):
        if row < 0:
            yield Text(f"… {len(labels) - MOST_ROWS} more", style="dim")
            continue
        line = Text(set_cell_size(labels[row], margin), style="bold" if row == first.marked else "")
        for (_, cells, array), size in zip(columns, wide, strict=True):
            line.append("  ")
            line.append(_right(cells[row], size), style=_style(array, row, colored))
        if remarks and remarks[row]:
            line.append(f"  {remarks[row]}", style="dim")
        yield line


Column = tuple[str, list[str], Numbers | None]


def _columns(table: Sequence[Numbers], room: int, digits: int) -> list[Column]:
    """Every column as text; of the array with many, the first and the last that fit, and between them how many more."""
    each = [_texts(array, digits) for array in table]
    single = sum(_width(columns[0]) for columns in each if len(columns) == 1)
    found: list[Column] = []
    for columns in each:
        if len(columns) == 1:
            found += columns
            continue
        widest = max(map(_width, columns))
        fitting = max(2, (room - single) // widest)
        if fitting >= len(columns):
            found += columns
            continue
        more = f"… {len(columns) - fitting} more …"
        fitting = max(2, (room - single - len(more) - 2) // widest)
        more = f"… {len(columns) - fitting} more …"
        front = (fitting + 1) // 2
        found += columns[:front]
        found.append((more, ["…"] * len(columns[0][1]), None))
        found += columns[len(columns) - (fitting - front) :]
    return found


def _texts(array: Numbers, digits: int) -> list[Column]:
    cells = figures(array.values, digits)
    return [(name, [row[place] for row in cells], array) for place, name in enumerate(array.columns)]


def _width(column: Column) -> int:
    return max(map(cell_len, [column[0], *column[1]])) + 2


def _cut(label: str) -> str:
    return label if cell_len(label) <= WIDEST_LABEL else set_cell_size(label, WIDEST_LABEL - 1) + "…"


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _some(rows: int) -> list[int]:
    """All rows, or the first and the last of very many; -1 stands for those between."""
    if rows <= MOST_ROWS:
        return list(range(rows))
    half = MOST_ROWS // 2
    return [*range(half), -1, *range(rows - half, rows)]


def _style(array: Numbers | None, row: int, colored: bool) -> str:
    """Weights have their colour behind them."""
    if array is None or not colored or array.kind != "weight" or array.values.shape[1] > 1:
        return ""
    ground = color(GLOW, float(array.values[row, 0]) / scale_top(np.asarray(array.values)))
    return f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}"


SHADES = " ░▒▓█"  # from -1 to 1, where there is no colour
MOST_POSITIONS = 16  # of a picture in a terminal


def blocks(table: Numbers, width: int, colored: bool) -> Iterator[Text]:
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
    yield _blocks_legend(colored)


def _ground(value: float) -> str:
    return f"on {hexadecimal(signed(value, dark=True))}"


def _block(value: float, colored: bool) -> str:
    return " " if colored else SHADES[min(int((value + 1) / 2 * len(SHADES)), len(SHADES) - 1)]


def _blocks_legend(colored: bool) -> Text:
    if not colored:
        return Text(f"-1 {SHADES} 1", style="dim")
    legend = Text("-1 ")
    for step in range(-8, 9):
        legend.append(" ", style=_ground(step / 8))
    return legend.append(" 1")
