"""What to write for a token, so that a reader sees it even if it is a space, a control character or a lone accent."""

from __future__ import annotations

import unicodedata

SHOWN = {" ": "␣", "\u00a0": "␣", "\u3000": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}
JOINERS = {"\u200c", "\u200d"}  # without them words in Persian or Hindi, and many emoji, fall apart


def visible(label: str) -> str:
    """The label with its invisible characters made visible. Control codes never reach the terminal or the page."""
    if not label:
        return "∅"
    shown = "".join(_visible(character, alone=len(label) == 1) for character in label)
    accent_first = unicodedata.category(shown[0]) in ("Mn", "Me")
    return "◌" + shown if accent_first else shown  # an accent alone needs something to stand on


def visible_title(title: str) -> str:
    """A title keeps its spaces; whatever else cannot be seen is shown."""
    return " ".join(visible(word) for word in title.split())


def _visible(character: str, alone: bool) -> str:
    if character in SHOWN:
        return SHOWN[character]
    if character.isprintable() or (character in JOINERS and not alone):
        return character
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
