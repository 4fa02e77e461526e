"""The sine and cosine table (Vaswani et al. 2017, section 3.5) as a picture: positions down, dimensions across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.colors import Color, hexadecimal
from regard.look.figures.sheet import FRAME, TEXT, render
from regard.look.walk.shades import ABOVE, ABOVE_DARK, BELOW, BELOW_DARK
from regard.look.walk.steps import Numbers

INCHES = 8.4, 3.6


@dataclass(frozen=True)
class Inks:
    """The colours of a picture, on light or on dark ground."""

    ground: str
    text: str
    frame: str
    ramp: LinearSegmentedColormap  # from -1 to 1


def _ramp(below: Sequence[Color], above: Sequence[Color]) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("signed", [hexadecimal(each) for each in (*below[:0:-1], *above)])


LIGHT = Inks("#ffffff", TEXT, FRAME, _ramp(BELOW, ABOVE))
DARK = Inks("#14181c", "#e4e8ec", "#4a535c", _ramp(BELOW_DARK, ABOVE_DARK))  # the ground and the text of dark pages


def draw_picture(table: Numbers, inks: Inks = LIGHT) -> Figure:
    """Draw the table with the query's row framed, and the scale from -1 to 1."""
    rows, columns = table.values.shape
    figure = Figure(figsize=INCHES, dpi=160, facecolor=inks.ground, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    mesh = axes.pcolormesh(table.values, cmap=inks.ramp, norm=Normalize(-1, 1), rasterized=True)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.set_xlabel(
        "dimension: even ones are sines, odd ones cosines, each pair slower than the one before", color=inks.text
    )
    axes.set_ylabel("position", color=inks.text)
    axes.set_yticks(*_ticks(rows))
    axes.set_xticks(*_ticks(columns))
    if table.marked is not None:
        _mark(axes, table.marked, columns, inks)
    scale = figure.colorbar(mesh, ax=axes, ticks=[-1, 0, 1], pad=0.02, fraction=0.04)
    for each, edges in ((axes, list(axes.spines.values())), (scale.ax, [scale.outline])):
        each.tick_params(length=2, labelsize=8.5, labelcolor=inks.text, color=inks.frame)
        for edge in edges:
            edge.set(edgecolor=inks.frame, linewidth=0.6)
    return figure


def _ticks(count: int) -> tuple[list[float], list[str]]:
    """About eight places in the middle of their cells, and their names."""
    numbers = range(0, count, max(1, count // 8))
    return [number + 0.5 for number in numbers], [str(number) for number in numbers]


def _mark(axes: Axes, row: int, columns: int, inks: Inks) -> None:
    """Frame the row of the query."""
    axes.add_patch(Rectangle((0, row), columns, 1, fill=False, edgecolor=inks.text, linewidth=1.4, clip_on=False))
    axes.annotate(
        "this token",
        (columns, row + 0.5),
        (4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=inks.text,
        annotation_clip=False,
    )


def png(table: Numbers, *, dark: bool = False) -> bytes:
    """The picture as a file, on light or dark ground."""
    return render(draw_picture(table, DARK if dark else LIGHT), "png")
