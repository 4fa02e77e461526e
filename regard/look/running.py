"""Labels of tokens as running text, joined as people write them."""

from __future__ import annotations

from collections.abc import Sequence

from regard.look.wrapping import SPACELESS
from regard.tokens.words import GOES_ON, is_special

WRITTEN = {"Ġ": " ", "▁": " ", "Ċ": "\n"}  # what tokenizers write for a space and for a new line
CLOSING = ".,;:!?)]}%»”’…،؛؟"
OPENING = "([{«“‘¿¡"


def running(labels: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The labels as one text, and where each starts and ends in it, without the space that it brings.

    Pieces that bring their own spaces, and single characters, follow each other as they are. Whole words, and pieces that
    say with ## that they go on, get spaces between them, but for those around punctuation, Chinese and Japanese.
    """
    plain = [_written(label) for label in labels if not is_special(label)]
    as_they_are = any(label[:1].isspace() for label in plain) or all(len(label) <= 1 for label in plain)
    text, before = "", ""
    spans: list[tuple[int, int]] = []
    for label in labels:
        goes_on = label.startswith(GOES_ON) and len(label) > len(GOES_ON) and bool(text)
        piece = label.removeprefix(GOES_ON) if goes_on else _written(label)
        special = is_special(label) or is_special(before)
        apart = special or not (as_they_are or goes_on or _close(before, piece))
        if apart and text and not text[-1].isspace() and not piece[:1].isspace():
            text += " "
        inside = piece.lstrip() or piece
        text += piece
        spans.append((len(text) - len(inside), len(text)))
        before = label
    return text, spans


def _written(label: str) -> str:
    return WRITTEN[label[0]] + label[1:] if label[:1] in WRITTEN else label


def _close(before: str, piece: str) -> bool:
    """Whether two words stand without a space between them."""
    around = before[-1:] + piece[:1]
    return piece[:1] in CLOSING or before[-1:] in OPENING or bool(SPACELESS.search(around))
