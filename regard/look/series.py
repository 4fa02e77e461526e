"""Lines of several models in one figure: a colour and a marker each, that also an eye without red or green tells apart."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.look.fonts import drawable, families_for
from regard.look.labels import visible_title
from regard.look.sheet import FRAME, TEXT

# Okabe & Ito 2008, "Color universal design", without its yellow, which is too pale for a line on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GRID = "#e6e9ec"
LONGEST_NAME = 40  # characters of a name in a legend


def style(number: int) -> dict[str, Any]:
    """Colour and marker of the line with that number. There are as many pairs as a figure could ever show."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def shown_name(name: str) -> str:
    """A name as a figure can draw it: visible, in installed fonts, and short; its end tells more than its start."""
    name = visible_title(name) or "∅"
    short = name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
    return drawable(short, families_for([short]))


def tidy(axes: Axes) -> None:
    """Only what is needed to read a value."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FRAME)
    axes.tick_params(color=FRAME, labelcolor=TEXT, labelsize=8.5, length=3)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.yaxis.label.set(color=TEXT, fontsize=9.5)
    axes.xaxis.label.set(color=TEXT, fontsize=9.5)


def legend(figure: Figure, axes: Axes) -> None:
    """Which line is whose, above everything, in rows that fit the width."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=1)
    across = max(1, min(len(labels), int(figure.get_figwidth() / (0.5 + 0.082 * longest))))
    box = figure.legend(
        handles, labels, loc="outside upper left", ncols=across, frameon=False, fontsize=9, labelcolor=TEXT,
        columnspacing=1.6, handlelength=2.2, prop={"family": families_for(labels), "size": 9},
    )  # fmt: skip
    for text in box.get_texts():
        text.set_parse_math(False)
