"""Arabic letters joined to their neighbours: each in one of four forms, by what stands beside it (Unicode 15, 9.2).

Whole texts are joined by browsers and by matplotlib from 3.11 on. Here it is done for older ones, and for words that are
drawn in pieces, which would else fall apart into letters that stand alone. The forms are those that Unicode lists for
old software (Arabic Presentation Forms A and B); its data say which letter each stands for, so there is no table here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

FORMS = (range(0xFB50, 0xFE00), range(0xFE70, 0xFF00))
JOINERS = ("\u0640", "\u200d")  # the stroke that lengthens a word, and the joiner that takes no room, join both ways
LAM, ALEFS = "\u0644", "\u0622\u0623\u0625\u0627"  # lam and any alef are written as one
NAMES = {(False, False): "", (False, True): "initial", (True, True): "medial", (True, False): "final"}  # before, after


def joined(text: str, owners: Sequence[int] = ()) -> list[str]:
    """For each character what to draw: its form, itself, or nothing, for an alef that is drawn with the lam before it.

    Characters with different owners are drawn apart, so that each has its own ground.
    """
    letters = [at for at, each in enumerate(text) if not unicodedata.category(each).startswith("M")]
    found = list(text)
    for before, at, after in zip([None, *letters], letters, [*letters[1:], None], strict=False):
        linked = _goes_on(text, before) and _takes(text, at), _goes_on(text, at) and _takes(text, after)
        found[at] = _forms().get((text[at], NAMES[linked]), text[at])
    for at in range(len(text) - 1):
        if text[at] == LAM and text[at + 1] in ALEFS and (not owners or owners[at] == owners[at + 1]):
            after_another = found[at] == _forms()[LAM, "medial"]
            found[at : at + 2] = [_forms()[text[at : at + 2], "final" if after_another else "isolated"], ""]
    return found


def _takes(text: str, at: int | None) -> bool:
    """Whether a letter joins the one before it."""
    return at is not None and (text[at] in JOINERS or (text[at], "final") in _forms())


def _goes_on(text: str, at: int | None) -> bool:
    """Whether a letter joins the one after it."""
    return at is not None and (text[at] in JOINERS or (text[at], "initial") in _forms())


@cache
def _forms() -> dict[tuple[str, str], str]:
    """From letters and the name of a form to the character of that form."""
    found: dict[tuple[str, str], str] = {}
    for code in (code for block in FORMS for code in block):
        name, *letters = unicodedata.decomposition(chr(code)).split() or [""]
        text = "".join(chr(int(letter, 16)) for letter in letters)
        if name.startswith("<") and " " not in text:
            found.setdefault((text, name.strip("<>")), chr(code))
    return found
