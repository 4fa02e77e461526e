"""Heads as figures: all maps on one scale, a grid of roles, and bars of the mean weight by distance.

Among all heads the words stand once, at the left and above, where a cell is large enough for them; else it is said what
runs along. The grid of roles has in each cell the role of the head, with the number that says so, on a colour that tells
how much the loss rises without it.
"""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from regard.look.colors import INK, Color, color, hexadecimal, ink_on, scale_top
from regard.look.figures.map import Placed, SheetLayout, draw_cells, draw_labels, draw_legend, fit_page, stand
from regard.look.figures.sheet import (
    COLORS,
    DPI,
    FRAME,
    MARGIN,
    POINTS,
    QUIET,
    RAMP,
    TEXT,
    Pen,
    families_of,
    heading,
    heading_height,
    sheet,
    write_heading,
)
from regard.look.heads import Head, HeadReport
from regard.look.map import AttentionMap
from regard.look.roles import OFFSETS
from regard.look.sentence import NAMES, AllHeads

WIDEST, HIGHEST = 12.5, 14.0  # inches of panels
LARGEST_CELL, SMALLEST_CELL = 0.24, 1 / DPI
READABLE = 0.092  # inches of a cell whose word can be read
GAP = 0.1  # inches between panels


def draw_all_heads(heads: AllHeads) -> Figure:
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
        attention = AttentionMap(everything[0], heads.columns, heads.rows)
        draw_labels(axes, attention, layout, left=readable and left == 0, above=readable and above == 0)
    _name(placed, layers, figure)
    fit_page(figure, placed, heads.title, heads.notes if readable else (*heads.notes, _explained(heads)))
    return figure


def _layout(layers: int, heads: int, rows: int, columns: int) -> SheetLayout:
    cell = min(WIDEST / (heads * columns), HIGHEST / (layers * rows), LARGEST_CELL)
    cell = max(cell, SMALLEST_CELL)
    if columns <= 24 and rows <= 24:  # a few words more than a page are better than none
        cell = max(cell, min(READABLE, 2 * cell))
    return SheetLayout(heads, cell, columns * cell, rows * cell, rows * cell + GAP)


def _name(placed: Placed, layers: list[np.ndarray], figure: Figure) -> None:
    """The heads above their columns, the layers left of their lines, outside of all words."""
    count = sum(len(each) for each in layers)
    panels = [axes for axes, _ in placed[:count]]
    firsts = [panels[start] for start in np.cumsum([0, *(len(each) for each in layers[:-1])])]
    beyond_top = max(_beyond(axes)[1] for axes in panels[: len(layers[0])])
    beyond_left = max(_beyond(axes)[0] for axes in firsts)
    for head in range(max(len(each) for each in layers)):
        _write_beside(panels[head], f"head {head}", (0.5, 1.0), (0, beyond_top + 4), "center", "bottom")
    for layer, axes in enumerate(firsts):
        _write_beside(axes, f"layer {layer}", (0.0, 0.5), (-beyond_left - 5, 0), "right", "center")


def _beyond(axes: Axes) -> tuple[float, float]:
    """Points that the words of a panel take at its left and above it."""
    inside, whole = axes.get_window_extent(), axes.get_tightbbox()
    assert whole is not None
    return (inside.x0 - whole.x0) / DPI * POINTS, (whole.y1 - inside.y1) / DPI * POINTS


def _write_beside(
    axes: Axes, text: str, at: tuple[float, float], off: tuple[float, float], across: str, down: str
) -> None:
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


CELL, TALL = (1.34, 0.74)  # inches
GUTTER = 0.66  # inches for the names of layers
WHOLE = 0.86  # inches for what all heads of a layer count
BETWEEN = 0.34  # inches between grids
NAME = 17  # letters of a role's name in a line
PLAIN: Color = (255, 255, 255)


def draw_heads(report: HeadReport, words: bool = True) -> Figure:
    """One page, as large as it must be; without `words` only the grids and their scale."""
    across = max(head.head for head in report.heads) + 1
    width = max(6.2, GUTTER + across * CELL + (WHOLE if report.layers else 0.0))
    families = families_of(report.model, report.on)
    title = heading(f"What each head does: {report.model}", _caption(report), families, width) if words else []
    foot = _foot(report, families, width) if words else []
    grids = sum(_height(report, role) for role in report.roles) + BETWEEN * (len(report.roles) - 1)
    bar = 0.56 if report.loss is not None else 0.0
    above, below = (0.1, 0.2 + sum(pen.pitch for pen, _ in foot)) if words else (0.0, 0.0)
    figure, axes = sheet(width, heading_height(title) + above + grids + bar + below)
    y, top = write_heading(axes, title) + above, _top(report)
    for role in report.roles:
        _draw_grid(axes, report, role, y, top)
        y += _height(report, role) + BETWEEN
    y -= BETWEEN
    if report.loss is not None:
        _draw_bar(figure, axes, y + 0.2, top, f"nats a {report.unit} by which the loss rises without the head")
    y += bar + 0.2
    for pen, line in foot:
        pen.write(axes, 0.0, y, line)
        y += pen.pitch
    return figure


def _caption(report: HeadReport) -> str:
    loss = (
        "" if report.loss is None else f"; the whole model has a loss of {report.loss.value:.3f} nats a {report.unit}"
    )
    return f"{report.texts:,} texts of {report.on}{loss}"


def _top(report: HeadReport) -> float:
    rises = [head.removal.value for head in report.heads if head.removal is not None]
    return scale_top(np.array([0.0, *rises]))


def _height(report: HeadReport, role: str) -> float:
    layers = len({head.layer for head in report.of(role)})
    return 0.5 + layers * TALL


def _draw_grid(axes: Axes, report: HeadReport, role: str, y: float, top: float) -> None:
    heads, marked = report.of(role), report.marked()
    _write(axes, 0.0, y + 0.1, NAMES[role], 10.5, weight="bold", ha="left")
    across, layers = max(head.head for head in heads) + 1, sorted({head.layer for head in heads})
    for head in range(across):
        _write(axes, GUTTER + (head + 0.5) * CELL, y + 0.36, f"head {head}", 8.5, QUIET)
    for row, layer in enumerate(layers):
        middle = y + 0.5 + (row + 0.5) * TALL
        _write(axes, GUTTER - 0.1, middle, f"layer {layer}", 8.5, QUIET, ha="right")
        for each in (head for head in heads if head.layer == layer):
            box = (GUTTER + each.head * CELL, y + 0.5 + row * TALL)
            _draw_head(axes, each, box, top, framed=(each.role, each.layer, each.head) in marked)
        whole = [each for each in report.layers if (each.role, each.layer) == (role, layer)]
        if whole:
            x = GUTTER + across * CELL + 0.1
            _write(axes, x, middle - 0.08, "all of them", 7.5, QUIET, ha="left")
            _write(axes, x, middle + 0.08, f"{whole[0].removal.value:+.3f}", 8.5, ha="left")


def _draw_head(axes: Axes, head: Head, place: tuple[float, float], top: float, framed: bool) -> None:
    ground = PLAIN if head.removal is None else color(INK, max(0.0, head.removal.value) / top)
    ink = hexadecimal(ink_on(ground))
    axes.add_patch(
        Rectangle(place, CELL, TALL, facecolor=hexadecimal(ground), edgecolor=FRAME, linewidth=0.6, zorder=2)
    )
    if framed:
        inside = (place[0] + 0.025, place[1] + 0.025)
        axes.add_patch(
            Rectangle(inside, CELL - 0.05, TALL - 0.05, fill=False, edgecolor="#d55e00", linewidth=2.0, zorder=3)
        )
    name = textwrap.wrap(head.rule, NAME)
    lines = [(line, 8.2, "bold" if head.rules else "normal") for line in name] + [(_number(head), 7.4, "normal")]
    if head.removal is not None:
        lines.append((head.removal.signed(3), 7.4, "normal"))
    y = place[1] + TALL / 2 - 0.145 * (len(lines) - 1) / 2
    for text, size, weight in lines:
        _write(axes, place[0] + CELL / 2, y, text, size, ink, weight)
        y += 0.145


def _number(head: Head) -> str:
    """Shorten a number to a cell: beside the name of a rule that does not hold there is no room for the even map."""
    return head.number() if head.rules else head.number().split(" (")[0]


def _draw_bar(figure: Figure, axes: Axes, y: float, top: float, label: str) -> None:
    page = figure.get_size_inches()
    place = ((MARGIN + GUTTER) / page[0], 1 - (MARGIN + y + 0.12) / page[1], 2.2 / page[0], 0.12 / page[1])
    bar = figure.add_axes(place)
    scale = figure.colorbar(ScalarMappable(Normalize(0.0, top), RAMP), cax=bar, orientation="horizontal")
    scale.set_ticks([0.0, top / 2, top], labels=[f"{tick:g}" for tick in (0.0, top / 2, top)])
    scale.ax.tick_params(length=2, labelsize=8, labelcolor=TEXT, color=FRAME)
    scale.outline.set(edgecolor=FRAME, linewidth=0.6)
    _write(axes, GUTTER + 2.35, y + 0.06, label, 8.5, ha="left")


def _foot(report: HeadReport, families: list[str], width: float) -> list[tuple[Pen, str]]:
    pen = Pen(8.0, families, color=QUIET)
    lines = report.meaning()
    if report.marked():
        lines.append(f"Framed: the {len(report.marked())} heads without which the loss rises most.")
    return [(pen, line) for text in lines for line in textwrap.wrap(text, int(width / 0.0605))]


def _write(
    axes: Axes, x: float, y: float, text: str, size: float, ink: str = TEXT, weight: str = "normal", ha: str = "center"
) -> None:
    """The text with its middle at y."""
    axes.text(x, y, text, fontsize=size, color=ink, fontweight=weight, ha=ha, va="center", zorder=4).set_parse_math(
        False
    )


PANEL = (1.5, 0.9)  # inches


def draw_offsets(report: HeadReport, role: str) -> Figure:
    """A grid of layers and heads."""
    heads = [head for head in report.of(role) if head.offsets]
    across, layers = max(head.head for head in heads) + 1, sorted({head.layer for head in heads})
    figure = Figure(
        figsize=(across * PANEL[0] + 0.5, len(layers) * (PANEL[1] + 0.25) + 0.3), dpi=DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.set_facecolor("white")
    panels = figure.subplots(len(layers), across, sharex=True, sharey=True, squeeze=False)
    last = 0 if role == "causal" else OFFSETS  # nobody looks ahead there
    distances = np.arange(-OFFSETS, OFFSETS + 1)
    top = scale_top(np.array([head.offsets for head in heads]))
    for head in heads:
        axes = panels[layers.index(head.layer), head.head]
        weights = np.nan_to_num(np.array(head.offsets))
        axes.bar(distances, weights, width=0.8, color=[COLORS[1] if at == 0 else COLORS[0] for at in distances])
        axes.set_title(f"{head.layer}.{head.head}  {head.rule}", fontsize=7, color=TEXT, loc="left", pad=2)
    for axes in panels.flat:
        axes.set(ylim=(0, top), xlim=(-OFFSETS - 0.6, last + 0.6), xticks=range(-OFFSETS, last + 1, 4), yticks=[0, top])
        axes.tick_params(labelsize=6.5, length=2, color=FRAME, labelcolor=QUIET)
        axes.set_yticklabels(["0", f"{top:g}"])
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(FRAME)
    return figure
