"""Labels of tokens as a reader sees them, and running text: what to show of each character, and where a line may end."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from regard.tokens.words import GOES_ON, is_special

SHOWN = {" ": "␣", "\u00a0": "␣", "\u3000": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}
SENTENCE = re.compile(
    r"\S+( \S+){2,}|\S+ \S+[.!?]"
)  # three words or more, one space between two; or two and a full stop
JOINERS = {"\u200c", "\u200d"}  # without them words in Persian or Hindi, and many emoji, fall apart


def visible(label: str) -> str:
    """The label with its invisible characters made visible; a space between words of a sentence is one.

    Control codes never reach the terminal or the page.
    """
    if not label:
        return "∅"
    if SENTENCE.fullmatch(label):
        return " ".join(map(visible, label.split(" ")))
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


HAN_AND_KANA = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
CLOSING = "、。，．！？：；）」』】》〉…ー"  # may not begin a line
MARKS = "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"  # belong to the character before
# What stays together in a line: white space, one character of a script without spaces, any other word.
UNIT = re.compile(f"\\s+|[{HAN_AND_KANA}][{MARKS}{CLOSING}]*|[^\\s{HAN_AND_KANA}]+")
SPACELESS = re.compile(f"[{HAN_AND_KANA}]")


def readable(character: str) -> str:
    """A character of running text: a space is a space, a new line is kept, and control codes are shown, not obeyed."""
    if character == "\n" or character.isprintable() or character in JOINERS:
        return character
    return " " if character.isspace() else visible(character)


def shown_text(
    text: str, spans: Sequence[tuple[int, int]], show: Callable[[str], str] = readable
) -> tuple[str, list[int]]:
    """The text with each character as it is shown, and the number of the span in which each lies, -1 for none."""
    owners = [-1] * len(text)
    for number, (start, end) in enumerate(spans):
        owners[start:end] = [number] * (end - start)
    shown = [show(character) for character in text]
    return "".join(shown), [owner for each, owner in zip(shown, owners, strict=True) for _ in each]


def stretches(text: str, owners: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The text cut wherever its owner changes."""
    place = 0
    for owner, group in groupby(owners):
        size = sum(1 for _ in group)
        yield text[place : place + size], owner
        place += size


Measure = Callable[[int, int], float]  # the width of what stands from one place to another


def wrap(text: str, width: float, measure: Measure) -> list[tuple[int, int]]:
    """Places where each line starts and ends, so that none is wider than `width`, but for a single character that is.

    Lines end between words, or between the characters of a word that no line can hold. Spaces around a line belong to
    none. Of several empty lines in a row one is left.
    """
    lines: list[tuple[int, int]] = []
    start = 0
    for paragraph in text.split("\n"):
        end = start + len(paragraph)
        if paragraph.strip():
            lines += _fill(text, end - len(paragraph.lstrip()), end, width, measure)
        elif lines and lines[-1][0] < lines[-1][1]:
            lines.append((start, start))
        start = end + 1
    return lines[:-1] if lines and lines[-1][0] == lines[-1][1] else lines


def _fill(text: str, start: int, end: int, width: float, measure: Measure) -> Iterator[tuple[int, int]]:
    """The lines of a paragraph that starts with a word."""
    first = last = start  # of the line so far
    used = 0.0
    for place, stop in _units(text, start, end, width, measure):
        size = measure(place, stop)
        if text[place:stop].isspace():
            used += size
            continue
        if used + size > width * (1 + 1e-9) and last > first:
            yield first, last
            first, used = place, 0.0
        last = stop
        used += size
    yield first, last


def _units(text: str, start: int, end: int, width: float, measure: Measure) -> Iterator[tuple[int, int]]:
    """Split a text into parts that stay on one line; a word that no line can hold falls apart into characters."""
    for match in UNIT.finditer(text, start, end):
        unit, place = match.group(), match.start()
        whole = unit.isspace() or measure(*match.span()) <= width
        for part in [unit] if whole else characters(unit):
            yield place, place + len(part)
            place += len(part)


def characters(text: str) -> list[str]:
    """Split a text into what a reader takes for one character: accents stay with their letter, joined emoji stay together."""
    found: list[str] = []
    for character in text:
        joins = unicodedata.category(character).startswith("M") or character in JOINERS
        if found and (joins or found[-1][-1] == "\u200d"):
            found[-1] += character
        else:
            found.append(character)
    return found


def one_word(text: str, end: int, start: int) -> bool:
    """Whether a piece that ends at `end` and the next one, from `start`, are parts of one word."""
    around = text[end - 1 : start + 1]
    return not any(each.isspace() for each in around) and not SPACELESS.search(around)


def right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction runs from right to left, as in Hebrew and Arabic."""
    directions = (unicodedata.bidirectional(character) for character in text)
    return next((each in ("R", "AL") for each in directions if each in ("L", "R", "AL")), False)


WRITTEN = {"Ġ": " ", "▁": " ", "Ċ": "\n"}  # what tokenizers write for a space and for a new line
NO_SPACE_BEFORE = ".,;:!?)]}%»”’…،؛؟"
NO_SPACE_BEHIND = "([{«“‘¿¡"


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
    return piece[:1] in NO_SPACE_BEFORE or before[-1:] in NO_SPACE_BEHIND or bool(SPACELESS.search(around))
