"""Attention maps of several models on one sentence, side by side on one scale of colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from regard.errors import RegardError
from regard.look.colors import scale_top
from regard.look.figure import Layout, Placed, draw_cells, draw_labels, draw_legend, fit_page, stand
from regard.look.fonts import families_for
from regard.look.map import AttentionMap
from regard.look.series import shown_name
from regard.look.sheet import DPI, FRAME, QUIET

WIDEST = 11.5  # inches of panels in one line
GAP = 0.28  # inches between panels
LARGEST_CELL, SMALLEST_CELL = 0.3, 0.12  # inches
WHOLE = Bbox([[0, 0], [1, 1]])  # a page of one inch, to draw on before the size of the real one is known


@dataclass(frozen=True)
class Panel:
    """One model: its name, and its map, or None if it has no attention."""

    name: str
    map: AttentionMap | None


def draw_side_by_side(panels: Sequence[Panel], title: str = "") -> Figure:
    """A panel for each model; one without attention has an empty panel that says so."""
    maps = [panel.map for panel in panels if panel.map is not None]
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    if not maps:
        raise RegardError("none of the models has attention to look at")
    layout = _layout(maps, len(panels))
    top = max(scale_top(map.weights) for map in maps)
    axes = [figure.add_axes((0, 0, 1, 1)) for _ in panels]
    sizes = [_size(panel.map or maps[0], layout.cell) for panel in panels]
    stand([(each, (0.0, 0.0, *size)) for each, size in zip(axes, sizes, strict=True)], figure, WHOLE)
    for each, panel in zip(axes, panels, strict=True):
        _draw_panel(each, panel, top, layout)
    placed = _in_lines(axes, sizes, figure)
    placed += draw_legend(figure, layout, placed, top, masked=any(np.isnan(map.weights).any() for map in maps))
    stand(placed, figure, WHOLE)
    fit_page(figure, placed, title)
    return figure


def _layout(maps: Sequence[AttentionMap], count: int) -> Layout:
    """One size of cell for all, so that the whole is about as wide as a page."""
    columns = max(len(map.columns) for map in maps)
    rows = max(len(map.rows) for map in maps)
    cell = min(max(WIDEST / (min(count, 3) * (columns + 5)), SMALLEST_CELL), LARGEST_CELL, 30.0 / max(rows, columns))
    return Layout(count, cell, columns * cell, rows * cell, rows * cell)


def _size(map: AttentionMap, cell: float) -> tuple[float, float]:
    return len(map.columns) * cell, len(map.rows) * cell


def _draw_panel(axes: Axes, panel: Panel, top: float, layout: Layout) -> None:
    name = shown_name(panel.name)
    if panel.map is None:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=FRAME, linewidth=0.6, linestyle=(0, (4, 3)))
        axes.text(
            0.5, 0.5, "no attention", transform=axes.transAxes, ha="center", va="center", fontsize=10, color=QUIET
        )
    else:
        draw_cells(axes, panel.map.weights, top, layout)
        draw_labels(axes, panel.map, layout, left=True, above=True)
    label = axes.set_xlabel(name, fontsize=10, labelpad=6, family=families_for([name]), fontweight="bold")
    label.set_parse_math(False)


def _in_lines(axes: Sequence[Axes], sizes: Sequence[tuple[float, float]], figure: Figure) -> Placed:
    """Places from left to right, in as few lines as the width allows, about as many in each; labels have their room."""
    margins = [_margins(each, figure) for each in axes]
    above = max(top for _, top, _ in margins)
    below = max(bottom for _, _, bottom in margins)
    widest = max(left + width for (left, _, _), (width, _) in zip(margins, sizes, strict=True)) + GAP
    lines = math.ceil(len(axes) / max(1, int((WIDEST + GAP) / widest)))
    across = math.ceil(len(axes) / lines)
    down = max(height for _, height in sizes) + above + below + GAP
    left = max(left for left, _, _ in margins)
    return [
        (each, (left + place % across * widest, place // across * down, *size))
        for place, (each, size) in enumerate(zip(axes, sizes, strict=True))
    ]


def _margins(axes: Axes, figure: Figure) -> tuple[float, float, float]:
    """Inches that the labels of a panel take to the left, above and below."""
    inside, whole = axes.get_window_extent(), axes.get_tightbbox()
    assert whole is not None
    left, above, below = inside.x0 - whole.x0, whole.y1 - inside.y1, inside.y0 - whole.y0
    return left / figure.dpi, above / figure.dpi, below / figure.dpi
