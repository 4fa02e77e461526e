"""A map over a picture in a terminal: the places of each panel as blocks, and where each word looks most."""

from __future__ import annotations

import numpy as np
from PIL import Image
from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal
from regard.look.labels import visible_title
from regard.look.layers import ChannelWeights, MixingMatrices
from regard.look.overlay import strongest
from regard.look.pictures import Panel, PictureMap
from regard.look.terminal.map import scale

SHADES = "·░▒▓█"  # unlike in a map of text, the first is seen: nothing else shows where a panel ends
GAP = 2  # characters between panels
WIDEST_NAME = 24


def draw_pictures(picture_map: PictureMap, width: int, colored: bool) -> Text:
    """Title, caption, as many panels side by side as fit the width, the strongest places, and the legend."""
    lines = [Text(_cut(visible_title(picture_map.title), width), style="bold")] if picture_map.title else []
    lines += [Text(_cut(visible_title(picture_map.caption), width), style="italic")] if picture_map.caption else []
    lines += [Text()] if lines else []
    cell = 2 if 2 * picture_map.grid[1] <= width else 1  # characters; two are about square
    tiles = [_thumbnail(picture_map, cell)] if colored else []
    tiles += [_panel(panel, picture_map.top, cell, colored) for panel in picture_map.panels]
    across = max(1, (width + GAP) // (cell * picture_map.grid[1] + GAP))
    for start in range(0, len(tiles), across):
        for parts in zip(*tiles[start : start + across], strict=True):
            lines.append(Text(" " * GAP).join(parts))
        lines.append(Text())
    lines += [*_strongest(picture_map, width), Text(), _legend(picture_map, colored)]
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _panel(panel: Panel, top: float, cell: int, colored: bool) -> list[Text]:
    """The name, and a line of blocks for each row."""
    lines = [_name(panel.name, cell * panel.weights.shape[1])]
    for row in np.zeros_like(panel.weights) if panel.even else panel.weights / top:
        lines.append(Text.assemble(*(_block(share, cell, colored) for share in row)))
    return lines


def _name(title: str, width: int) -> Text:
    shown = _cut(title, width)
    return Text(shown + " " * (width - cell_len(shown)))


def _block(share: float, cell: int, colored: bool) -> Text:
    if colored:
        return Text(" " * cell, style=f"on {hexadecimal(color(GLOW, share))}")
    return Text(SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)] * cell)


def _thumbnail(picture_map: PictureMap, cell: int) -> list[Text]:
    """The picture as the model saw it, two pixels in a character, as large as a panel."""
    rows, columns = picture_map.grid
    left, top, right, bottom = (round(side) for side in picture_map.seen)
    seen = Image.fromarray(picture_map.picture).crop(
        (left, top, max(right, left + 1), max(bottom, top + 1))
    )  # black beyond it
    pixels = np.asarray(seen.resize((cell * columns, 2 * rows), Image.Resampling.BOX))
    lines = [_name("picture", cell * columns)]
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        halves = zip(upper, lower, strict=True)
        lines.append(Text.assemble(*(("▀", f"{hexadecimal(a)} on {hexadecimal(b)}") for a, b in halves)))
    return lines


def _strongest(picture_map: PictureMap, width: int) -> list[Text]:
    """A line for each panel: its greatest weight and where that is."""
    names = [_cut(panel.name, min(WIDEST_NAME, max(1, width // 3))) for panel in picture_map.panels]
    margin = max(cell_len(name) for name in names)
    rows, columns = picture_map.grid
    lines = []
    for name, panel in zip(names, picture_map.panels, strict=True):
        peak = strongest(panel.weights)
        where = f"row {peak[0] + 1} of {rows}, column {peak[1] + 1} of {columns}" if peak else "in several places"
        where = "" if panel.even else f"{where}   "
        line = (
            f"{name}{' ' * (margin - cell_len(name))}  {panel.value:<7} {where}{visible_title(picture_map.note(panel))}"
        )
        lines.append(Text(_cut(line.rstrip(), width)))
    return lines


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _legend(picture_map: PictureMap, colored: bool) -> Text:
    return scale(picture_map.top, colored, SHADES).append(f"   {picture_map.grid[0]} × {picture_map.grid[1]} places")


MOST = 8  # channels that are named


def draw_channels(channels: ChannelWeights, width: int, colored: bool) -> Group:
    """For each layer the mean weight of its channels, and the greatest by their numbers."""
    lines = []
    for name, values in channels.layers.items():
        best = np.argsort(-values, kind="stable")[:MOST]
        most = ", ".join(f"{channel}: {values[channel]:.2f}" for channel in best)
        lines.append(f"{name}: mean {values.mean():.2f} of {len(values)} channels; most {most}")
    return Group(*lines)


def draw_mixing(mixing: MixingMatrices, width: int, colored: bool) -> Group:
    """For each layer how much of what is mixed into a place is its own."""
    lines = []
    for number, matrix in enumerate(mixing.matrices):
        own = np.abs(np.diag(matrix)).sum() / np.abs(matrix).sum()
        even = 1 / len(matrix)
        lines.append(f"layer {number}: {own:.1%} of what is mixed into a place is its own (uniform: {even:.1%})")
    return Group(*lines, "saved as .png or .svg, the matrices are small pictures")
