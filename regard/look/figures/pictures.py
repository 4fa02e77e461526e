"""A map over a picture as a contact sheet: the picture alone, then one panel for each word, head or layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.colors import hexadecimal
from regard.look.figures.fonts import drawable
from regard.look.figures.sheet import (
    DPI,
    QUIET,
    Pen,
    cut,
    families_of,
    heading,
    heading_height,
    sheet,
    show,
    snapped,
    write_heading,
)
from regard.look.overlay import FRAME, MIDDLE, Box, Boxes, covered, hatched, laid_over, resized, strongest
from regard.look.pictures import Panel, PictureMap

ROOM = 9.6  # inches for the panels of a row
MOST_ACROSS = 6
WIDEST, TALLEST = 2.9, 2.6  # inches of a panel
NARROWEST = 1.05  # inches of a column, so that its word can be read
GAP = 0.14  # inches between panels
BAR, SWATCH = 1.5, 0.13  # inches of the scale, and of what explains the rest


@dataclass(frozen=True)
class Tiles:
    """Places of the panels; all lengths in inches."""

    across: int
    width: float  # of a picture
    height: float
    column: float  # from the left of a panel to the left of the next
    line: float  # from the top of a panel to the top of the one below

    @classmethod
    def of(cls, count: int, aspect: float, text: float) -> Tiles:
        """For pictures of that width over height, with `text` inches of words around each."""
        across = best_across(count)
        width = min((ROOM - (across - 1) * GAP) / across, WIDEST, TALLEST * aspect)
        width, height = snapped(width), snapped(min(width / aspect, TALLEST))
        return cls(across, width, height, snapped(max(width, NARROWEST) + GAP), snapped(height + text + GAP))

    @property
    def all_across(self) -> float:
        return self.across * self.column - GAP


def best_across(count: int) -> int:
    """The number of panels side by side: the most that leave the fewest places empty."""
    if count <= MOST_ACROSS:
        return count
    return min(range(4, MOST_ACROSS + 1), key=lambda across: (-count % across, -across))


@dataclass(frozen=True)
class Scaled:
    """Boxes of the original picture in the pixels of a smaller one."""

    boxes: Boxes
    across: float
    down: float

    def cell(self, row: int, column: int, grid: tuple[int, int]) -> Box:
        left, top, right, bottom = self.boxes.cell(row, column, grid)
        return left * self.across, top * self.down, right * self.across, bottom * self.down


Item = tuple[float, Callable[[Axes, float, float], None]]  # a part of the legend: how wide it is, and who draws it


def draw_pictures(picture_map: PictureMap, *, smooth: bool, own_scale: bool) -> Figure:
    """Heading, panels and legend under each other."""
    families = families_of(
        picture_map.title, picture_map.caption, *(panel.name + panel.note for panel in picture_map.panels)
    )
    name, quiet = Pen(10.0, families), Pen(8.0, families, color=QUIET)
    noted = any(picture_map.note(panel) for panel in picture_map.panels)
    aspect = picture_map.picture.shape[1] / picture_map.picture.shape[0]
    tiles = Tiles.of(len(picture_map.panels) + 1, aspect, name.pitch + (quiet.pitch if noted else 0.0))
    items = _legend_items(picture_map, quiet, smooth, own_scale)
    width = max(tiles.all_across, max(wide for wide, _ in items))
    lines = flow(items, width)
    title = heading(picture_map.title, picture_map.caption, families, width)
    below = heading_height(title) + math.ceil((len(picture_map.panels) + 1) / tiles.across) * tiles.line
    figure, axes = sheet(width, below + len(lines) * quiet.pitch)
    _draw_panels(axes, picture_map, tiles, write_heading(axes, title), (name, quiet), smooth, own_scale)
    for number, line in enumerate(lines):
        x = 0.0
        for wide, drawn in line:
            drawn(axes, x, below + number * quiet.pitch)
            x += wide
    return figure


def _draw_panels(
    axes: Axes,
    picture_map: PictureMap,
    tiles: Tiles,
    start: float,
    pens: tuple[Pen, Pen],
    smooth: bool,
    own_scale: bool,
) -> None:
    """The picture, and each panel over it, from `start` downwards."""
    small = resized(picture_map.picture, round(tiles.width * DPI), round(tiles.height * DPI))
    (high, wide), (height, width) = small.shape[:2], picture_map.picture.shape[:2]
    boxes = Scaled(picture_map.boxes, wide / width, high / height)
    _draw_tile(axes, tiles, 0, start, pens, ("picture", f"{width} × {height}", ""), small)
    for number, panel in enumerate(picture_map.panels, start=1):
        top = scale_of(panel, picture_map.top, own_scale)
        weights = np.zeros_like(panel.weights) if panel.even else panel.weights
        pixels = laid_over(small, boxes, weights, top, smooth=smooth, colored=picture_map.colored)
        _draw_tile(axes, tiles, number, start, pens, (panel.name, panel.value, picture_map.note(panel)), pixels)


def scale_of(panel: Panel, top: float, own_scale: bool) -> float:
    """The weight that gets the last colour in a panel."""
    return (panel.peak or 1.0) if own_scale else top


def _draw_tile(
    axes: Axes,
    tiles: Tiles,
    number: int,
    start: float,
    pens: tuple[Pen, Pen],
    words: tuple[str, str, str],
    pixels: np.ndarray,
) -> None:
    """One picture: its name above on the left, a number on the right, a note below."""
    (name, quiet), (title, value, note) = pens, words
    x, y = number % tiles.across * tiles.column, start + number // tiles.across * tiles.line
    room, right = tiles.column - GAP, quiet.ruler(value)
    title = drawable(title, name.families)
    smaller = Pen(7.0, name.families)
    pen = next((pen for pen in (name, Pen(8.5, name.families)) if pen.ruler(title) <= room - right - 0.06), smaller)
    pen.write(axes, x, y + (name.pitch - pen.pitch) / 2, cut(title, pen, room - right - 0.06))
    quiet.write(axes, x + max(tiles.width, NARROWEST) - right, y + (name.pitch - quiet.pitch) / 2, value)
    show(axes, pixels, x, y + name.pitch, tiles.width, tiles.height)
    if note:
        quiet.write(axes, x, y + name.pitch + tiles.height, cut(note, quiet, room))


# --- Legend


def flow(items: list[Item], width: float) -> list[list[Item]]:
    """The items in lines that are no wider than that, if no item is."""
    lines: list[list[Item]] = [[]]
    for item in items:
        if lines[-1] and sum(wide for wide, _ in lines[-1]) + item[0] > width:
            lines.append([])
        lines[-1].append(item)
    return lines


def _legend_items(picture_map: PictureMap, pen: Pen, smooth: bool, own_scale: bool) -> list[Item]:
    """The scale, and whatever else the panels show."""
    items = [] if picture_map.even else [_scale(pen, "the panel's greatest" if own_scale else f"{picture_map.top:g}")]
    if any(strongest(panel.weights) for panel in picture_map.panels if not panel.even):
        items.append(_swatch(pen, np.full((1, 1, 3), covered(MIDDLE, 0.3), dtype=np.uint8), "greatest weight", True))
    if picture_map.cut:
        stripes = np.repeat(hatched(np.full((21, 21), MIDDLE))[..., None], 3, axis=2).astype(np.uint8)
        items.append(_swatch(pen, stripes, "not seen by the model", False))
    items.append(_words(pen, f"{picture_map.grid[0]} × {picture_map.grid[1]} places"))
    return [*items, _words(pen, "smoothed between the places")] if smooth else items


def _scale(pen: Pen, top: str) -> Item:
    """The scale of colours from 0 to the top, over a middle grey."""
    start = pen.ruler("weight 0  ")
    pixels = np.array([[covered(MIDDLE, step / 255) for step in range(256)]], dtype=np.uint8)  # (1, 256, 3)

    def drawn(axes: Axes, x: float, y: float) -> None:
        pen.write(axes, x, y, "weight 0")
        pen.write(axes, x + start + BAR + 0.06, y, top)
        show(axes, pixels, x + start, y + pen.pitch / 2 - SWATCH / 2, BAR, SWATCH)

    return start + BAR + 0.06 + pen.ruler(top) + 0.3, drawn


def _swatch(pen: Pen, pixels: np.ndarray, text: str, framed: bool) -> Item:
    def drawn(axes: Axes, x: float, y: float) -> None:
        corner = x, y + pen.pitch / 2 - SWATCH / 2
        show(axes, pixels, *corner, SWATCH, SWATCH)
        if framed:
            axes.add_patch(
                Rectangle(corner, SWATCH, SWATCH, fill=False, edgecolor=hexadecimal(FRAME), linewidth=0.8, zorder=3)
            )
        pen.write(axes, x + SWATCH + 0.06, y, text)

    return SWATCH + 0.06 + pen.ruler(text) + 0.3, drawn


def _words(pen: Pen, text: str) -> Item:
    return pen.ruler(text) + 0.3, lambda axes, x, y: pen.write(axes, x, y, text)
