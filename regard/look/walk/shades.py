"""Colours for numbers of both signs, and the sine and cosine table as blocks of colour in a terminal.

Paper is light: both signs get darker the farther they are from zero, orange above and purple below (ColorBrewer's PuOr,
Brewer 2003). A terminal or a page on a dark ground is the other way round: both get brighter.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np
from rich.text import Text

from regard.look.colors import Color, color, hexadecimal
from regard.look.walk.steps import Numbers

ABOVE: tuple[Color, ...] = (
    (255, 255, 255),
    (254, 224, 182),
    (253, 184, 99),
    (224, 130, 20),
    (179, 88, 6),
    (127, 59, 8),
)
BELOW: tuple[Color, ...] = (
    (255, 255, 255),
    (216, 218, 235),
    (178, 171, 210),
    (128, 115, 172),
    (84, 39, 136),
    (45, 0, 75),
)
ABOVE_DARK: tuple[Color, ...] = (
    (27, 33, 39),
    (74, 44, 16),
    (128, 70, 12),
    (190, 108, 20),
    (238, 156, 62),
    (255, 206, 140),
)
BELOW_DARK: tuple[Color, ...] = (
    (27, 33, 39),
    (50, 42, 84),
    (80, 68, 130),
    (118, 104, 178),
    (164, 152, 218),
    (214, 206, 246),
)
SHADES = " ░▒▓█"  # from -1 to 1, where there is no colour
MOST_ROWS = 16  # of a picture in a terminal


def signed(share: float, dark: bool = False) -> Color:
    """The colour of a number between -1 and 1."""
    above, below = (ABOVE_DARK, BELOW_DARK) if dark else (ABOVE, BELOW)
    return color(above if share >= 0 else below, abs(share))


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
    first = min(max(0, (table.marked or 0) - MOST_ROWS + 3), max(0, rows - MOST_ROWS))
    for row in range(first, min(rows, first + MOST_ROWS)):
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
