"""Weighed texts and lines between two sentences as HTML: colours behind words, and an inline SVG.

Where scripts run, pointing at a word of two sentences, or reaching it with the Tab key, keeps only its lines and writes
their weights beside the words at their other ends; pointing at a head in the legend keeps only the lines of that head.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from html import escape

from rich.cells import cell_len

from regard.look.colors import INK, color, hexadecimal, ink_on
from regard.look.labels import right_to_left, shown_text, stretches, visible, visible_title
from regard.look.lines import Line, Lines, Stroke, number
from regard.look.words import WeighedText
from regard.tokens.words import SPECIAL

QUIET = "#5b646c"
SHEET = "background:#fff;color:#000;padding:.8em 1em;max-width:46em"  # the same in a dark notebook
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.75;margin:.5em 0"
PIECE = "padding:.15em 0;border-radius:.15em"
PAGE = "margin:0;padding:2em 1em;background:#fff;font:17px/1.5 system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif"


def words_fragment(weighed: WeighedText) -> str:
    """Title, caption, text and legend in one element, for a notebook or a page."""
    title = (
        f"<div{_direction(weighed.title)}><b>{escape(visible_title(weighed.title))}</b></div>" if weighed.title else ""
    )
    caption = (
        f"<div{_direction(weighed.caption)}>{escape(visible_title(weighed.caption))}</div>" if weighed.caption else ""
    )
    text, owners = shown_text(weighed.text, weighed.spans)
    pieces = "".join(
        _unweighed(part) if owner < 0 else _piece(part, weighed.weights[owner], weighed.top)
        for part, owner in stretches(text, owners)
    )
    body = f'<div dir="auto" style="{TEXT}">{pieces}</div>'
    return f'<div style="{SHEET};width:fit-content">{title}{caption}{body}{_words_legend(weighed)}</div>'


def words_page(weighed: WeighedText) -> str:
    """The fragment as a whole page, which is also well-formed XML."""
    title = escape(visible_title(weighed.title or weighed.caption or "A weighed text"))
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title></head>"
        f'<body style="{PAGE}"><div style="max-width:48em;margin:0 auto">{words_fragment(weighed)}</div></body></html>\n'
    )


def _direction(text: str) -> str:
    return ' dir="rtl"' if right_to_left(text) else ""


def _piece(text: str, weight: float, top: float) -> str:
    if math.isnan(weight):
        return _unweighed(text)
    ground = color(INK, weight / top)
    style = f"{PIECE};background:{hexadecimal(ground)};color:{hexadecimal(ink_on(ground))}"
    side = ' dir="ltr"' if SPECIAL.fullmatch(text) else ""  # in Hebrew, </s> would be turned to <s/>
    return f'<span style="{style}" title="{weight:.3g}"{side}>{escape(text)}</span>'


def _unweighed(text: str) -> str:
    return escape(text) if text.isspace() else f'<span style="color:{QUIET}">{escape(text)}</span>'


def _words_legend(weighed: WeighedText) -> str:
    ramp = ",".join(hexadecimal(each) for each in INK)
    box = f"display:inline-block;height:.8em;width:8em;background:linear-gradient(to right,{ramp})"
    scale = f'weight 0 <span style="{box}"></span> {weighed.top:g}'
    grey = f' &#8195; <span style="color:{QUIET}">not weighed</span>' if weighed.unweighed else ""
    outside = f" &#8195; {weighed.outside:.2g} outside the text" if weighed.outside else ""
    return f'<div style="font-size:85%">{scale}{grey}{outside}</div>'


LETTERS = 15  # pixels, as the style has it
PITCH = 24  # pixels from word to word
NUMBER = 58  # pixels on each side for a weight and its head
LONGEST_LABEL = 26  # characters; the whole label is told under the pointer
MOST_SAID = 8  # words in a hint
GAP = (300, 480)  # pixels between the columns: at least, at most


def lines_fragment(lines: Lines) -> str:
    """Title, picture and legend in one element, for a notebook or a page."""
    title = f"<div><b><bdi>{escape(visible_title(lines.map.title))}</bdi></b></div>" if lines.map.title else ""
    body = f"{title}{_picture(lines)}{_lines_legend(lines)}"
    return f'<div style="{SHEET};overflow-x:auto"><style>{STYLE}</style>{body}<script>{SCRIPT}</script></div>'


def lines_page(lines: Lines) -> str:
    """The fragment as a whole page, which is also well-formed XML."""
    title = escape(visible_title(lines.map.title or "Where it looks"))
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title></head>"
        f'<body style="{PAGE}"><div style="max-width:56em;margin:0 auto">{lines_fragment(lines)}</div></body></html>\n'
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


def _lines_legend(lines: Lines) -> str:
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


STYLE = (
    ".regard-lines{display:block;max-width:100%;height:auto;margin-top:.5em}"
    ".regard-lines text{font:15px system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif;fill:#222}"
    ".regard-lines .n,.regard-lines .c{font-size:12px;fill:#5b646c;font-variant-numeric:tabular-nums}"
    ".regard-lines path{fill:none}"
    ".regard-lines .w,.regard-heads span{cursor:default;outline-offset:2px}"
    ".regard-lines .w:focus text{text-decoration:underline}.regard-lines .w:focus{outline:none}"
    ".regard-lines.some path:not(.on){opacity:.04}"
    ".regard-lines.some .w:not(.on) text{fill:#aab2b9}"
)
# It looks for pictures that have no script yet, because a notebook does not say which script is running.
SCRIPT = """
document.querySelectorAll('.regard-lines:not([data-ready])').forEach(function (svg) {
  svg.setAttribute('data-ready', '');
  var paths = Array.from(svg.querySelectorAll('path')), words = Array.from(svg.querySelectorAll('.w'));
  var several = svg.hasAttribute('data-heads');
  function clear() {
    svg.classList.remove('some');
    paths.concat(words).forEach(function (each) { each.classList.remove('on'); });
    svg.querySelectorAll('.n').forEach(function (each) { each.textContent = ''; });
  }
  function keep(name, value, numbers) {
    clear();
    svg.classList.add('some');
    paths.forEach(function (path) {
      if (path.dataset[name] !== value) { return; }
      path.classList.add('on');
      words.forEach(function (word) {
        if (word.dataset.row !== path.dataset.row) { if (word.dataset.column !== path.dataset.column) { return; } }
        word.classList.add('on');
        if (!numbers) { return; }
        if (name in word.dataset) { return; }
        word.querySelector('.n').textContent = path.dataset.weight + (several ? ' h' + path.dataset.head : '');
      });
    });
  }
  function listen(element, name, numbers) {
    var value = element.dataset[name];
    ['mouseenter', 'focus'].forEach(function (kind) {
      element.addEventListener(kind, function () {
        keep(name, value, numbers);
        if (numbers) { element.classList.add('on'); }
      });
    });
    ['mouseleave', 'blur'].forEach(function (kind) { element.addEventListener(kind, clear); });
  }
  words.forEach(function (word) { listen(word, 'row' in word.dataset ? 'row' : 'column', true); });
  svg.parentNode.querySelectorAll('.regard-heads span').forEach(function (head) { listen(head, 'head', false); });
});
"""
