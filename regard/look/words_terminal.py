"""A weighed text in a terminal: colours behind the words, or, without colour, a shade under each.

Some terminals turn lines with Hebrew or Arabic around, others do not, so that nothing can stand under a word: there the
shade follows its word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from regard.look.bidi import has_right_to_left
from regard.look.colors import GLOW, color, hexadecimal
from regard.look.contrast import ink_on
from regard.look.labels import visible_title
from regard.look.terminal import MASKED, SHADES, scale
from regard.look.wrapping import shown_text, stretches, wrap

if TYPE_CHECKING:
    from regard.look.words import WeighedText


def draw(weighed: WeighedText, width: int, colored: bool) -> Text:
    """Title, caption, the text in lines that fit the width, and the legend."""
    lines = [Text(line, style="bold") for line in _wrapped(visible_title(weighed.title), width)]
    lines += [Text(line, style="italic") for line in _wrapped(visible_title(weighed.caption), width)]
    lines += [Text()] if lines else []
    behind = not colored and has_right_to_left(weighed.text)
    lines += _shades_behind(weighed, width) if behind else _body(weighed, width, colored)
    lines += [Text(), _legend(weighed, colored)]
    lines[-1].append("   behind each word" if behind else "")
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
