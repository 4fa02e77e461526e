"""Text as figures: colours behind the words of a running text, or curves between the words of two columns.

Every stretch of text is measured, and placed in inches from the top left corner. Text that begins from right to left is
set from the right; stretches, each of one piece and one direction, stand in the order in which they are read. Lines are
cut in the order of writing, then ordered (see `bidi`). Letters are joined before the text is cut into pieces, so that a
word of two colours is still one word.

Curves leave and arrive level, so that an eye can follow one through a crossing; the strongest are drawn last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.path import Path

from regard.look.bidi import joined, visual
from regard.look.colors import INK, color, hexadecimal, ink_on
from regard.look.figures.fonts import drawn, families_for, spelled
from regard.look.figures.map import LONGEST, LONGEST_LABEL
from regard.look.figures.sheet import (
    DPI,
    FRAME,
    MARGIN,
    POINTS,
    QUIET,
    RAMP,
    Pen,
    heading,
    heading_height,
    sheet,
    write_heading,
)
from regard.look.labels import readable, right_to_left, shown_text, visible, visible_title, wrap
from regard.look.lines import Lines, Stroke
from regard.look.words import WeighedText
from regard.tokens.words import SPECIAL


@dataclass(frozen=True)
class TextStretch:
    """A part of a line: what it says, where it begins in the line, how wide it is, and its weight, NaN for none."""

    text: str
    left: float  # inches
    width: float
    weight: float


def lines_of(
    weighed: WeighedText, families: list[str], ruler: Callable[[str], float], width: float, most: int
) -> tuple[list[list[TextStretch]], int]:
    """The stretches of each line in the order of writing, and how many characters do not fit into so many lines."""
    text, owners = shown_text(weighed.text, weighed.spans)
    letters = _letters(text, owners, families)
    weights = (*weighed.weights, math.nan)  # the last, at -1, is for what belongs to no piece
    right = right_to_left(weighed.text)
    sides = SPECIAL.sub(lambda special: "s" * len(special.group()), text)  # in Hebrew, </s> would be turned to <s/>

    def measure(start: int, end: int) -> float:
        groups = (list(group) for _, group in groupby(range(start, end), key=owners.__getitem__))
        return sum(ruler("".join(letters[group[0] : group[-1] + 1])) for group in groups)

    def line(start: int, end: int) -> list[TextStretch]:
        cuts = [place - start for place in range(start + 1, end) if owners[place] != owners[place - 1]]
        found, left = [], 0.0
        for first, last, odd in visual(sides[start:end], right, cuts):
            part = drawn(letters[start + first : start + last], odd)
            found.append((first, TextStretch(part, left, ruler(part), weights[owners[start + first]])))
            left += ruler(part)
        return [stretch for _, stretch in sorted(found, key=lambda each: each[0])]

    places = wrap(text, width, measure)
    return [line(*each) for each in places[:most]], len(text) - places[most][0] if len(places) > most else 0


def _letters(text: str, owners: Sequence[int], families: list[str]) -> list[str]:
    """Forms to draw for each character: joined to its neighbours where the fonts have that, by its number where not."""
    forms = joined(text, owners)
    known = {each: _glyph(each, families) for each in {*text, *forms}}
    return [known[form] if known[form] == form else known[each] for each, form in zip(text, forms, strict=True)]


def _glyph(character: str, families: list[str]) -> str:
    """The character as the fonts can draw it in running text; the space keeps it from being shown as if alone."""
    return spelled(character + " ", families)[:-1]


WIDEST = 7.4  # inches of text in a line: about ninety letters
MOST_LINES = 200  # about 2,500 words, 57 inches; a page much taller than that is hard to open
BAR = 1.5  # inches of the scale of colours


def draw_words(weighed: WeighedText) -> Figure:
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
    _draw_scale(axes, height - quiet.pitch, quiet, notes)
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
    return [shown[start:end] for start, end in lines]


def _draw_body(axes: Axes, body: list[list[TextStretch]], y: float, pen: Pen, top: float, right: float | None) -> None:
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
    """The words behind the scale: its top, and all that the colours do not say."""
    notes = [f" {weighed.top:g}"]
    notes += ["grey: not weighed"] if weighed.unweighed else []
    notes += [f"{weighed.outside:.2g} outside the text"] if weighed.outside else []
    notes += [f"{left:,} more characters"] if left else []
    return "    ".join(notes)


def _draw_scale(axes: Axes, y: float, pen: Pen, notes: str) -> None:
    """The scale of colours from 0 to the top."""
    start = pen.ruler("weight 0  ")
    pen.write(axes, 0.0, y, "weight 0")
    pen.write(axes, start + BAR, y, notes)
    middle, half = y + pen.pitch / 2, 0.055
    extent = (start, start + BAR, middle + half, middle - half)
    axes.imshow([[step / 255 for step in range(256)]], cmap=RAMP, vmin=0, vmax=1, extent=extent, aspect="auto")
    axes.add_patch(Rectangle((start, middle - half), BAR, 2 * half, fill=False, edgecolor=FRAME, linewidth=0.6))
    axes.set(xlim=(0, axes.get_xlim()[1]), ylim=(axes.get_ylim()[0], 0))


LOOKS, SEEN = "looks", "is looked at"  # over the columns
APART = 0.07  # inches between a word and its lines
STRETCH = 1.6  # the shorter sentence stands at most this much wider
NARROWEST = 4.6  # inches: room for the legend
SAMPLE = 0.42  # inches of a line in the legend
BETWEEN = 0.24  # inches between parts of the legend
CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]


@dataclass(frozen=True)
class ColumnOfText:
    """One sentence: its labels, every how many there is room for one, and the middle of each in inches from the top."""

    labels: list[str]
    stride: int
    middles: list[float]
    width: float  # inches of the widest


class TextPart(NamedTuple):
    """A part of the legend: a line, or none, and what it means."""

    stroke: Stroke | None
    text: str


def draw_lines(lines: Lines) -> Figure:
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


def _column(labels: Sequence[str], height: float, pen: Pen) -> ColumnOfText:
    """The shorter sentence is spread out a little, and stands in the middle of the longer."""
    least = pen.size * 1.05 / POINTS
    pitch = min(height / len(labels), STRETCH * max(least, 0.27))
    start = (height - pitch * len(labels)) / 2
    texts = [_cut(spelled(visible(label), pen.families)) for label in labels]
    stride = math.ceil(least / pitch - 1e-9)
    widest = max(pen.ruler(text) for text in texts[::stride])
    return ColumnOfText(texts, stride, [start + pitch * (place + 0.5) for place in range(len(labels))], widest)


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def _draw_labels(
    axes: Axes, column: ColumnOfText, pen: Pen, top: float, *, left_end: float = 0.0, right_end: float | None = None
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


def _legend(lines: Lines, pen: Pen, width: float) -> list[list[TextPart]]:
    """The parts of the legend in lines of that width."""
    found = [[TextPart(None, "weight"), *(TextPart(lines.stroke(weight), f"{weight:g}") for weight in lines.samples)]]
    heads = [TextPart(lines.stroke(lines.top, head), f"head {head}") for head in range(len(lines.weights))]
    found += [[]] if lines.colored else []
    for part in heads if lines.colored else []:
        if found[-1] and sum(_width(each, pen) for each in (*found[-1], part)) - BETWEEN > width:
            found.append([])
        found[-1].append(part)
    for note in lines.notes:
        text = spelled(visible_title(note), pen.families)
        cuts = wrap(text, width, lambda start, end, text=text: pen.ruler(text[start:end]))  # type: ignore[misc]
        found += [[TextPart(None, text[start:end])] for start, end in cuts]
    return found


def _width(part: TextPart, pen: Pen) -> float:
    return (SAMPLE + 0.07 if part.stroke else 0.0) + pen.ruler(part.text) + BETWEEN


def _draw_legend(axes: Axes, legend: list[list[TextPart]], pen: Pen, y: float) -> None:
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
