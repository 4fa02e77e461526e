"""The built-in parallel corpus: dates as people write them in eighteen languages, and the same dates in ISO 8601.

    mardi 3 mars 1998   ->  1998-03-03
    March 3rd, 1998     ->  1998-03-03
    1998年3月3日         ->  1998-03-03

Each pair knows which characters of the source gave which characters of the target, so that an attention map can be held
against the truth. The names and most of the patterns are CLDR's, by way of Babel; another version of Babel may bring
other names. Days are divided among train, valid and test, so a model is tested on days it has never seen.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import chain
from typing import TypeVar

from regard.data.builtin.date_forms import FIRST_YEAR, LAST_YEAR, LOCALES, Form, forms_of
from regard.errors import UsageError, nearest

LANGUAGES: tuple[str, ...] = tuple(LOCALES)
SPLITS = ("train", "valid", "test")

Item = TypeVar("Item")

_TRIES = 100  # draws before a repeated source is let through: only a sample near all there is comes to that
_TARGET_PLACES = {"year": (0, 1, 2, 3), "month": (5, 6), "day": (8, 9)}  # in 1998-03-03


@dataclass(frozen=True)
class DatePair:
    """A date as somebody wrote it and in ISO 8601, with the characters of the one that gave those of the other."""

    source: str  # "mardi 3 mars 1998"
    target: str  # "1998-03-03"
    language: str  # "fr"
    alignment: tuple[tuple[int, int], ...]  # (source character, target character), sorted


def date_pairs(split: str, count: int, seed: int = 1, languages: Sequence[str] = LANGUAGES) -> list[DatePair]:
    """`count` pairs of one split, the same ones for the same arguments; a larger count goes on where a smaller ended.

    Languages are equally likely, and so are the patterns of a language; over half of the pairs are as the pattern
    stands, the others have a touch (capitals, no commas...). Sources are distinct until nearly all have been drawn.
    """
    days = _days(split)
    _check(languages)
    if count < 0:
        raise UsageError(f"cannot make {count} pairs", "ask for 0 or more")
    draw = random.Random(f"regard dates {split} {seed}")
    pairs: list[DatePair] = []
    seen: set[str] = set()
    for _ in range(count):
        for _ in range(_TRIES):
            pair = write(_pick(days, draw), _pick_form(_pick(languages, draw), draw))
            if pair.source not in seen:
                break
        seen.add(pair.source)
        pairs.append(pair)
    return pairs


def forms(day: date, language: str) -> list[DatePair]:
    """Every way of writing one day in one language, each source once."""
    _check([language])
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise UsageError(f"{day} is outside the corpus", f"take a day from {FIRST_YEAR} to {LAST_YEAR}")
    pairs: dict[str, DatePair] = {}
    for form in chain.from_iterable(forms_of(language)):
        pair = write(day, form)
        pairs.setdefault(pair.source, pair)
    return list(pairs.values())


def as_pairs(pairs: Iterable[DatePair]) -> list[tuple[str, str]]:
    """(source, target) alone, as any other parallel corpus."""
    return [(pair.source, pair.target) for pair in pairs]


def split_of(day: date) -> str:
    """The split a day belongs to, for ever: about 90% train, 5% valid, 5% test, by a digest of the day's number."""
    digest = hashlib.blake2b(day.toordinal().to_bytes(4, "big"), digest_size=8, key=b"regard dates").digest()
    share = int.from_bytes(digest, "big") % 100
    return "train" if share < 90 else "valid" if share < 95 else "test"


def write(day: date, form: Form) -> DatePair:
    """One day written in one form."""
    values = {
        "year": day.year - FIRST_YEAR,
        "month": day.month - 1,
        "day": day.day - 1,
        "weekday": day.weekday(),
        "": 0,
    }
    source = ""
    alignment: list[tuple[int, int]] = []
    for slot in form.slots:
        text = slot.texts[values[slot.field]]
        if slot.field in _TARGET_PLACES:
            alignment += _links(text, len(source), slot.field)
        source += text
    return DatePair(source, day.isoformat(), form.language, tuple(alignment))


def _links(text: str, start: int, field: str) -> list[tuple[int, int]]:
    """Links from the characters of a field, which begins at `start` of the source, to its digits in the target.

    As many digits as the target has ("1998", "03", "12th") go one to one. A lone digit gives its own zero as well, and
    every character of a name gives both digits of the month.
    """
    targets = _TARGET_PLACES[field]
    if field == "year":  # 一九九八 are no decimal digits for Python, but a year is always four of them
        return [(start + place, target) for place, target in enumerate(targets)]
    digits = [start + place for place, character in enumerate(text) if character.isdecimal()]
    if len(digits) == len(targets):
        return list(zip(digits, targets, strict=True))
    return [(place, target) for place in digits or range(start, start + len(text)) for target in targets]


def _check(languages: Sequence[str]) -> None:
    if not languages:
        raise UsageError("no language was asked for", f"there is {', '.join(sorted(LANGUAGES))}")
    for language in languages:
        if language not in LANGUAGES:
            raise UsageError(f"there are no dates in {language!r}", nearest(language, LANGUAGES))


@cache
def _days(split: str) -> tuple[date, ...]:
    """All the days of a split."""
    if split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", nearest(split, SPLITS))
    first, last = date(FIRST_YEAR, 1, 1).toordinal(), date(LAST_YEAR, 12, 31).toordinal()
    days = map(date.fromordinal, range(first, last + 1))
    return tuple(day for day in days if split_of(day) == split)


def _pick(items: Sequence[Item], draw: random.Random) -> Item:
    """One of the items. Python promises the same `random()` in every version, but not the same `choice()`."""
    return items[int(draw.random() * len(items))]


def _pick_form(language: str, draw: random.Random) -> Form:
    plain, *touched = _pick(forms_of(language), draw)
    return _pick(touched, draw) if touched and draw.random() < 0.5 else plain
