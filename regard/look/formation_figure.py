"""How an attention formed, as a figure: a film strip of maps at a few steps on one scale, and curves over all steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from regard.look.colors import INK, hexadecimal, scale_top
from regard.look.figure import CAPTION, GAP, Layout, Placed, draw_cells, draw_labels, draw_legend, fit_page, stand
from regard.look.series import tidy
from regard.look.sheet import DPI, TEXT

if TYPE_CHECKING:
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
    layout = Layout.of(len(frames), len(formation.rows), len(formation.columns))
    placed, bar = draw_maps(figure, formation, frames, layout)
    width = layout.across * (layout.width + GAP) - GAP
    finish(figure, [*placed, *bar, *below(placed, draw_curves(figure, formation, frames), width)], formation)
    return figure


def below(placed: Placed, curves: list[Axes], width: float) -> Placed:
    """The curves side by side under what is placed, about as wide as it."""
    bottom = max(top + height for _, (_, top, _, height) in placed) + CAPTION + GAP + 0.3
    each = (max(width, NARROWEST) - BETWEEN * (len(curves) - 1)) / len(curves)
    return [(axes, (number * (each + BETWEEN), bottom, each, CURVE)) for number, axes in enumerate(curves)]


def draw_maps(figure: Figure, formation: Formation, frames: list[int], layout: Layout) -> tuple[Placed, Placed]:
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
