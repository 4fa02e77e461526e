"""Attention maps as figures: a heat map with every token on its axes, one for each head, or several models side by side.

Everything is placed in inches: the cells have a size, the labels are measured, and the page is made to fit both. Only
matplotlib's objects are used, never its global state (pyplot), so that a server may draw in many threads.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from regard.errors import RegardError
from regard.look.colors import scale_top
from regard.look.comparison import MapPanel
from regard.look.figures.fonts import drawable, families_for, spelled
from regard.look.figures.sheet import DPI, FRAME, MARGIN, POINTS, QUIET, RAMP, TEXT, shown_name
from regard.look.labels import visible, visible_title
from regard.look.map import AttentionMap
from regard.look.recorded import EffectiveAttention

LONGEST = 40.0  # inches: no page is longer, however many tokens there are
LONGEST_LABEL = 26  # characters: an address or a run of dashes must not push the map off the screen
LONGEST_SENTENCE = 60  # characters of a row that is a whole sentence
GAP = 0.14  # inches between panels
CAPTION = 0.24  # inches for the name of a head under its panel


@dataclass(frozen=True)
class SheetLayout:
    """Places of the panels, and sizes of a cell and its letters."""

    across: int  # panels side by side
    cell: float  # inches
    width: float  # of a panel, inches
    height: float
    down: float  # inches from the top of a panel to the top of the one below

    @classmethod
    def of(cls, heads: int, rows: int, columns: int) -> SheetLayout:
        across = math.ceil(heads / math.ceil(heads / max(1, round(math.sqrt(2 * heads * rows / columns)))))
        lines = math.ceil(heads / across)
        room = 9.0 / max(rows, columns) if heads == 1 else 11.0 / (across * columns)
        cell = min(max(room, 0.13 if heads == 1 else 0.07), 0.34 if heads == 1 else 0.24)
        cell = min(cell, LONGEST / (across * columns), LONGEST / (lines * rows))
        height = rows * cell
        return cls(across, cell, columns * cell, height, height + GAP + CAPTION)

    @property
    def letters(self) -> float:
        """The size of the labels in points."""
        return min(max(self.cell * POINTS * 0.68, 5.5), 11.0)

    @property
    def stride(self) -> int:
        """Every how many tokens there is room for a label."""
        return math.ceil(self.letters * 1.05 / (self.cell * POINTS))

    def place(self, index: int) -> tuple[float, float, float, float]:
        """Left, top, width and height of a panel, in inches from the top left corner of the first."""
        return index % self.across * (self.width + GAP), index // self.across * self.down, self.width, self.height


Placed = list[tuple[Axes, tuple[float, float, float, float]]]


def draw_map(attention: AttentionMap) -> Figure:
    """The figure of a map (T, S), or of all its heads (H, T, S) on one colour scale."""
    heads = attention.weights if attention.weights.ndim == 3 else attention.weights[None]  # (H, T, S)
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    layout, top = SheetLayout.of(*heads.shape), scale_top(attention.weights)
    placed: Placed = [(figure.add_axes((0, 0, 1, 1)), layout.place(index)) for index in range(len(heads))]
    for index, (axes, _) in enumerate(placed):
        draw_cells(axes, heads[index], top, layout, len(heads))
        if attention.weights.ndim == 3:
            axes.set_xlabel(f"head {index}", fontsize=9, color=TEXT, labelpad=4)
    placed += draw_legend(figure, layout, placed, top, masked=bool(np.isnan(attention.weights).any()))
    stand(placed, figure, Bbox([[0, 0], [1, 1]]))
    for index in range(len(heads)):
        draw_labels(placed[index][0], attention, layout, left=index % layout.across == 0, above=index < layout.across)
    fit_page(figure, placed, attention.title, attention.notes)
    return figure


def draw_cells(axes: Axes, weights: np.ndarray, top: float, layout: SheetLayout, panels: int = 1) -> None:
    """The coloured cells (T, S) of one of so many panels. Masked cells are left out, and the hatched ground shows."""
    rows, columns = weights.shape
    if np.isnan(weights).any():
        axes.add_patch(hatched(axes))
    axes.pcolormesh(
        np.ma.masked_invalid(weights),
        cmap=RAMP,
        norm=Normalize(0.0, top),
        edgecolors="white",
        linewidth=min(layout.cell * POINTS * 0.05, 1.0) if layout.cell * DPI > 5 else 0.0,  # no lines as wide as cells
        rasterized=weights.size * panels > 20_000,  # an SVG with a path for each cell would be larger than a picture
    )
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("bottom")
    axes.tick_params(length=0, labelsize=layout.letters, labelcolor=TEXT, pad=3)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.6)


def hatched(axes: Axes) -> Rectangle:
    ground = Rectangle((0, 0), 1, 1, transform=axes.transAxes, zorder=0)
    ground.set(facecolor="#f3f3f3", edgecolor="#d9d9d9", linewidth=0, hatch="////")
    return ground


def draw_labels(axes: Axes, attention: AttentionMap, layout: SheetLayout, left: bool, above: bool) -> None:
    """Tokens on the left and above, as many as can be read; those wider than their cell are turned."""
    if left:
        labels, families = _prepared(attention.rows, layout.stride, LONGEST_SENTENCE)
        axes.set_yticks(
            np.arange(0, len(attention.rows), layout.stride) + 0.5, labels, parse_math=False, family=families
        )
    if above:
        labels, families = _prepared(attention.columns, layout.stride)
        axes.set_xticks(
            np.arange(0, len(attention.columns), layout.stride) + 0.5, labels, parse_math=False, family=families
        )
        _turn(axes.get_xticklabels(), layout)


def _prepared(labels: Sequence[str], stride: int, sentence: int = LONGEST_LABEL) -> tuple[list[str], list[str]]:
    shown = [visible(label) for label in labels[::stride]]
    families = families_for(shown)
    return [_cut(spelled(label, families), sentence if " " in label else LONGEST_LABEL) for label in shown], families


def _cut(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"


def _turn(labels: Sequence[Text], layout: SheetLayout) -> None:
    """Turn the words if one of them is wider than its cell: half way where there is room for that, else upright.

    Single characters (commas, digits, articles) are easier to read as they stand.
    """
    pitch = layout.cell * layout.stride * POINTS
    if all(label.get_window_extent().width / DPI * POINTS <= pitch * 0.92 for label in labels):
        return
    angle = 45 if pitch * math.sin(math.pi / 4) >= layout.letters * 1.05 else 90
    for label in labels:
        if len(label.get_text()) > 1:
            label.set(rotation=angle, rotation_mode="anchor", ha="left", va="center" if angle == 90 else "baseline")


def draw_legend(figure: Figure, layout: SheetLayout, placed: Placed, top: float, masked: bool) -> Placed:
    """The colour bar to the right of the panels, and under it what a masked cell looks like."""
    right = max(left + width for _, (left, _, width, _) in placed) + MARGIN
    height = min(max(layout.height, 1.2), 2.4)
    bar = figure.add_axes((0, 0, 1, 1))
    scale = figure.colorbar(ScalarMappable(Normalize(0.0, top), RAMP), cax=bar, ticks=[0.0, top / 2, top])
    scale.set_label("attention weight", fontsize=9, color=TEXT)
    scale.ax.set_yticklabels([f"{tick:g}" for tick in (0.0, top / 2, top)])
    scale.ax.tick_params(length=2, labelsize=8.5, labelcolor=TEXT, color=FRAME)
    scale.outline.set(edgecolor=FRAME, linewidth=0.6)
    legend: Placed = [(bar, (right, 0.0, 0.13, height))]
    if masked:
        swatch = figure.add_axes((0, 0, 1, 1), xticks=[], yticks=[])
        swatch.add_patch(hatched(swatch))
        swatch.text(1.35, 0.5, "masked", transform=swatch.transAxes, va="center", fontsize=8.5, color=TEXT)
        swatch.spines[:].set(color=FRAME, linewidth=0.6)
        legend.append((swatch, (right, height + 0.14, 0.13, 0.13)))
    return legend


def fit_page(figure: Figure, placed: Placed, title: str, notes: Sequence[str] = ()) -> None:
    """Measure everything drawn, add the title, the notes and the margins, and make the page exactly that large."""
    boxes = [box for axes, _ in placed if (box := axes.get_tightbbox()) is not None]
    ink = Bbox.union(boxes).transformed(figure.dpi_scale_trans.inverted())  # in inches
    lines = max(32, int(ink.width / 0.095)), max(52, int(ink.width / 0.068))
    heading = write_lines(figure, [title] if title else [], lines[0], 11.5, TEXT, "top")
    below = write_lines(figure, notes, lines[1], 8.5, QUIET, "bottom")
    above, under = (each.height + 0.14 if each.height else 0.0 for each in (heading, below))
    width = max(ink.width, heading.width, below.width)
    corners = (ink.x0 - MARGIN, ink.y0 - under - MARGIN), (ink.x0 + width + MARGIN, ink.y1 + above + MARGIN)
    page = Bbox(corners)
    stand(placed, figure, page)
    for text in figure.texts:
        y = MARGIN / page.height
        text.set_position((MARGIN / page.width, 1 - y if text.get_verticalalignment() == "top" else y))


def write_lines(figure: Figure, texts: Sequence[str], width: int, size: float, color: str, align: str) -> Bbox:
    """Each text in lines of about so many characters, somewhere on the page; its size in inches."""
    if not texts:
        return Bbox([[0, 0], [0, 0]])
    shown = [visible_title(text) for text in texts]
    families = families_for(shown)
    lines = [drawable(line, families) for text in shown for line in textwrap.wrap(text, width)]
    written = figure.text(0, 1, "\n".join(lines), va=align, ha="left", fontsize=size, color=color, family=families)
    written.set_parse_math(False)
    return written.get_window_extent().transformed(figure.dpi_scale_trans.inverted())


def stand(placed: Placed, figure: Figure, page: Bbox) -> None:
    """Put the axes where they belong on a page whose edges are given in inches from the first panel's top left."""
    figure.set_size_inches(page.width, page.height)
    for axes, (left, top, width, height) in placed:
        x, y = (left - page.x0) / page.width, (-top - height - page.y0) / page.height
        axes.set_position((x, y, width / page.width, height / page.height))


WIDEST = 11.5  # inches of panels in one line
BETWEEN = 0.28  # inches between panels
LARGEST_CELL, SMALLEST_CELL = 0.3, 0.12  # inches
WHOLE = Bbox([[0, 0], [1, 1]])  # a page of one inch, to draw on before the size of the real one is known


def draw_side_by_side(panels: Sequence[MapPanel], title: str = "") -> Figure:
    """A panel for each model; one without attention has an empty panel that says so."""
    maps = [panel.map for panel in panels if panel.map is not None]
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    if not maps:
        raise RegardError("none of the models has attention to look at")
    layout = _layout(maps, len(panels))
    top = max(scale_top(attention.weights) for attention in maps)
    axes = [figure.add_axes((0, 0, 1, 1)) for _ in panels]
    sizes = [_size(panel.map or maps[0], layout.cell) for panel in panels]
    stand([(each, (0.0, 0.0, *size)) for each, size in zip(axes, sizes, strict=True)], figure, WHOLE)
    for each, panel in zip(axes, panels, strict=True):
        _draw_panel(each, panel, top, layout)
    placed = _in_lines(axes, sizes, figure)
    placed += draw_legend(
        figure, layout, placed, top, masked=any(np.isnan(attention.weights).any() for attention in maps)
    )
    stand(placed, figure, WHOLE)
    fit_page(figure, placed, title)
    return figure


def _layout(maps: Sequence[AttentionMap], count: int) -> SheetLayout:
    """One size of cell for all, so that the whole is about as wide as a page."""
    columns = max(len(attention.columns) for attention in maps)
    rows = max(len(attention.rows) for attention in maps)
    cell = min(max(WIDEST / (min(count, 3) * (columns + 5)), SMALLEST_CELL), LARGEST_CELL, 30.0 / max(rows, columns))
    return SheetLayout(count, cell, columns * cell, rows * cell, rows * cell)


def _size(attention: AttentionMap, cell: float) -> tuple[float, float]:
    return len(attention.columns) * cell, len(attention.rows) * cell


def _draw_panel(axes: Axes, panel: MapPanel, top: float, layout: SheetLayout) -> None:
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
    widest = max(left + width for (left, _, _), (width, _) in zip(margins, sizes, strict=True)) + BETWEEN
    lines = math.ceil(len(axes) / max(1, int((WIDEST + BETWEEN) / widest)))
    across = math.ceil(len(axes) / lines)
    down = max(height for _, height in sizes) + above + below + BETWEEN
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


# ColorBrewer "Oranges" (Brewer 2003), from its dark end to white: weights below zero, as projected keys may have
BELOW = LinearSegmentedColormap.from_list("below", ["#a63603", "#e6550d", "#fd8d3c", "#fdbe85", "#feedde"])


def draw_effective(effective: EffectiveAttention) -> Figure:
    """A panel for each map: effective, exact and their difference, on one scale; weights below zero are orange."""
    maps, title = effective.maps(), effective.title
    below = any((np.nan_to_num(each.weights) < 0).any() for each in maps.values())
    figure = draw_side_by_side(
        [MapPanel(name, each) for name, each in maps.items()], f"{title} · orange: below zero" if below else title
    )
    top = max(scale_top(each.weights) for each in maps.values())
    for axes, each in zip(figure.axes, maps.values(), strict=False):  # behind the panels stands the legend
        negative = np.nan_to_num(each.weights) < 0
        if negative.any():
            axes.pcolormesh(
                np.ma.masked_where(~negative, each.weights), cmap=BELOW, norm=Normalize(-top, 0.0),
                edgecolors="white", linewidth=0.5, rasterized=each.weights.size > 20_000,
            )  # fmt: skip
    return figure
