"""Pictures in letters: each pixel is one of a few grey levels, written as one digit, row by row, and one token.

    <7>000000fffff00...

Before the pixels stands a label, which is one token, too: of what the picture shows; <> where nobody says. A level l of n
stands for the grey 255 l / (n - 1), and is written as a digit of base sixteen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from regard.tokens.samples import labels_in

DIGITS = "0123456789abcdef"
MOST = len(DIGITS)  # levels
NO_LABEL = "<>"
_LABEL = re.compile(r"<([^<>]*)>")
_CODES = np.frombuffer(DIGITS.encode(), dtype=np.uint8)
_LEVEL_OF = np.full(256, -1, dtype=np.int64)
_LEVEL_OF[_CODES] = np.arange(MOST)


def write_digits(levels: np.ndarray, label: str = "") -> str:
    """A picture's levels, in the order of reading, as a text: its label, and a digit for each pixel."""
    return f"<{re.sub('[<>]', '', label)}>" + _CODES[levels.reshape(-1)].tobytes().decode()


def read_digits(text: str) -> tuple[np.ndarray, str]:
    """The levels (N,) that a text tells, and the label before them; letters that are no pixels are passed over."""
    found = _LABEL.match(text)
    levels = _LEVEL_OF[np.frombuffer(_LABEL.sub("", text).encode(), dtype=np.uint8)]
    return levels[levels >= 0], "" if found is None else found[1]


def with_label(text: str) -> str:
    """A text behind its label, be it none."""
    return text if text.startswith("<") else NO_LABEL + text


def words_of_pixels(levels: int, texts: Iterable[str]) -> list[str]:
    """The tokens of pictures, in the order of their ids behind the special ones: levels, no label, the labels of texts."""
    return [*DIGITS[:levels], NO_LABEL, *(label for label in labels_in(texts) if label != NO_LABEL)]


def greys_of(levels: np.ndarray, count: int) -> np.ndarray:
    """The grey that each level of `count` stands for: 0 to 255, uint8."""
    return np.rint(np.asarray(levels) * (255 / (count - 1))).astype(np.uint8)
