"""Lines between two sentences as a figure: who looks on the left, what is looked at on the right, curves between them.

Everything is placed in inches: the labels are measured, and the page is made to fit them. Curves leave and arrive level,
so that an eye can follow one through a crossing; the strongest are drawn last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.path import Path

from regard.look.figure import LONGEST, LONGEST_LABEL
from regard.look.fonts import families_for, ordered, spelled
from regard.look.labels import visible, visible_title
from regard.look.lines import Stroke
from regard.look.sheet import POINTS, QUIET, Pen, heading, heading_height, sheet, write_heading
from regard.look.wrapping import wrap

if TYPE_CHECKING:
    from regard.look.lines import Lines

LOOKS, SEEN = "looks", "is looked at"  # over the columns
APART = 0.07  # inches between a word and its lines
STRETCH = 1.6  # the shorter sentence stands at most this much wider
NARROWEST = 4.6  # inches: room for the legend
SAMPLE = 0.42  # inches of a line in the legend
BETWEEN = 0.24  # inches between parts of the legend
CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]


@dataclass(frozen=True)
class Column:
    """One sentence: its labels, every how many there is room for one, and the middle of each in inches from the top."""

    labels: list[str]
    stride: int
    middles: list[float]
    width: float  # inches of the widest


class Part(NamedTuple):
    """A part of the legend: a line, or none, and what it means."""

    stroke: Stroke | None
    text: str


def draw(lines: Lines) -> Figure:
    """Title, columns with curves between them, and legend, under each other."""
    rows, columns = lines.map.rows, lines.map.columns
    most = max(len(rows), len(columns))
    pitch = min(max(10.5 / most, 0.175), 0.27, LONGEST / most)  # inches from word to word
    texts = [visible(label) for label in (*rows, *columns)]
    families = families_for([*texts, visible_title(lines.map.title), *map(visible_title, lines.notes)])
    pen = Pen(min(max(pitch * POINTS * 0.64, 5.5), 11.0), families)
    quiet = Pen(9.0, families, color=QUIET)
    left, right = _column(rows, most * pitch, pen), _column(columns, most * pitch, pen)
    sides = max(left.width, quiet.ruler(LOOKS)), max(right.width, quiet.ruler(SEEN))
    gap = min(max(1.9, 0.35 * most * pitch), 4.2)
    width = max(sum(sides) + gap, NARROWEST)
    gap = width - sum(sides)
    title = heading(lines.map.title, "", families, width)
    legend = _legend(lines, quiet, width)
    above = heading_height(title)
    top = above + quiet.pitch
    figure, axes = sheet(width, top + most * pitch + 0.14 + len(legend) * quiet.pitch)
    write_heading(axes, title)
    quiet.write(axes, sides[0] - quiet.ruler(LOOKS), above, LOOKS)
    quiet.write(axes, sides[0] + gap, above, SEEN)
    _draw_curves(axes, lines, left.middles, right.middles, (sides[0] + APART, sides[0] + gap - APART, top), pitch)
    _draw_labels(axes, left, pen, top, right_end=sides[0])
    _draw_labels(axes, right, pen, top, left_end=sides[0] + gap)
    _draw_legend(axes, legend, quiet, top + most * pitch + 0.14)
    return figure


def _column(labels: Sequence[str], height: float, pen: Pen) -> Column:
    """The shorter sentence is spread out a little, and stands in the middle of the longer."""
    least = pen.size * 1.05 / POINTS
    pitch = min(height / len(labels), STRETCH * max(least, 0.27))
    start = (height - pitch * len(labels)) / 2
    texts = [ordered(_cut(spelled(visible(label), pen.families))) for label in labels]
    stride = math.ceil(least / pitch - 1e-9)
    widest = max(pen.ruler(text) for text in texts[::stride])
    return Column(texts, stride, [start + pitch * (place + 0.5) for place in range(len(labels))], widest)


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def _draw_labels(
    axes: Axes, column: Column, pen: Pen, top: float, *, left_end: float = 0.0, right_end: float | None = None
) -> None:
    for text, middle in list(zip(column.labels, column.middles, strict=True))[:: column.stride]:
        x = left_end if right_end is None else right_end - pen.ruler(text)
        pen.write(axes, x, top + middle - pen.pitch / 2, text)


def _draw_curves(
    axes: Axes, lines: Lines, left: list[float], right: list[float], frame: tuple[float, float, float], pitch: float
) -> None:
    """One artist for all. Heads leave a word side by side, so that none hides another."""
    start, end, top = frame
    heads = len(lines.weights)
    paths, colors, widths = [], [], []
    for head, row, column, weight in lines.drawn:
        aside = ((head + 0.5) / heads - 0.5) * 0.62 * pitch if heads > 1 else 0.0
        one, other = top + left[row] + aside, top + right[column] + aside
        middle = (start + end) / 2
        paths.append(Path([(start, one), (middle, one), (middle, other), (end, other)], CURVE))
        stroke = lines.stroke(weight, head)
        colors.append(to_rgba(stroke.color, stroke.opacity))
        widths.append(stroke.width)
    curves = PathCollection(paths, facecolors="none", edgecolors=colors, linewidths=widths, zorder=1)
    axes.add_collection(curves, autolim=False)


def _legend(lines: Lines, pen: Pen, width: float) -> list[list[Part]]:
    """The parts of the legend in lines of that width."""
    found = [[Part(None, "weight"), *(Part(lines.stroke(weight), f"{weight:g}") for weight in lines.samples)]]
    heads = [Part(lines.stroke(lines.top, head), f"head {head}") for head in range(len(lines.weights))]
    found += [[]] if lines.colored else []
    for part in heads if lines.colored else []:
        if found[-1] and sum(_width(each, pen) for each in (*found[-1], part)) - BETWEEN > width:
            found.append([])
        found[-1].append(part)
    for note in lines.notes:
        text = spelled(visible_title(note), pen.families)
        cuts = wrap(text, width, lambda start, end, text=text: pen.ruler(text[start:end]))  # type: ignore[misc]
        found += [[Part(None, ordered(text[start:end]))] for start, end in cuts]
    return found


def _width(part: Part, pen: Pen) -> float:
    return (SAMPLE + 0.07 if part.stroke else 0.0) + pen.ruler(part.text) + BETWEEN


def _draw_legend(axes: Axes, legend: list[list[Part]], pen: Pen, y: float) -> None:
    for line in legend:
        x = 0.0
        for part in line:
            begin = x
            if part.stroke is not None:
                ink = to_rgba(part.stroke.color, part.stroke.opacity)
                middle = y + pen.pitch / 2
                axes.plot([x, x + SAMPLE], [middle, middle], color=ink, linewidth=part.stroke.width)
                begin += SAMPLE + 0.07
            pen.write(axes, begin, y, part.text)
            x += _width(part, pen)
        y += pen.pitch
