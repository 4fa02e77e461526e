"""Pages measured in inches from their top left corner, the pens that write on them, and figures written as PNG or SVG.

Lines of several models have a colour and a marker each, that also an eye without red or green tells apart.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from regard.look.colors import INK, hexadecimal
from regard.look.figures.fonts import drawable, families_for, heaviest, spelled
from regard.look.labels import readable, visible_title, wrap

DPI = 160
POINTS = 72  # to an inch
MARGIN = 0.2  # inches around everything, and between the map and its colour bar
TEXT = "#222222"
FRAME = "#b5bcc4"
QUIET = "#5b646c"
RAMP = LinearSegmentedColormap.from_list("ink", [hexadecimal(each) for each in INK])
PITCH = 1.75  # from line to line, in sizes of the letters
SAMPLE = "|"  # stands on both sides of what is measured, whose own spaces at the ends would else not count


def render(figure: Figure, kind: str) -> bytes:
    """Return the bytes of the figure as a file of that kind, png or svg."""
    file = io.BytesIO()
    # an SVG would carry the date of its making; without it the same map gives the same picture
    figure.savefig(file, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


@dataclass(frozen=True)
class Pen:
    """Letters of one size and weight."""

    size: float  # points
    families: list[str]
    weight: str = "normal"
    color: str = TEXT

    @property
    def pitch(self) -> float:
        """Inches from line to line."""
        return self.size * PITCH / POINTS

    @cached_property
    def strength(self) -> str:
        return heaviest(self.weight, self.families)

    @cached_property
    def ruler(self) -> Callable[[str], float]:
        """A function that measures the width of a text in inches."""
        font = FontProperties(family=self.families, size=self.size, weight=self.strength)
        renderer = FigureCanvasAgg(Figure(dpi=DPI)).get_renderer()

        def extent(text: str) -> float:
            return float(renderer.get_text_width_height_descent(text, font, ismath=False)[0]) / DPI

        between = extent(SAMPLE * 2)
        return lru_cache(maxsize=None)(lambda text: extent(SAMPLE + text + SAMPLE) - between)

    def write(self, axes: Axes, x: float, y: float, text: str, ink: str = "") -> None:
        """The text with its left end at x, in the middle of the line whose top is y."""
        baseline = y + self.pitch / 2 + 0.36 * self.size / POINTS  # letters are about 0.72 of their size tall
        written = axes.text(x, baseline, text, fontsize=self.size, color=ink or self.color, va="baseline")
        written.set(family=self.families, fontweight=self.strength, parse_math=False)


Heading = list[tuple[Pen, str]]  # lines, each with what it is written with


def snapped(inches: float) -> float:
    """The length in whole pixels, at least one, so that pictures keep their pixels."""
    return max(1, round(inches * DPI)) / DPI


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """A page with that much room inside its margins; its coordinates are inches from the top left, downwards."""
    width, height = snapped(width), snapped(height)
    page = width + 2 * MARGIN, height + 2 * MARGIN
    figure = Figure(figsize=page, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((MARGIN / page[0], MARGIN / page[1], width / page[0], height / page[1]))
    axes.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    axes.set_axis_off()
    return figure, axes


def show(axes: Axes, pixels: np.ndarray, left: float, top: float, width: float, height: float) -> None:
    """Pixels (H, W, 3) in a box of the page, one for one or as squares: nothing is smoothed on the way."""
    limits = axes.get_xlim(), axes.get_ylim()
    left, top = round(left * DPI) / DPI, round(top * DPI) / DPI
    axes.imshow(pixels, extent=(left, left + width, top + height, top), interpolation="none", aspect="auto", zorder=2)
    axes.set(xlim=limits[0], ylim=limits[1])


def families_of(*texts: str) -> list[str]:
    """The fonts that together draw these texts."""
    return families_for({readable(each) for text in texts for each in text})


def heading(title: str, caption: str, families: list[str], width: float) -> Heading:
    """Title and caption in lines of that width."""
    bold, plain = Pen(12.5, families, weight="bold"), Pen(11.0, families)
    return [(pen, line) for pen, text in ((bold, title), (plain, caption)) for line in lines_of(text, pen, width)]


def heading_height(lines: Heading) -> float:
    return sum(pen.pitch for pen, _ in lines) + (0.08 if lines else 0.0)


def write_heading(axes: Axes, lines: Heading) -> float:
    """Write it at the top of the page; where the rest begins."""
    y = 0.0
    for pen, line in lines:
        pen.write(axes, 0.0, y, line)
        y += pen.pitch
    return heading_height(lines)


def cut(text: str, pen: Pen, width: float) -> str:
    """The text as the fonts can draw it, cut where it grows too wide."""
    shown = spelled(visible_title(text), pen.families) if text.strip() else ""
    if pen.ruler(shown) <= width:
        return shown
    fitting = bisect_right(range(1, len(shown)), width, key=lambda kept: pen.ruler(shown[:kept] + "…"))
    return shown[:fitting] + "…"


def lines_of(text: str, pen: Pen, width: float) -> list[str]:
    """The text in lines of that width."""
    shown = spelled(visible_title(text), pen.families) if text else ""
    return [shown[start:end] for start, end in wrap(shown, width, lambda start, end: pen.ruler(shown[start:end]))]


# Okabe & Ito 2008, "Color universal design", without its yellow, which is too pale for a line on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GRID = "#e6e9ec"
LONGEST_NAME = 40  # characters of a name in a legend


def style(number: int) -> dict[str, Any]:  # as keywords of matplotlib
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
    """Name the lines above everything, in rows that fit the width."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=1)
    across = max(1, min(len(labels), int(figure.get_figwidth() / (0.5 + 0.082 * longest))))
    box = figure.legend(
        handles, labels, loc="outside upper left", ncols=across, frameon=False, fontsize=9, labelcolor=TEXT,
        columnspacing=1.6, handlelength=2.2, prop={"family": families_for(labels), "size": 9},
    )  # fmt: skip
    for text in box.get_texts():
        text.set_parse_math(False)
