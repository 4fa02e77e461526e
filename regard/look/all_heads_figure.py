"""All heads as a figure: a line of panels for each layer, a column for each head, one scale of colour.

The words stand once, at the left and above, where a cell is large enough for them; else it is said what runs along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from regard.look.colors import scale_top
from regard.look.figure import Layout, Placed, draw_cells, draw_labels, draw_legend, fit_page, stand
from regard.look.map import AttentionMap
from regard.look.sheet import DPI, POINTS, TEXT

if TYPE_CHECKING:
    from regard.look.all_heads import AllHeads

WIDEST, HIGHEST = 12.5, 14.0  # inches of panels
LARGEST_CELL, SMALLEST_CELL = 0.24, 1 / DPI
READABLE = 0.092  # inches of a cell whose word can be read
GAP = 0.1  # inches between panels


def draw(heads: AllHeads) -> Figure:
    layers = list(heads.layers.values())
    everything = np.concatenate(layers)  # (all heads, T, S)
    top, masked = scale_top(everything), bool(np.isnan(everything).any())
    layout = _layout(len(layers), heads.heads, len(heads.rows), len(heads.columns))
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    placed: Placed = []
    for layer, weights in enumerate(layers):
        for head, each in enumerate(weights):
            axes = figure.add_axes((0, 0, 1, 1))
            draw_cells(axes, each, top, layout, len(everything))
            placed.append((axes, (head * (layout.width + GAP), layer * layout.down, layout.width, layout.height)))
    placed += draw_legend(figure, layout, placed, top, masked)
    stand(placed, figure, Bbox([[0, 0], [1, 1]]))
    readable = layout.cell >= READABLE
    for axes, (left, above, _, _) in placed[: len(everything)]:
        map = AttentionMap(everything[0], heads.columns, heads.rows)
        draw_labels(axes, map, layout, left=readable and left == 0, above=readable and above == 0)
    _name(placed, layers, figure)
    fit_page(figure, placed, heads.title, heads.notes if readable else (*heads.notes, _explained(heads)))
    return figure


def _layout(layers: int, heads: int, rows: int, columns: int) -> Layout:
    cell = min(WIDEST / (heads * columns), HIGHEST / (layers * rows), LARGEST_CELL)
    cell = max(cell, SMALLEST_CELL)
    if columns <= 24 and rows <= 24:  # a few words more than a page are better than none
        cell = max(cell, min(READABLE, 2 * cell))
    return Layout(heads, cell, columns * cell, rows * cell, rows * cell + GAP)


def _name(placed: Placed, layers: list[np.ndarray], figure: Figure) -> None:
    """The heads above their columns, the layers left of their lines, outside of all words."""
    count = sum(len(each) for each in layers)
    panels = [axes for axes, _ in placed[:count]]
    firsts = [panels[start] for start in np.cumsum([0, *(len(each) for each in layers[:-1])])]
    beyond_top = max(_beyond(axes)[1] for axes in panels[: len(layers[0])])
    beyond_left = max(_beyond(axes)[0] for axes in firsts)
    for head in range(max(len(each) for each in layers)):
        _write(panels[head], f"head {head}", (0.5, 1.0), (0, beyond_top + 4), "center", "bottom")
    for layer, axes in enumerate(firsts):
        _write(axes, f"layer {layer}", (0.0, 0.5), (-beyond_left - 5, 0), "right", "center")


def _beyond(axes: Axes) -> tuple[float, float]:
    """Points that the words of a panel take at its left and above it."""
    inside, whole = axes.get_window_extent(), axes.get_tightbbox()
    assert whole is not None
    return (inside.x0 - whole.x0) / DPI * POINTS, (whole.y1 - inside.y1) / DPI * POINTS


def _write(axes: Axes, text: str, at: tuple[float, float], off: tuple[float, float], across: str, down: str) -> None:
    axes.annotate(
        text, at, off, xycoords="axes fraction", textcoords="offset points", ha=across, va=down, fontsize=9.5,
        color=TEXT, annotation_clip=False,
    )  # fmt: skip


def _explained(heads: AllHeads) -> str:
    rows, columns = len(heads.rows), len(heads.columns)
    return (
        f"in each panel {rows} rows (from '{heads.rows[0]}' down to '{heads.rows[-1]}') look at "
        f"{columns} columns (from '{heads.columns[0]}' on the left to '{heads.columns[-1]}' on the right)"
    )
