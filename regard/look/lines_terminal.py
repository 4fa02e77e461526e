"""Lines between two sentences in a terminal, where none can be drawn: each word with the words that it looks at.

bike → Fahrrad 0.71, ein 0.12
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from regard.look.bidi import marked
from regard.look.colors import GLOW, color, hexadecimal
from regard.look.contrast import ink_on
from regard.look.labels import visible, visible_title
from regard.look.lines import number
from regard.look.terminal import scale
from regard.look.wrapping import wrap

if TYPE_CHECKING:
    from regard.look.lines import Line, Lines

LONGEST_LABEL = 24  # characters


def draw(lines: Lines, width: int, colored: bool) -> Text:
    """Title, a part for each head, and what is left out."""
    found = [Text(line, style="bold") for line in _wrapped(visible_title(lines.map.title), width)]
    for head in range(len(lines.weights)):
        found += [Text(f"head {head}", style="italic")] if lines.colored else []
        found += _words(lines, head, width, colored)
    found.append(Text())
    found += [scale(lines.top, colored)] if colored else []
    found += [Text(line, style="dim") for note in lines.notes for line in _wrapped(visible_title(note), width)]
    return Text("\n", no_wrap=True, overflow="ignore").join(found)


def _words(lines: Lines, head: int, width: int, colored: bool) -> Iterator[Text]:
    """A line for each word, and more where it looks at more than a line holds."""
    looks: dict[int, list[Line]] = defaultdict(list)
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
            room = part.cell_len + 1 + (place + 1 < len(looks[row]))  # a space before, a comma behind
            if used + room > width and used > margin + 2:
                yield text
                text, used = Text(" " * (margin + 2)), margin + 2
            text.append(" ").append(part).append("," if place + 1 < len(looks[row]) else "")
            used += room
        yield text if looks[row] else text.append(" nothing above that", style="dim")


def _look(lines: Lines, line: Line, colored: bool) -> Text:
    ground = color(GLOW, line.weight / lines.top)
    style = f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}" if colored else ""
    return Text.assemble((marked(_cut(lines.map.columns[line.column])), style), f" {number(line.weight)}")


def _cut(label: str) -> str:
    shown = visible(label)
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


def _wrapped(text: str, width: int) -> Iterator[str]:
    return (text[start:end] for start, end in wrap(text, width, lambda start, end: cell_len(text[start:end])))
