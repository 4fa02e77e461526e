"""Lines between two sentences as HTML: an inline SVG that is a picture by itself.

Where scripts run, pointing at a word, or reaching it with the Tab key, keeps only its lines and writes their weights
beside the words at their other ends; pointing at a head in the legend keeps only the lines of that head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.cells import cell_len

from regard.look.labels import visible, visible_title
from regard.look.lines import number
from regard.look.lines_script import SCRIPT, STYLE
from regard.look.words_html import PAGE, SHEET

if TYPE_CHECKING:
    from regard.look.lines import Line, Lines, Stroke

LETTERS = 15  # pixels, as the style has it
PITCH = 24  # pixels from word to word
NUMBER = 58  # pixels on each side for a weight and its head
LONGEST_LABEL = 26  # characters; the whole label is told under the pointer
MOST_SAID = 8  # words in a hint
GAP = (300, 480)  # pixels between the columns: at least, at most


def fragment(lines: Lines) -> str:
    """Title, picture and legend in one element, for a notebook or a page."""
    title = f"<div><b><bdi>{escape(visible_title(lines.map.title))}</bdi></b></div>" if lines.map.title else ""
    body = f"{title}{_picture(lines)}{_legend(lines)}"
    return f'<div style="{SHEET};overflow-x:auto"><style>{STYLE}</style>{body}<script>{SCRIPT}</script></div>'


def page(lines: Lines) -> str:
    """The fragment as a whole page, which is also well-formed XML."""
    title = escape(visible_title(lines.map.title or "Where it looks"))
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title></head>"
        f'<body style="{PAGE}"><div style="max-width:56em;margin:0 auto">{fragment(lines)}</div></body></html>\n'
    )


def _picture(lines: Lines) -> str:
    """The SVG: curves below, words above."""
    rows, columns = lines.map.rows, lines.map.columns
    most = max(len(rows), len(columns))
    left = NUMBER + _widest(rows) + 8
    right = left + min(max(GAP[0], most * PITCH // 3), GAP[1])
    width, height = right + 8 + _widest(columns) + NUMBER, most * PITCH + 26
    spots = _middles(len(rows), most), _middles(len(columns), most)
    curves = "".join(_curve(lines, line, spots, left, right) for line in lines.drawn)
    words = _words(lines, "row", rows, spots[0], left - 8, 4) + _words(
        lines, "column", columns, spots[1], right + 8, width - 4
    )
    heads = f'<text class="c" x="{left - 8}" y="13" text-anchor="end">looks</text>'
    heads += f'<text class="c" x="{right + 8}" y="13">is looked at</text>'
    several = ' data-heads=""' if lines.colored else ""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg class="regard-lines" {size}{several}>{heads}{curves}{words}</svg>'


def _widest(labels: Sequence[str]) -> int:
    """Pixels for the widest label in about any font of a browser."""
    return max(52, round(max(cell_len(_cut(label)) for label in labels) * LETTERS * 0.6) + 8)


def _cut(label: str) -> str:
    shown = visible(label)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def _middles(count: int, most: int) -> list[float]:
    """Where words stand, from the top: the shorter sentence spread out a little, in the middle of the longer."""
    pitch = min(most / count, 1.6) * PITCH
    start = 26 + (most * PITCH - pitch * count) / 2
    return [round(start + pitch * (place + 0.5), 1) for place in range(count)]


def _curve(lines: Lines, line: Line, spots: tuple[list[float], list[float]], left: int, right: int) -> str:
    heads = len(lines.weights)
    aside = ((line.head + 0.5) / heads - 0.5) * 0.62 * PITCH if heads > 1 else 0.0
    one, other, middle = spots[0][line.row] + aside, spots[1][line.column] + aside, (left + right) / 2
    stroke = lines.stroke(line.weight, line.head)
    names = (
        f'data-head="{line.head}" data-row="{line.row}" data-column="{line.column}" data-weight="{number(line.weight)}"'
    )
    way = f"M{left} {one:.1f}C{middle:g} {one:.1f} {middle:g} {other:.1f} {right} {other:.1f}"
    which = f" (head {line.head})" if lines.colored else ""
    hint = f"{visible(lines.map.rows[line.row])} → {visible(lines.map.columns[line.column])}: {line.weight:.3f}{which}"
    return f'<path {names} d="{way}" {_look(stroke)}><title>{escape(hint)}</title></path>'


def _look(stroke: Stroke) -> str:
    width = stroke.width * 4 / 3  # points to pixels
    return f'stroke="{stroke.color}" stroke-width="{width:.2f}" stroke-opacity="{stroke.opacity:.2f}"'


def _words(lines: Lines, side: str, labels: Sequence[str], spots: list[float], x: int, edge: int) -> str:
    """The words of one side, each with room for a number at the edge of the picture."""
    anchor, far = ("end", "start") if side == "row" else ("start", "end")
    found = _sayings(lines, side)
    return "".join(
        f'<g class="w" tabindex="0" role="img" data-{side}="{place}" aria-label="{escape(found[place])}">'
        f"<title>{escape(found[place])}</title>"
        f'<text x="{x}" y="{y + LETTERS * 0.36:.1f}" text-anchor="{anchor}">{_isolated(label)}</text>'
        f'<text class="n" x="{edge}" y="{y + 4.5:.1f}" text-anchor="{far}"></text></g>'
        for place, (label, y) in enumerate(zip(labels, spots, strict=True))
    )


def _isolated(label: str) -> str:
    """The label in its own direction, whatever the line around it has."""
    return f"&#8296;{escape(_cut(label))}&#8297;"


def _sayings(lines: Lines, side: str) -> list[str]:
    """For each word of a side what its lines say, the strongest first."""
    map = lines.map
    labels, others = (map.rows, map.columns) if side == "row" else (map.columns, map.rows)
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


def _legend(lines: Lines) -> str:
    """What a line's look means, whose colours they are, and what is left out."""
    samples = " ".join(f"{_sample(lines.stroke(weight))}&#160;{weight:g} &#8195;" for weight in lines.samples)
    heads = "".join(
        f'<span tabindex="0" data-head="{head}">{_sample(lines.stroke(lines.top, head))}&#160;head {head}</span> &#8195;'
        for head in range(len(lines.weights))
    )
    heads = f'<div class="regard-heads">{heads}</div>' if lines.colored else ""
    notes = "".join(f"<div><bdi>{escape(visible_title(note))}</bdi></div>" for note in lines.notes)
    return f'<div style="font-size:85%;margin-top:.4em"><div>weight &#8195;{samples}</div>{heads}{notes}</div>'


def _sample(stroke: Stroke) -> str:
    line = f'<line x1="0" y1="5" x2="36" y2="5" {_look(stroke)}/>'
    return f'<svg width="36" height="10" style="vertical-align:middle">{line}</svg>'
