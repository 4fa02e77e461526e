"""Text that runs from right to left: in which order (Unicode Standard Annex 9), and Arabic letters joined.

Browsers, and matplotlib from 3.11 on, do this for a whole text. Here it is done for matplotlib before that, and for
lines that are drawn in stretches, a colour behind each: they must stand in the order in which they are read.
The rules of the annex are named where they are kept. Explicit formatting is left out: figures show those characters.

Which way a figure runs: running text runs as its readers do. The columns of a heat map always run from left to right,
as time does, so that the triangle of a causal mask and the diagonal of a plain alignment mean the same in every
language; each label reads in its own direction. Lines between two sentences stand in columns, which have no direction.

Whole texts are joined by browsers and by matplotlib from 3.11 on. Here it is done for older ones, and for words that are
drawn in pieces, which would else fall apart into letters that stand alone. The forms are those that Unicode lists for
old software (Arabic Presentation Forms A and B); its data say which letter each stands for, so there is no table here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise

RIGHT = ("R", "AL")
PAIRS = {"(": ")", "[": "]", "{": "}"}
MIRRORED = dict(zip("()[]{}<>«»‹›≤≥", ")(][}{><»«›‹≥≤", strict=True))
NEUTRAL = ("B", "S", "WS", "ON", "BN")
MARK = "\u200e"  # left-to-right mark: says so and takes no room


def has_right_to_left(text: str) -> bool:
    return any(unicodedata.bidirectional(character) in (*RIGHT, "AN") for character in text)


def marked(label: str) -> str:
    """The label so that it does not turn the rest of its line around, in a terminal that orders text."""
    return f"{MARK}{label}{MARK}" if has_right_to_left(label) else label


def visual(text: str, right: bool, cuts: Sequence[int] = ()) -> list[tuple[int, int, bool]]:
    """The runs of a line from left to right: where each starts and ends, and whether it runs from right to left (L2).

    `right` is the direction of the paragraph. A run also ends before each place in `cuts`.
    """
    found = levels(text, right)
    if not found:
        return []
    cut = set(cuts)
    starts = [0, *(at for at in range(1, len(text)) if found[at] != found[at - 1] or at in cut), len(text)]
    runs = [(start, end, found[start]) for start, end in pairwise(starts)]
    for level in range(max(found), 0, -1):
        ordered: list[tuple[int, int, int]] = []
        for high, group in groupby(runs, key=lambda run: run[2] >= level):
            together = list(group)
            ordered += reversed(together) if high else together
        runs = ordered
    return [(start, end, level % 2 == 1) for start, end, level in runs]


def turned(letters: Sequence[str]) -> str:
    """A run from right to left as it stands from left to right: accents stay with their letter, brackets turn (L3, L4)."""
    groups: list[list[str]] = []
    for letter in letters:
        if groups and letter and unicodedata.category(letter[0]).startswith("M"):
            groups[-1].append(letter)
        else:
            groups.append([MIRRORED.get(letter, letter)])
    return "".join(letter for group in reversed(groups) for letter in group)


def levels(text: str, right: bool) -> list[int]:
    """The embedding level of each character of a line; those that are odd run from right to left."""
    base = "R" if right else "L"
    kinds = _weak([unicodedata.bidirectional(character) or "L" for character in text], base)
    _brackets(text, kinds, base)
    _neutral(kinds, base)
    rise = {"L": 1, "R": 0, "EN": 1, "AN": 1} if right else {"L": 0, "R": 1, "EN": 2, "AN": 2}  # I1, I2
    found = [int(right) + rise[kind] for kind in kinds]
    inside = len(text.rstrip())
    return found[:inside] + [int(right)] * (len(text) - inside)  # L1


def _weak(kinds: list[str], base: str) -> list[str]:
    """Marks, numbers and what stands around numbers (W1 to W7)."""
    strong = before = base
    for at, kind in enumerate(kinds):
        if kind in ("NSM", "BN"):  # W1
            kinds[at] = before
        elif kind == "EN" and strong == "AL":  # W2
            kinds[at] = "AN"
        strong = kind if kind in ("L", *RIGHT) else strong
        before = kinds[at]
    kinds = ["R" if kind == "AL" else kind for kind in kinds]  # W3
    for at in range(1, len(kinds) - 1):  # W4
        around = kinds[at - 1] if kinds[at - 1] == kinds[at + 1] else ""
        if (kinds[at], around) in (("ES", "EN"), ("CS", "EN"), ("CS", "AN")):
            kinds[at] = around
    for start, end, kind in _runs(kinds):  # W5
        if kind == "ET" and "EN" in (*kinds[max(0, start - 1) : start], *kinds[end : end + 1]):
            kinds[start:end] = ["EN"] * (end - start)
    strong = base
    for at, kind in enumerate(kinds):
        strong = kind if kind in "LR" else strong
        if kind in ("ES", "ET", "CS"):  # W6
            kinds[at] = "ON"
        elif kind == "EN" and strong == "L":  # W7
            kinds[at] = "L"
    return kinds


def _brackets(text: str, kinds: list[str], base: str) -> None:
    """A pair of brackets has one direction (N0)."""
    for start, end in _pairs(text, kinds):
        inside = {_side(kind) for kind in kinds[start + 1 : end]} - {""}
        ahead = next((side for kind in reversed(kinds[:start]) if (side := _side(kind))), base)
        if inside:
            kinds[start] = kinds[end] = base if base in inside else ahead if ahead in inside else base


def _pairs(text: str, kinds: list[str]) -> list[tuple[int, int]]:
    found, opened = [], list[int]()
    for at, character in enumerate(text):
        if character in PAIRS and kinds[at] == "ON":
            opened.append(at)
        elif kinds[at] == "ON" and (match := [place for place in opened if PAIRS[text[place]] == character]):
            found.append((match[-1], at))
            opened = opened[: opened.index(match[-1])]
    return sorted(found)


def _neutral(kinds: list[str], base: str) -> None:
    """Give characters without a direction that of both their neighbours, else that of the paragraph (N1, N2)."""
    plain = ["ON" if kind in NEUTRAL else kind for kind in kinds]
    for start, end, kind in _runs(plain):
        if kind == "ON":
            before = _side(plain[start - 1]) if start else base
            after = _side(plain[end]) if end < len(plain) else base
            kinds[start:end] = [before if before == after else base] * (end - start)


def _side(kind: str) -> str:
    return {"L": "L", "R": "R", "EN": "R", "AN": "R"}.get(kind, "")


def _runs(kinds: list[str]) -> Iterator[tuple[int, int, str]]:
    start = 0
    for kind, group in groupby(list(kinds)):
        size = sum(1 for _ in group)
        yield start, start + size, kind
        start += size


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
