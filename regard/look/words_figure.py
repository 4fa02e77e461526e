"""A weighed text as a figure: running text with colours behind the words, as wide as a page and as tall as it needs.

Every stretch of text is measured, and placed in inches from the top left corner. Text that begins from right to left is
set from the right; stretches stand in the order in which they are read, and letters join across their borders.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.look.colors import INK, color, hexadecimal
from regard.look.contrast import ink_on
from regard.look.fonts import families_for, ordered, spelled
from regard.look.labels import visible_title
from regard.look.sheet import DPI, FRAME, MARGIN, QUIET, RAMP, Pen
from regard.look.words_stretches import Stretch, lines_of
from regard.look.wrapping import readable, right_to_left, wrap

if TYPE_CHECKING:
    from regard.look.words import WeighedText

WIDEST = 7.4  # inches of text in a line: about ninety letters
MOST_LINES = 200  # about 2,500 words, 57 inches; a page much taller than that is hard to open
BAR = 1.5  # inches of the scale of colours


def draw(weighed: WeighedText) -> Figure:
    """The figure: title, caption, text and legend under each other."""
    families = families_for({readable(each) for each in {*weighed.text, *weighed.title, *weighed.caption}})
    letters, quiet = Pen(11.5, families), Pen(9.0, families, color=QUIET)
    title, caption = Pen(12.5, families, weight="bold"), Pen(11.0, families)
    heading = [(title, line, right_to_left(weighed.title)) for line in _lines(weighed.title, title)]
    heading += [(caption, line, right_to_left(weighed.caption)) for line in _lines(weighed.caption, caption)]
    body, left = lines_of(weighed, families, letters.ruler, WIDEST, MOST_LINES)
    notes = _notes(weighed, left)
    legend = quiet.ruler("weight 0  ") + BAR + quiet.ruler(notes)
    widths = [pen.ruler(line) for pen, line, _ in heading] + [sum(each.width for each in line) for line in body]
    width = max([*widths, legend])
    above = sum(pen.pitch for pen, _, _ in heading) + (0.08 if heading else 0.0)
    height = above + len(body) * letters.pitch + 0.12 + quiet.pitch
    figure, axes = _sheet(width, height)
    y = 0.0
    for pen, line, right in heading:
        pen.write(axes, width - pen.ruler(line) if right else 0.0, y, line)
        y += pen.pitch
    _draw_body(axes, body, above, letters, weighed.top, width if right_to_left(weighed.text) else None)
    _draw_legend(axes, height - quiet.pitch, quiet, notes)
    return figure


def _sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """A page with that much room inside its margins; its coordinates are inches from the top left, downwards."""
    page = width + 2 * MARGIN, height + 2 * MARGIN
    figure = Figure(figsize=page, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((MARGIN / page[0], MARGIN / page[1], width / page[0], height / page[1]))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return figure, axes


def _lines(text: str, pen: Pen) -> list[str]:
    shown = spelled(visible_title(text), pen.families) if text else ""
    lines = wrap(shown, WIDEST, lambda start, end: pen.ruler(shown[start:end]))
    return [ordered(shown[start:end]) for start, end in lines]


def _draw_body(axes: Axes, body: list[list[Stretch]], y: float, pen: Pen, top: float, right: float | None) -> None:
    """The lines under each other, each from the left, or up to `right`."""
    boxes, grounds = [], []
    for line in body:
        shift = 0.0 if right is None else right - sum(each.width for each in line)
        for each in line:
            x = each.left + shift
            ground = None if math.isnan(each.weight) else color(INK, each.weight / top)
            if ground is not None:
                boxes.append(_corners(x, y + 0.06 * pen.pitch, each.width, 0.88 * pen.pitch))
                grounds.append(hexadecimal(ground))
            if not each.text.isspace():
                pen.write(axes, x, y, each.text, QUIET if ground is None else hexadecimal(ink_on(ground)))
        y += pen.pitch
    # one artist for all: a thousand rectangles would take seconds
    axes.add_collection(PolyCollection(boxes, facecolors=grounds, linewidths=0, snap=True, zorder=1), autolim=False)


def _corners(left: float, top: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(left, top), (left + width, top), (left + width, top + height), (left, top + height)]


def _notes(weighed: WeighedText, left: int) -> str:
    """What stands behind the scale: its top, and all that the colours do not say."""
    notes = [f" {weighed.top:g}"]
    notes += ["grey: not weighed"] if weighed.unweighed else []
    notes += [f"{weighed.outside:.2g} outside the text"] if weighed.outside else []
    notes += [f"{left:,} more characters"] if left else []
    return "    ".join(notes)


def _draw_legend(axes: Axes, y: float, pen: Pen, notes: str) -> None:
    """The scale of colours from 0 to the top."""
    start = pen.ruler("weight 0  ")
    pen.write(axes, 0.0, y, "weight 0")
    pen.write(axes, start + BAR, y, notes)
    middle, half = y + pen.pitch / 2, 0.055
    extent = (start, start + BAR, middle + half, middle - half)
    axes.imshow([[step / 255 for step in range(256)]], cmap=RAMP, vmin=0, vmax=1, extent=extent, aspect="auto")
    axes.add_patch(Rectangle((start, middle - half), BAR, 2 * half, fill=False, edgecolor=FRAME, linewidth=0.6))
    axes.set(xlim=(0, axes.get_xlim()[1]), ylim=(axes.get_ylim()[0], 0))
