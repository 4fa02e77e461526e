"""Fonts for labels: the installed ones that can draw a text, and what to write when none can.

matplotlib draws an empty box for a character that its fonts lack. Here every character finds a font that has it, or is
written by its number, so that a reader without Chinese fonts still sees which character was meant. Text from right to
left is put in order, and Arabic letters are joined, where matplotlib does not do it (before 3.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import matplotlib
from matplotlib.font_manager import FontEntry, fontManager, get_font

from regard.look.bidi import turned
from regard.look.labels import right_to_left

BASE = "DejaVu Sans"  # ships with matplotlib: always there, with Latin, Greek, Cyrillic, Arabic, Hebrew and symbols
PREFERRED = (  # for the rest, when installed; any other font comes after these
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK TC",
    "Noto Sans CJK KR",
    "Noto Sans SC",
    "Noto Sans JP",
    "Noto Sans KR",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Sans",
)


def families_for(texts: Iterable[str]) -> list[str]:
    """The font families that together draw these texts, in matplotlib's order of trial."""
    beyond = sorted({character for text in texts for character in text if not _has_glyph(_base_path(), character)})
    fonts = _installed() if beyond else []
    found = (_first_with(character, fonts) for character in beyond)
    return [BASE, *dict.fromkeys(family for family in found if family)]


def drawable(text: str, families: list[str]) -> str:
    """A text of one line as matplotlib draws it, which orders and joins letters itself; what no family has is numbered."""
    return spelled(text, families)


def drawn(letters: Sequence[str], odd: bool) -> str:
    """A run of one direction (`bidi.visual`), `odd` from right to left, as matplotlib needs a part of a text."""
    text = "".join(letters)
    if right_to_left(text):
        return text  # matplotlib turns it; a run without letters, such as a bracket, it takes for left to right
    return turned(letters) if odd else text


def spelled(text: str, families: list[str]) -> str:
    """The text, with each character that none of the families has written by its number: U+5E74."""
    paths = [entry.fname for entry in _installed() if entry.name in families]
    shown = [(each, any(_has_glyph(path, each) for path in paths)) for each in text]
    if len(text) == 1:
        return text if shown[0][1] else f"U+{ord(text):04X}"
    return "".join(each if known else f"<{ord(each):04X}>" for each, known in shown)


def heaviest(weight: str, families: list[str]) -> str:
    """The weight, if every family has it, else normal: matplotlib would complain on stderr, and take that."""
    bold = {entry.name for entry in fontManager.ttflist if entry.weight in (700, "bold")}
    return weight if weight == "normal" or bold.issuperset(families) else "normal"


def _installed() -> list[FontEntry]:
    """One upright font of regular weight for each family, the preferred first.

    Of the fonts inside matplotlib only the base counts: the others put symbols in the place of letters, or, as the
    last resort, boxes in the place of everything.
    """
    bundled = matplotlib.get_data_path()
    usable = [
        entry
        for entry in fontManager.ttflist
        if entry.style == "normal" and (entry.name == BASE or not entry.fname.startswith(bundled))
    ]
    usable.sort(key=lambda entry: (_rank(entry.name), entry.name, abs(int(entry.weight) - 400)))
    return list({entry.name: entry for entry in reversed(usable)}.values())[::-1]


def _rank(family: str) -> int:
    order = (BASE, *PREFERRED)
    return order.index(family) if family in order else len(order)


def _first_with(character: str, fonts: list[FontEntry]) -> str | None:
    return next((entry.name for entry in fonts if _has_glyph(entry.fname, character)), None)


def _base_path() -> str:
    return next(entry.fname for entry in _installed() if entry.name == BASE)


@lru_cache(maxsize=65536)
def _has_glyph(path: str, character: str) -> bool:
    return get_font(path).get_char_index(ord(character)) != 0
