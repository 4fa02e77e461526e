"""Weighed texts and lines between two sentences as HTML: colours behind words, and an inline SVG.

Where scripts run, pointing at a word of two sentences, or reaching it with the Tab key, keeps only its lines and writes
their weights beside the words at their other ends; pointing at a head in the legend keeps only the lines of that head.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from rich.cells import cell_len

from regard.look.colors import INK, color, hexadecimal, ink_on
from regard.look.labels import shown_text, stretches, visible
from regard.look.lines import Lines, Stroke, WordLine, number
from regard.look.pages import template
from regard.look.words import WeighedText
from regard.tokens.words import SPECIAL

STYLE = template.stylesheet("lines.css")
SCRIPT = template.script("lines.js", call="everyLines(document);")


# --- Colours behind words


@dataclass(frozen=True)
class Piece:
    """A stretch of a weighed text; the ground is empty where it has no weight."""

    text: str
    weight: str = ""
    ground: str = ""
    ink: str = ""
    special: bool = False  # in Hebrew, </s> would be turned to <s/>


def words_fragment(weighed: WeighedText) -> str:
    """Return title, caption, text and legend in one element, for a notebook or a page."""
    text, owners = shown_text(weighed.text, weighed.spans)
    pieces = [
        Piece(part) if owner < 0 else _piece(part, weighed.weights[owner], weighed.top)
        for part, owner in stretches(text, owners)
    ]
    return template.render(
        "words.html",
        title=weighed.title,
        caption=weighed.caption,
        pieces=pieces,
        top=f"{weighed.top:g}",
        unweighed=weighed.unweighed,
        outside=f"{weighed.outside:.2g}" if weighed.outside else "",
    )


def words_page(weighed: WeighedText) -> str:
    """Return the fragment as a whole page, which is also well-formed XML."""
    title = weighed.title or weighed.caption or "A weighed text"
    return template.render("sheet.html", title=title, fragment=Markup(words_fragment(weighed)), widest="48em")


def _piece(text: str, weight: float, top: float) -> Piece:
    if math.isnan(weight):
        return Piece(text)
    ground = color(INK, weight / top)
    special = SPECIAL.fullmatch(text) is not None
    return Piece(text, f"{weight:.3g}", hexadecimal(ground), hexadecimal(ink_on(ground)), special)


# --- Lines between two sentences

LETTERS = 15  # pixels, as the style has it
PITCH = 24  # pixels from word to word
NUMBER = 58  # pixels on each side for a weight and its head
LONGEST_LABEL = 26  # characters; the whole label is told under the pointer
MOST_SAID = 8  # words in a hint
GAP = (300, 480)  # pixels between the columns: at least, at most


@dataclass(frozen=True)
class Word:
    """A word of one side: what it says under the pointer, and where it and its number stand, in pixels from the top."""

    label: str
    says: str
    baseline: str
    number: str


@dataclass(frozen=True)
class Side:
    """The words of one sentence, at x, and room for numbers at the edge of the picture."""

    name: str  # row or column
    places: Sequence[Word]
    x: int
    edge: int

    @property
    def anchor(self) -> str:
        return "end" if self.name == "row" else "start"

    @property
    def far(self) -> str:
        return "start" if self.name == "row" else "end"


@dataclass(frozen=True)
class LineCurve:
    """One line as a path, with what it says under the pointer."""

    line: WordLine
    stroke: Stroke
    way: str
    weight: str
    hint: str


def lines_fragment(lines: Lines) -> str:
    """Return title, picture and legend in one element, for a notebook or a page."""
    rows, columns = lines.map.rows, lines.map.columns
    most = max(len(rows), len(columns))
    left = NUMBER + _widest(rows) + 8
    right = left + min(max(GAP[0], most * PITCH // 3), GAP[1])
    width, height = right + 8 + _widest(columns) + NUMBER, most * PITCH + 26
    spots = _middles(len(rows), most), _middles(len(columns), most)
    return template.render(
        "lines.html",
        title=lines.map.title,
        notes=lines.notes,
        width=width,
        height=height,
        curves=[_curve(lines, line, spots, left, right) for line in lines.drawn],
        rows=Side("row", _words(lines, "row", rows, spots[0]), left - 8, 4),
        columns=Side("column", _words(lines, "column", columns, spots[1]), right + 8, width - 4),
        several=lines.colored,
        samples=[(lines.stroke(weight), f"{weight:g}") for weight in lines.samples],
        heads=[lines.stroke(lines.top, head) for head in range(len(lines.weights))],
        style=STYLE,
        script=SCRIPT,
    )


def lines_page(lines: Lines) -> str:
    """Return the fragment as a whole page, which is also well-formed XML."""
    title = lines.map.title or "Where it looks"
    return template.render("sheet.html", title=title, fragment=Markup(lines_fragment(lines)), widest="56em")


def _widest(labels: Sequence[str]) -> int:
    """Return pixels for the widest label in about any font of a browser."""
    return max(52, round(max(cell_len(_cut(label)) for label in labels) * LETTERS * 0.6) + 8)


def _cut(label: str) -> str:
    shown = visible(label)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def _middles(count: int, most: int) -> list[float]:
    """Places of words, from the top: the shorter sentence spread out a little, in the middle of the longer."""
    pitch = min(most / count, 1.6) * PITCH
    start = 26 + (most * PITCH - pitch * count) / 2
    return [round(start + pitch * (place + 0.5), 1) for place in range(count)]


def _curve(lines: Lines, line: WordLine, spots: tuple[list[float], list[float]], left: int, right: int) -> LineCurve:
    heads = len(lines.weights)
    aside = ((line.head + 0.5) / heads - 0.5) * 0.62 * PITCH if heads > 1 else 0.0
    one, other, middle = spots[0][line.row] + aside, spots[1][line.column] + aside, (left + right) / 2
    way = f"M{left} {one:.1f}C{middle:g} {one:.1f} {middle:g} {other:.1f} {right} {other:.1f}"
    which = f" (head {line.head})" if lines.colored else ""
    hint = f"{visible(lines.map.rows[line.row])} → {visible(lines.map.columns[line.column])}: {line.weight:.3f}{which}"
    return LineCurve(line, lines.stroke(line.weight, line.head), way, number(line.weight), hint)


def _words(lines: Lines, side: str, labels: Sequence[str], spots: list[float]) -> list[Word]:
    found = _sayings(lines, side)
    return [
        Word(_cut(label), says, f"{y + LETTERS * 0.36:.1f}", f"{y + 4.5:.1f}")
        for label, says, y in zip(labels, found, spots, strict=True)
    ]


def _sayings(lines: Lines, side: str) -> list[str]:
    """For each word of a side what its lines say, the strongest first."""
    rows, columns = lines.map.rows, lines.map.columns
    labels, others = (rows, columns) if side == "row" else (columns, rows)
    found: dict[int, list[str]] = defaultdict(list)
    for line in reversed(lines.drawn):
        here, there = (line.row, line.column) if side == "row" else (line.column, line.row)
        which = f" (head {line.head})" if lines.colored else ""
        found[here].append(f"{visible(others[there])} {number(line.weight)}{which}")
    verb = "looks at" if side == "row" else "is looked at by"
    return [
        f"{visible(label)} {verb} " + (", ".join(found[place][:MOST_SAID]) or "nothing with a line")
        for place, label in enumerate(labels)
    ]
