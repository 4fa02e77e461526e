"""A page measured in inches from its top left corner: headings, names cut to fit, and pixels as they are."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from regard.look.colors import INK, hexadecimal
from regard.look.fonts import families_for, heaviest, ordered, spelled
from regard.look.labels import visible_title
from regard.look.wrapping import readable, wrap

DPI = 160
POINTS = 72  # to an inch
MARGIN = 0.2  # inches around everything, and between the map and its colour bar
TEXT = "#222222"
FRAME = "#b5bcc4"
QUIET = "#5b646c"
RAMP = LinearSegmentedColormap.from_list("ink", [hexadecimal(each) for each in INK])
PITCH = 1.75  # from line to line, in sizes of the letters
SAMPLE = "|"  # stands on both sides of what is measured, whose own spaces at the ends would else not count


def render(figure: Figure, format: str) -> bytes:
    """The figure as a file of that format, png or svg."""
    file = io.BytesIO()
    # an SVG would carry the date of its making; without it the same map gives the same picture
    figure.savefig(file, format=format, dpi=DPI, metadata={"Date": None} if format == "svg" else None)
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
        """How wide a text is, in inches."""
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
    return [(pen, line) for pen, text in ((bold, title), (plain, caption)) for line in _lines(text, pen, width)]


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
        return ordered(shown)
    fitting = bisect_right(range(1, len(shown)), width, key=lambda kept: pen.ruler(shown[:kept] + "…"))
    return ordered(shown[:fitting] + "…")


def _lines(text: str, pen: Pen, width: float) -> list[str]:
    shown = spelled(visible_title(text), pen.families) if text else ""
    return [
        ordered(shown[start:end]) for start, end in wrap(shown, width, lambda start, end: pen.ruler(shown[start:end]))
    ]
