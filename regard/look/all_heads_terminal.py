"""All heads in a terminal: small maps side by side, as many as fit the width; a letter is a cell, or two with colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal, scale_top
from regard.look.labels import visible_title
from regard.look.terminal import MASKED, SHADES, scale, told

if TYPE_CHECKING:
    from regard.look.all_heads import AllHeads

GAP = 2  # letters between two heads
NAMED = len("layer 1, head 2")  # letters; narrower maps have numbers alone above them
GREY = "#808080"  # of a masked cell
UPPER = "▀"  # its letter is the cell above, its ground the one below


def draw(heads: AllHeads, width: int, colored: bool) -> Text:
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
