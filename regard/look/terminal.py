"""An attention map as text in a terminal: what is looked at runs across, who looks runs down.

A cell is two characters wide, which is about square on a screen and exactly the width of a Chinese, Japanese or Korean
character. With colour a cell is a background; without, it is one of five shades. A map that is too wide is cut into
panels of columns, each with all its labels.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal, scale_top
from regard.look.labels import visible, visible_title

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

SHADES = " ░▒▓█"
MASKED = "·"
TALLEST_LABEL = 14  # of a column, in lines
WIDEST_LABEL = 24  # of a row, in characters, but at most a third of the terminal


def draw(map: AttentionMap, width: int, colored: bool) -> Text:
    """The whole map: title, a grid for each head and panel, and the legend."""
    top = scale_top(map.weights)
    heads = map.weights if map.weights.ndim == 3 else map.weights[None]  # (H, T, S)
    names = [f"head {index}" for index in range(len(heads))] if map.weights.ndim == 3 else [""]
    lines = [Text(_cut(visible_title(map.title), width), style="bold")] if map.title else []
    for weights, name in zip(heads, names, strict=True):
        lines += [Text(name, style="italic")] if name else []
        lines += _panels(map, weights / top, width, colored)
    lines += [Text(), _legend(top, colored, masked=bool(np.isnan(map.weights).any()))]
    lines += told(map.notes, width)
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def told(notes: Sequence[str], width: int) -> list[Text]:
    """Notes in lines that fit the width."""
    each = [line for note in notes for line in textwrap.wrap(visible_title(note), max(width, 20))]
    return [Text(line, style="italic") for line in each]


def ansi(text: Text) -> str:
    """The text with its colours as escape codes."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor", width=10_000, legacy_windows=False)
    console.print(text, end="", soft_wrap=True)
    return file.getvalue()


def _panels(map: AttentionMap, shares: np.ndarray, width: int, colored: bool) -> Iterator[Text]:
    """The grid (T, S), cut into as few panels of columns as fit the width, all about equally wide."""
    widest = max(1, min(WIDEST_LABEL, width // 3))
    labels = [_cut(visible(row), widest) for row in map.rows]
    margin = max(cell_len(label) for label in labels)
    fitting = max(1, (width - margin - 1) // 2)
    panels = math.ceil(len(map.columns) / fitting)
    for part in np.array_split(np.arange(len(map.columns)), panels):
        for header in _header([visible(map.columns[index]) for index in part]):
            yield Text(" " * (margin + 1) + header)
        for label, row in zip(labels, shares[:, part], strict=True):
            cells = [_cell(share, colored) for share in row]
            yield Text.assemble(_right(label, margin), " ", *cells)


def _cell(share: float, colored: bool) -> Text:
    if math.isnan(share):
        return Text(MASKED * 2, style="dim")
    if colored:
        return Text("  ", style=f"on {hexadecimal(color(GLOW, share))}")
    step = min(max(int(share * len(SHADES)), 0), len(SHADES) - 1)
    return Text(SHADES[step] * 2)


def _header(labels: list[str]) -> list[str]:
    """The column labels: on one line if all fit in a cell, else each written downwards, ending at the grid."""
    if all(cell_len(label) <= 2 for label in labels):
        return ["".join(_left(label, 2) for label in labels)]
    stacks = [_stack(label) for label in labels]
    height = max(len(stack) for stack in stacks)
    stacks = [[""] * (height - len(stack)) + stack for stack in stacks]
    return ["".join(_left(stack[line], 2) for stack in stacks) for line in range(height)]


def _stack(label: str) -> list[str]:
    """The label one character a line, accents staying with their letter, cut where it grows too tall."""
    stack: list[str] = []
    for character in label:
        if stack and cell_len(character) == 0:
            stack[-1] += character
        else:
            stack.append(character)
    return stack if len(stack) <= TALLEST_LABEL else [*stack[: TALLEST_LABEL - 1], "…"]


def _cut(label: str, width: int) -> str:
    if cell_len(label) <= width:
        return label
    kept = label
    while kept and cell_len(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…"


def _left(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def scale(top: float, colored: bool, shades: str = SHADES) -> Text:
    """From weight 0 to the greatest: colours, or shades."""
    legend = Text("weight 0 " if colored else "weight 0")
    if colored:
        for step in range(16):
            legend.append(" ", style=f"on {hexadecimal(color(GLOW, step / 15))}")
    else:
        legend.append(shades)
    return legend.append(f" {top:g}")


def _legend(top: float, colored: bool, masked: bool) -> Text:
    legend = scale(top, colored)
    return legend.append(f"   {MASKED * 2} masked", style="dim") if masked else legend
