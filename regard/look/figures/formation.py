"""How an attention formed, as a figure and as a film: maps at some steps on one scale, and curves over all steps.

The film is a GIF with a frame for each step, nothing between them, the last one held. A frame is the map of its step and
the curves, with a line where it stands on them. All frames share one palette, so that a colour means the same weight
throughout.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from matplotlib.transforms import Bbox
from PIL import Image

from regard.look.colors import INK, Color, color, hexadecimal, scale_top
from regard.look.figures.map import (
    CAPTION,
    GAP,
    Placed,
    SheetLayout,
    draw_cells,
    draw_labels,
    draw_legend,
    fit_page,
    stand,
)
from regard.look.figures.sheet import DPI, MARGIN, TEXT, tidy
from regard.look.formation import Formation

SHOWN, HEADS, LOSS = hexadecimal(INK[-2]), hexadecimal(INK[3]), "#c44e00"
CURVE = 1.45  # inches: the height of a curve
BETWEEN = 0.62  # inches between curves, for the numbers of the next
NARROWEST = 6.4  # inches of all curves together


def draw_formation(formation: Formation) -> Figure:
    """The strip above, the curves below; dots on the curves are the maps of the strip."""
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    frames = formation.frames()
    layout = SheetLayout.of(len(frames), len(formation.rows), len(formation.columns))
    placed, bar = draw_maps(figure, formation, frames, layout)
    width = layout.across * (layout.width + GAP) - GAP
    finish(figure, [*placed, *bar, *below(placed, draw_curves(figure, formation, frames), width)], formation)
    return figure


def below(placed: Placed, curves: list[Axes], width: float) -> Placed:
    """The curves side by side under what is placed, about as wide as it."""
    bottom = max(top + height for _, (_, top, _, height) in placed) + CAPTION + GAP + 0.3
    each = (max(width, NARROWEST) - BETWEEN * (len(curves) - 1)) / len(curves)
    return [(axes, (number * (each + BETWEEN), bottom, each, CURVE)) for number, axes in enumerate(curves)]


def draw_maps(figure: Figure, formation: Formation, frames: list[int], layout: SheetLayout) -> tuple[Placed, Placed]:
    """The maps of these steps on the scale of all that are shown, with their labels; and the legend."""
    top = scale_top(formation.maps[formation.frames(len(formation.steps))])
    placed: Placed = [(figure.add_axes((0, 0, 1, 1)), layout.place(index)) for index in range(len(frames))]
    for (axes, _), number in zip(placed, frames, strict=True):
        draw_cells(axes, formation.maps[number], top, layout)
        axes.set_xlabel(formation.caption(number), fontsize=9, color=TEXT, labelpad=4)
    bar = draw_legend(figure, layout, placed, top, masked=bool(np.isnan(formation.maps).any()))
    stand([*placed, *bar], figure, Bbox([[0, 0], [1, 1]]))
    for index, (axes, _) in enumerate(placed):
        draw_labels(axes, formation.map(), layout, left=index % layout.across == 0, above=index < layout.across)
    return placed, bar


def finish(figure: Figure, placed: Placed, formation: Formation) -> None:
    """Everything in its place, under the title, on a page that fits."""
    stand(placed, figure, Bbox([[0, 0], [1, 1]]))
    notes = "".join(f" ({note})" for note in formation.notes)
    fit_page(figure, placed, f"{formation.title}: {formation.sentence}{notes}")


def draw_curves(figure: Figure, formation: Formation, frames: list[int]) -> list[Axes]:
    """Likeness to the last map, sharpness, and the validation loss if it is known; with dots at the given steps."""
    steps = np.array(formation.steps)
    pairs = [
        ("alike to the last map", formation.alike, formation.heads_alike),
        ("greatest weight of a row", formation.sharpness, formation.heads_sharpness),
    ]
    drawn = []
    for title, shown, heads in pairs:
        axes = figure.add_axes((0, 0, 1, 1), label=title)
        if heads.shape[1] > 1:
            axes.plot(steps, heads, color=HEADS, linewidth=0.7)[0].set_label("each head")
        _line(axes, steps, shown, frames, SHOWN)
        axes.set_ylim(min(0.0, shown.min(), heads.min()), max(1.0, shown.max(), heads.max()) * 1.04)
        _finish(axes, title, formation)
        axes.set_yticks([0.0, 0.5, 1.0])
        drawn.append(axes)
    if len(formation.names) > 1:
        drawn[0].legend(frameon=False, fontsize=8, labelcolor=TEXT, loc="lower right", handlelength=1.6)
    losses = np.array([formation.found(number).get("loss", np.nan) for number in range(len(steps))])
    if np.isfinite(losses).sum() > 1:
        axes = figure.add_axes((0, 0, 1, 1), label="loss")
        _line(axes, steps, losses, frames, LOSS)
        _finish(axes, "validation loss", formation)
        drawn.append(axes)
    return drawn


def _line(axes: Axes, steps: np.ndarray, values: np.ndarray, frames: list[int], color: str) -> None:
    axes.plot(steps, values, color=color, linewidth=2.0, label="the map shown")
    axes.plot(steps[frames], values[frames], "o", color=color, markersize=4.5, markeredgecolor="white")


def _finish(axes: Axes, title: str, formation: Formation) -> None:
    tidy(axes)
    axes.set_title(title, fontsize=9, color=TEXT, loc="left", pad=5)
    first, last = formation.steps[0], formation.steps[-1]
    room = 0.03 * max(1, last - first)
    axes.set_xlim(first - room, last + room)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2k
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.set_xlabel("step", fontsize=8.5, color=TEXT, labelpad=2)


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
    layout = SheetLayout.of(1, len(formation.rows), len(formation.columns))
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
