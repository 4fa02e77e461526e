"""The sine and cosine table (Vaswani et al. 2017, section 3.5) as a picture: positions down, dimensions across."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.colors import hexadecimal
from regard.look.figures.sheet import FRAME, TEXT, render
from regard.look.walk.shades import ABOVE, BELOW
from regard.look.walk.steps import Numbers

SIGNED = LinearSegmentedColormap.from_list("signed", [hexadecimal(each) for each in (*BELOW[:0:-1], *ABOVE)])
INCHES = 8.4, 3.6


def draw_picture(table: Numbers) -> Figure:
    """The table with the query's row framed, and the scale from -1 to 1."""
    rows, columns = table.values.shape
    drawn = Figure(figsize=INCHES, dpi=160, facecolor="white", layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    mesh = axes.pcolormesh(table.values, cmap=SIGNED, norm=Normalize(-1, 1), rasterized=True)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.set_xlabel(
        "dimension: even ones are sines, odd ones cosines, each pair slower than the one before", color=TEXT
    )
    axes.set_ylabel("position", color=TEXT)
    step = max(1, rows // 8)
    axes.set_yticks([row + 0.5 for row in range(0, rows, step)], [str(row) for row in range(0, rows, step)])
    across = max(1, columns // 8)
    axes.set_xticks([place + 0.5 for place in range(0, columns, across)], [str(n) for n in range(0, columns, across)])
    axes.tick_params(length=2, labelsize=8.5, labelcolor=TEXT, color=FRAME)
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.6)
    if table.marked is not None:
        frame = Rectangle((0, table.marked), columns, 1, fill=False, edgecolor=TEXT, linewidth=1.4, clip_on=False)
        axes.add_patch(frame)
        axes.annotate(
            "this token", (columns, table.marked + 0.5), (4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=TEXT, annotation_clip=False,
        )  # fmt: skip
    scale = drawn.colorbar(mesh, ax=axes, ticks=[-1, 0, 1], pad=0.02, fraction=0.04)
    scale.outline.set(edgecolor=FRAME, linewidth=0.6)
    scale.ax.tick_params(length=2, labelsize=8.5, labelcolor=TEXT, color=FRAME)
    return drawn


def png(table: Numbers) -> bytes:
    """The picture as a file."""
    return render(draw_picture(table), "png")
