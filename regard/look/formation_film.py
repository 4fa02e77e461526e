"""How an attention formed, as a film: a GIF with a frame for each step, nothing between them, the last one held.

A frame is the map of its step and the curves, with a line where it stands on them. All frames share one palette, so
that a colour means the same weight throughout.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from PIL import Image

from regard.look.colors import INK, Color, color
from regard.look.figure import Layout, Placed
from regard.look.formation_figure import LOSS, SHOWN, below, draw_curves, draw_maps, finish
from regard.look.sheet import MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.look.formation import Formation

WIDEST = 1280  # pixels
SHARPEST = 100  # pixels to an inch
CURVES = 2.3  # inches: the width of the curves
FLAT = 2.5  # inches: under a map that is less high the curves stand below, not beside
HEIGHT, DOWN = 1.0, 1.75  # inches: of a curve, and from the top of one to the next
WHOLE = 7_000  # milliseconds that the steps take together
SHORTEST, LONGEST = 120, 800  # milliseconds of a step
FIRST, LAST = 1_000, 3_000  # the first and the last are held at least so long


def film(formation: Formation) -> bytes:
    """The GIF; it begins anew when it has ended."""
    frames = formation.frames(len(formation.steps))
    palette = _palette()
    pictures = (each.quantize(palette=palette, dither=Image.Dither.NONE) for each in _pictures(formation, frames))
    first, *rest = pictures
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=rest, duration=durations(len(frames)), loop=0, disposal=1)
    return file.getvalue()


def durations(count: int) -> list[int]:
    """Milliseconds of each frame."""
    each = [min(max(WHOLE // count, SHORTEST), LONGEST)] * count
    each[0] = max(each[0], FIRST)
    each[-1] = LAST
    return each


def _pictures(formation: Formation, frames: list[int]) -> Iterator[Image.Image]:
    """A picture for each step: one figure, in which only the cells, the caption and the line on the curves change."""
    figure = Figure(facecolor="white")
    canvas = FigureCanvasAgg(figure)
    layout = Layout.of(1, len(formation.rows), len(formation.columns))
    widest = max(frames, key=lambda number: len(formation.caption(number)))
    placed, bar = draw_maps(figure, formation, [widest], layout)
    drawn = draw_curves(figure, formation, [])
    left = layout.width + 1.1 + 2 * MARGIN
    beside: Placed = [(axes, (left, 0.2 + n * DOWN, CURVES, HEIGHT)) for n, axes in enumerate(drawn)]
    flat = layout.height < FLAT
    finish(figure, [*placed, *bar, *(below(placed, drawn, layout.width) if flat else beside)], formation)
    lines = [axes.axvline(0, color=SHOWN, linewidth=1.0, linestyle=(0, (2, 2))) for axes in drawn]
    figure.set_dpi(min(SHARPEST, WIDEST / figure.get_figwidth()))
    cells = next(each for each in placed[0][0].collections if isinstance(each, QuadMesh))
    for number in frames:
        cells.set_array(np.ma.masked_invalid(formation.maps[number]))
        placed[0][0].set_xlabel(formation.caption(number))
        for line in lines:
            line.set_xdata([formation.steps[number]] * 2)
        canvas.draw()
        yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _palette() -> Image.Image:
    """Every shade of the weights, of the greys, and of the loss: no frame needs more."""
    shades = [color(INK, number / 167) for number in range(168)]
    greys = [
        (level, level, level) for level in (*range(0, 246, 5), 255)
    ]  # nothing near white, or it would be taken for it
    losses = [color(((255, 255, 255), _bytes(LOSS)), number / 31) for number in range(1, 32)]
    picture = Image.new("P", (1, 1))
    picture.putpalette([part for each in (*shades, *greys, *losses) for part in each])
    return picture


def _bytes(name: str) -> Color:
    red, green, blue = (int(name[place : place + 2], 16) for place in (1, 3, 5))
    return red, green, blue
