"""The lines of a weighed text as stretches to draw: each of one piece and one direction, placed as it is read.

Lines are cut in the order of writing, then ordered (see `bidi`). Letters are joined before the text is cut into pieces,
so that a word of two colours is still one word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from regard.look.arabic import joined
from regard.look.bidi import visual
from regard.look.fonts import drawn, spelled
from regard.look.wrapping import right_to_left, shown_text, wrap
from regard.tokens.words import SPECIAL

if TYPE_CHECKING:
    from regard.look.words import WeighedText


@dataclass(frozen=True)
class Stretch:
    """A part of a line: what it says, where it begins in the line, how wide it is, and its weight, NaN for none."""

    text: str
    left: float  # inches
    width: float
    weight: float


def lines_of(
    weighed: WeighedText, families: list[str], ruler: Callable[[str], float], width: float, most: int
) -> tuple[list[list[Stretch]], int]:
    """The stretches of each line in the order of writing, and how many characters do not fit into so many lines."""
    text, owners = shown_text(weighed.text, weighed.spans)
    letters = _letters(text, owners, families)
    weights = (*weighed.weights, math.nan)  # the last, at -1, is for what belongs to no piece
    right = right_to_left(weighed.text)
    sides = SPECIAL.sub(lambda special: "s" * len(special.group()), text)  # in Hebrew, </s> would be turned to <s/>

    def measure(start: int, end: int) -> float:
        groups = (list(group) for _, group in groupby(range(start, end), key=owners.__getitem__))
        return sum(ruler("".join(letters[group[0] : group[-1] + 1])) for group in groups)

    def line(start: int, end: int) -> list[Stretch]:
        cuts = [place - start for place in range(start + 1, end) if owners[place] != owners[place - 1]]
        found, left = [], 0.0
        for first, last, odd in visual(sides[start:end], right, cuts):
            part = drawn(letters[start + first : start + last], odd)
            found.append((first, Stretch(part, left, ruler(part), weights[owners[start + first]])))
            left += ruler(part)
        return [stretch for _, stretch in sorted(found, key=lambda each: each[0])]

    places = wrap(text, width, measure)
    return [line(*each) for each in places[:most]], len(text) - places[most][0] if len(places) > most else 0


def _letters(text: str, owners: Sequence[int], families: list[str]) -> list[str]:
    """What to draw for each character: joined to its neighbours where the fonts have that, by its number where not."""
    forms = joined(text, owners)
    known = {each: _glyph(each, families) for each in {*text, *forms}}
    return [known[form] if known[form] == form else known[each] for each, form in zip(text, forms, strict=True)]


def _glyph(character: str, families: list[str]) -> str:
    """The character as the fonts can draw it in running text; the space keeps it from being shown as if alone."""
    return spelled(character + " ", families)[:-1]
