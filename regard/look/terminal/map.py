"""Attention maps as text in a terminal: the columns run across, the rows run down; all heads small, side by side.

A cell is two characters wide, which is about square on a screen and exactly the width of a Chinese, Japanese or Korean
character. With colour a cell is a background; without, it is one of five shades. A map that is too wide is cut into
panels of columns, each with all its labels.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Literal

import numpy as np
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal, scale_top
from regard.look.formation import Formation
from regard.look.labels import visible, visible_title
from regard.look.map import AttentionMap
from regard.look.recorded import EffectiveAttention
from regard.look.sentence import AllHeads

SHADES = " ░▒▓█"
MASKED = "·"
TALLEST_LABEL = 14  # of a column, in lines
WIDEST_LABEL = 24  # of a row, in characters, but at most a third of the terminal


def draw_map(attention: AttentionMap, width: int, colored: bool) -> Text:
    """The whole map: title, a grid for each head and panel, and the legend."""
    top = scale_top(attention.weights)
    heads = attention.weights if attention.weights.ndim == 3 else attention.weights[None]  # (H, T, S)
    names = [f"head {index}" for index in range(len(heads))] if attention.weights.ndim == 3 else [""]
    lines = [Text(_cut(visible_title(attention.title), width), style="bold")] if attention.title else []
    for weights, name in zip(heads, names, strict=True):
        lines += [Text(name, style="italic")] if name else []
        rows = [visible(row) for row in attention.rows]
        lines += grid_lines(rows, attention.columns, weights / top, width, partial(_cell, colored=colored))
    lines += [Text(), _legend(top, colored, masked=bool(np.isnan(attention.weights).any()))]
    lines += told(attention.notes, width)
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def told(notes: Sequence[str], width: int) -> list[Text]:
    """Notes in lines that fit the width."""
    each = [line for note in notes for line in textwrap.wrap(visible_title(note), max(width, 20))]
    return [Text(line, style="italic") for line in each]


def written(drawn: RenderableType, width: int, color: bool) -> str:
    """Return as text what rich would print: with its colours as escape codes, or without any."""
    if isinstance(drawn, Text):
        return ansi(drawn) if color else drawn.plain
    file = io.StringIO()
    system: Literal["truecolor"] | None = "truecolor" if color else None
    Console(file=file, force_terminal=color, color_system=system, width=width, legacy_windows=False).print(drawn)
    return file.getvalue()


def ansi(text: Text) -> str:
    """The text with its colours as escape codes."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor", width=10_000, legacy_windows=False)
    console.print(text, end="", soft_wrap=True)
    return file.getvalue()


def draw_brief(shown: object, width: int, colored: bool) -> Text:
    """The short line by which it prints itself."""
    return Text(repr(shown))


def draw_effective(effective: EffectiveAttention, width: int, colored: bool) -> Group:
    """The maps one after another, and how far each layer is from exact attention."""
    maps = [AttentionMap(each.weights, each.columns, each.rows, name) for name, each in effective.maps().items()]
    layers = []
    for number, layer in enumerate(effective.layers):
        if layer.differences.size and not layer.same:
            by_head = " ".join(f"{value:.3f}" for value in layer.differences)
            layers.append(f"layer {number}: {layer.measure} {layer.difference:.3f}, by head {by_head}")
    return Group(*maps, effective.title, *layers)


def draw_formation(formation: Formation, width: int, colored: bool) -> Group:
    """The numbers of the steps, the last map that is shown, and when it came."""
    columns, *lines = formation.table()
    right = (Column(name, justify="right", no_wrap=True) for name in columns)
    table = Table(*right, box=None, pad_edge=False, header_style="bold")
    for line in lines:
        table.add_row(*line)
    meaning = "sharpness: the greatest weight of a row, on average; alike: to the last map, 1 where equal"
    last = formation.map(formation.frames()[-1])
    return Group(table, Text(meaning, style="dim"), "", last, formation.sentence)


def grid_lines(
    rows: Sequence[str], columns: Sequence[str], shares: np.ndarray, width: int, cell: Callable[[float], Text]
) -> Iterator[Text]:
    """A grid (T, S) of cells two characters wide, cut into as few panels of columns as fit, all about equally wide.

    `rows` are written as they are, and what is invisible in `columns` is made visible.
    """
    widest = max(1, min(WIDEST_LABEL, width // 3))
    labels = [_cut(row, widest) for row in rows]
    margin = max(cell_len(label) for label in labels)
    fitting = max(1, (width - margin - 1) // 2)
    panels = math.ceil(len(columns) / fitting)
    for part in np.array_split(np.arange(len(columns)), panels):
        for header in _header([visible(columns[index]) for index in part]):
            yield Text(" " * (margin + 1) + header)
        for label, row in zip(labels, shares[:, part], strict=True):
            yield Text.assemble(_right(label, margin), " ", *map(cell, row))


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


GAP = 2  # letters between two heads
NAMED = len("layer 1, head 2")  # letters; narrower maps have numbers alone above them
GREY = "#808080"  # of a masked cell
UPPER = "▀"  # its letter is the cell above, its ground the one below


def draw_all_heads(heads: AllHeads, width: int, colored: bool) -> Text:
    """Title, a line of maps for each layer (several where they do not fit), and the legend."""
    everything = np.concatenate([each.ravel() for each in heads.layers.values()])
    top = scale_top(everything)
    across = max(1, (width + GAP) // (len(heads.columns) + GAP))
    lines = [Text(visible_title(heads.title), style="bold")] if heads.title else []
    for number, layer in enumerate(heads.layers.values()):
        for start in range(0, len(layer), across):
            lines += [Text(), *_side_by_side(number, start, layer[start : start + across] / top, colored)]
    legend = scale(top, colored)
    legend.append(f"   {MASKED} masked" if np.isnan(everything).any() else "", style="dim")
    said = f"each of {len(heads.rows)} rows looks at {len(heads.columns)} columns"
    said += "; 1.2 is layer 1, head 2" if len(heads.columns) < NAMED and len(heads.layers) * heads.heads > 1 else ""
    lines += [Text(), legend, Text(said)]
    return Text("\n", no_wrap=True, overflow="ignore").join(lines + told(heads.notes, width))


def _side_by_side(layer: int, first: int, maps: np.ndarray, colored: bool) -> list[Text]:
    """Names, then the maps (heads, T, S) of shares."""
    columns = maps.shape[-1]
    names = [f"layer {layer}, head {first + each}" for each in range(len(maps))]
    if columns < max(NAMED, len(max(names, key=len))):
        names = [f"{layer}.{first + each}" for each in range(len(maps))]
    drawn = [_colored(each) if colored else _shaded(each) for each in maps]
    heading = Text((" " * GAP).join(name.ljust(columns)[: max(columns, 4)] for name in names), style="italic")
    return [heading, *(Text(" " * GAP).join(parts) for parts in zip(*drawn, strict=True))]


def _shaded(shares: np.ndarray) -> list[Text]:
    return [Text("".join(map(_shade, row))) for row in shares]


def _shade(share: float) -> str:
    return MASKED if math.isnan(share) else SHADES[min(max(int(share * len(SHADES)), 0), len(SHADES) - 1)]


def _colored(shares: np.ndarray) -> list[Text]:
    """Two rows of cells in a line of letters, which are twice as high as wide."""
    lines = []
    for upper, lower in zip_longest(shares[::2], shares[1::2]):
        line = Text()
        for above, below in zip(upper, _none(upper) if lower is None else lower, strict=True):
            ground = "" if below is None else f" on {_color(below)}"
            line.append(UPPER, style=f"{_color(above)}{ground}")
        lines.append(line)
    return lines


def _none(like: Sequence[float]) -> list[None]:
    return [None] * len(like)


def _color(share: float) -> str:
    return GREY if math.isnan(share) else hexadecimal(color(GLOW, share))
