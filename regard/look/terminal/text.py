"""Weighed texts in a terminal, and lines between two sentences, where none can be drawn: words with those they look at.

Some terminals turn lines with Hebrew or Arabic around, others do not, so that nothing can stand under a word: there the
shade follows its word.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from regard.look.bidi import has_right_to_left, marked
from regard.look.colors import GLOW, color, hexadecimal, ink_on
from regard.look.labels import shown_text, stretches, visible, visible_title, wrap
from regard.look.lines import Lines, WordLine, number
from regard.look.terminal.map import MASKED, SHADES, scale, told
from regard.look.words import RowTexts, ScaledText, WeighedText


def draw_words(weighed: WeighedText, width: int, colored: bool) -> Text:
    """Title, caption, the text in lines that fit the width, and the legend."""
    lines = [Text(line, style="bold") for line in _wrapped(visible_title(weighed.title), width)]
    lines += [Text(line, style="italic") for line in _wrapped(visible_title(weighed.caption), width)]
    lines += [Text()] if lines else []
    behind = not colored and has_right_to_left(weighed.text)
    lines += _shades_behind(weighed, width) if behind else _body(weighed, width, colored)
    lines += [Text(), _legend(weighed, colored)]
    lines[-1].append("   behind each word" if behind else "")
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def draw_rows(texts: RowTexts, width: int, colored: bool) -> Text:
    """Every row with all its words, on one scale."""
    rows = [texts.row(place) for place in range(len(texts.map.rows))]
    top = max(row.top for row in rows)
    lines = [Text(visible_title(texts.map.title), style="bold")]
    for row in rows:
        lines += [Text(), Text(row.caption.partition(";")[0], style="italic")]
        scaled = ScaledText(row.text, row.spans, row.weights, last=top)
        lines += draw_words(scaled, width, colored).split("\n")[:-2]  # one legend is enough
    lines += [Text(), scale(top, colored), *told(texts.notes, width)]
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _body(weighed: WeighedText, width: int, colored: bool) -> Iterator[Text]:
    text, owners = shown_text(weighed.text, weighed.spans)
    shares = [weight / weighed.top for weight in weighed.weights]
    for start, end in wrap(text, width, lambda start, end: cell_len(text[start:end])):
        parts = [
            (part, None if owner < 0 else shares[owner])
            for part, owner in stretches(text[start:end], owners[start:end])
        ]
        yield from [_colored(parts)] if colored else _shaded(parts)


def _shades_behind(weighed: WeighedText, width: int) -> Iterator[Text]:
    """The text with a shade behind each piece, wherever a terminal puts it."""
    pieces = stretches(*shown_text(weighed.text, weighed.spans))
    shares = [weight / weighed.top for weight in weighed.weights]
    text = "".join(part if owner < 0 else part + _shade(shares[owner]).strip() for part, owner in pieces)
    return (Text(line) for line in _wrapped(text, width))


Parts = list[tuple[str, float | None]]  # stretches of a line, each with its share of the top; None belongs to no piece


def _wrapped(text: str, width: int) -> Iterator[str]:
    return (text[start:end] for start, end in wrap(text, width, lambda start, end: cell_len(text[start:end])))


def _colored(parts: Parts) -> Text:
    line = Text()
    for part, share in parts:
        line.append(part, style=_style(share))
    return line


def _style(share: float | None) -> str:
    if share is None or math.isnan(share):
        return "dim"
    ground = color(GLOW, share)
    return f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}"


def _shaded(parts: Parts) -> list[Text]:
    """The line, and under it a line of shades, each as wide as what it is about."""
    under = "".join(_shade(share) * cell_len(part) for part, share in parts)
    return [Text("".join(part for part, _ in parts)), Text(under.rstrip())]


def _shade(share: float | None) -> str:
    if share is None:
        return " "
    if math.isnan(share):
        return MASKED
    return SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)]


def _legend(weighed: WeighedText, colored: bool) -> Text:
    legend = scale(weighed.top, colored)
    if colored and weighed.unweighed:
        legend.append("   not weighed", style="dim")
    if not colored and any(math.isnan(weight) for weight in weighed.weights):
        legend.append(f"   {MASKED} not weighed")
    return legend.append(f"   {weighed.outside:.2g} outside the text") if weighed.outside else legend


LONGEST_LABEL = 24  # characters


def draw_lines(lines: Lines, width: int, colored: bool) -> Text:
    """Title, a part for each head, and what is left out."""
    found = [Text(line, style="bold") for line in _wrapped_words(visible_title(lines.map.title), width)]
    for head in range(len(lines.weights)):
        found += [Text(f"head {head}", style="italic")] if lines.colored else []
        found += _words(lines, head, width, colored)
    found.append(Text())
    found += [scale(lines.top, colored)] if colored else []
    found += [Text(line, style="dim") for note in lines.notes for line in _wrapped_words(visible_title(note), width)]
    return Text("\n", no_wrap=True, overflow="ignore").join(found)


def _words(lines: Lines, head: int, width: int, colored: bool) -> Iterator[Text]:
    """A line for each word, and more where it looks at more than a line holds."""
    looks: dict[int, list[WordLine]] = defaultdict(list)
    for line in reversed(lines.drawn):
        if line.head == head:
            looks[line.row].append(line)
    labels = [_cut(label) for label in lines.map.rows]
    margin = max(cell_len(label) for label in labels)
    for row, label in enumerate(labels):
        text = Text.assemble(" " * (margin - cell_len(label)), (marked(label), "bold"), " →")
        used = margin + 2
        for place, line in enumerate(looks[row]):
            part = _look(lines, line, colored)
            comma = "," if place + 1 < len(looks[row]) else ""
            room = 1 + part.cell_len + len(comma)  # with a space before
            if used + room > width and used > margin + 2:
                yield text
                text, used = Text(" " * (margin + 2)), margin + 2
            text.append(" ").append(part).append(comma)
            used += room
        yield text if looks[row] else text.append(" nothing above that", style="dim")


def _look(lines: Lines, line: WordLine, colored: bool) -> Text:
    ground = color(GLOW, line.weight / lines.top)
    style = f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}" if colored else ""
    return Text.assemble((marked(_cut(lines.map.columns[line.column])), style), f" {number(line.weight)}")


def _cut(label: str) -> str:
    shown = visible(label)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def _wrapped_words(text: str, width: int) -> Iterator[str]:
    return (text[start:end] for start, end in wrap(text, width, lambda start, end: cell_len(text[start:end])))
