"""One pass over the rows of a set: lengths, hashes, flags and words of each text, in arrays of a few bytes a row.

Texts are not kept: equal ones are told by their hashes (64 bits: among a million texts two different ones meet with
a probability of 3 in 100 million). Whoever wants to see a text again reads the rows once more.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.check.reading import Row, Rows
from regard.check.report import Coverage, PartSize, SetSize
from regard.check.texts import flags_of, script_of, words_of
from regard.data.held_out import hash_of
from regard.data.lines import LONGEST_LINE
from regard.errors import RegardError

SAMPLE = 20_000  # rows whose texts are kept, for models of languages and translation to learn from
MOST_TYPES = 3_000_000  # different words that are counted; more would fill the memory
GRAM = 8  # words in a row that two texts share only if one was taken from the other
WRONG_SHOWN = 50  # rows that cannot be read whose reasons are kept
OnProgress = Callable[[int, int], None]


@dataclass(eq=False)
class Column:
    """Figures of all texts of a part, a number for each row."""

    name: str
    exact: array = field(default_factory=lambda: array("Q"))  # hash of the text
    alike: array = field(default_factory=lambda: array("Q"))  # hash of its words, without case and punctuation
    characters: array = field(default_factory=lambda: array("L"))
    words: array = field(default_factory=lambda: array("L"))
    flags: array = field(default_factory=lambda: array("H"))
    scripts: array = field(default_factory=lambda: array("B"))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> list[str]:
        """Note a text; returns its words."""
        text = text.strip()
        words = words_of(text)
        self.exact.append(hash_of(text) if not _lone(text) else hash_of(repr(text)))
        self.alike.append(hash_of(" ".join(words)) if words else self.exact[-1])
        self.characters.append(len(text))
        self.words.append(len(words))
        self.flags.append(flags_of(text, len(words), LONGEST_LINE))
        self.scripts.append(script_of(text))
        if len(self.counts) < MOST_TYPES:
            self.counts.update(words)
        return words

    def size(self) -> PartSize:
        """How much text it is."""
        lengths = np.asarray(self.words)
        once = sum(count == 1 for count in self.counts.values())
        return PartSize(
            self.name,
            int(lengths.sum()),
            int(np.asarray(self.characters).sum()),
            len(self.counts),
            once / len(self.counts) if self.counts else 0.0,
            float(np.median(lengths)) if len(lengths) else 0.0,
            float(np.percentile(lengths, 95)) if len(lengths) else 0.0,
            int(lengths.max(initial=0)),
        )


@dataclass(eq=False)
class Scan:
    """All that one pass over the rows of a set tells."""

    name: str  # "train"
    rows: Rows
    columns: tuple[Column, ...]
    lines: array = field(default_factory=lambda: array("L"))
    wrong: list[int] = field(default_factory=list)  # rows that cannot be read
    reasons: dict[int, str] = field(default_factory=dict)  # why, of the first of them
    sample: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)  # rows and their texts
    values: Counter[str] = field(default_factory=Counter)  # of the last part, where it is a label
    labels: array = field(default_factory=lambda: array("L"))  # the number of each row's label

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def size(self) -> SetSize:
        return SetSize(self.name, self.rows.files, len(self), tuple(column.size() for column in self.columns))

    def flagged(self, flag: int) -> np.ndarray:
        """The rows of which any part has a flag."""
        found = np.zeros(len(self), dtype=bool)
        for column in self.columns:
            found |= (np.asarray(column.flags) & flag) > 0
        return np.flatnonzero(found)

    def readable(self) -> np.ndarray:
        """Whether each row can be read."""
        found = np.ones(len(self), dtype=bool)
        found[self.wrong] = False
        return found


def scan(
    rows: Rows,
    name: str = "train",
    *,
    label: str | None = None,
    grams: Grams | None = None,
    keep: bool = False,
    progress: OnProgress | None = None,
) -> Scan:
    """Read all rows once. A part called `label` is no text: its values are counted. `keep` keeps a sample of the texts."""
    texts = [place for place, part in enumerate(rows.parts) if part != label]
    found = Scan(name, rows, tuple(Column(rows.parts[place]) for place in texts))
    numbers: dict[str, int] = {}
    draw = random.Random(1)
    for number, row in enumerate(rows):
        found.lines.append(row.line)
        if row.wrong:
            found.wrong.append(number)
            if len(found.reasons) < WRONG_SHOWN:
                found.reasons[number] = row.wrong
        words: list[str] = []
        for column, place in zip(found.columns, texts, strict=True):
            added = column.add(row.texts[place] if place < len(row.texts) else "")
            words = words or added
        if label is not None:
            value = row.texts[rows.parts.index(label)]
            found.labels.append(numbers.setdefault(value, len(numbers)))
            if not row.wrong:
                found.values[value] += 1
        if grams is not None:
            grams.meet(words)
        if keep and not row.wrong:
            _sample(found.sample, number, row.texts, draw)
        if progress is not None and number % 1000 == 0:
            progress(number, 0)
    _check_readable(found)
    return found


def _sample(kept: list[tuple[int, tuple[str, ...]]], number: int, texts: tuple[str, ...], draw: random.Random) -> None:
    """Keep a row of a seeded sample (Vitter 1985, algorithm R)."""
    if max(map(len, texts)) > LONGEST_LINE:
        return
    if len(kept) < SAMPLE:
        kept.append((number, texts))
    elif (place := draw.randrange(number + 1)) < SAMPLE:
        kept[place] = (number, texts)


def _check_readable(found: Scan) -> None:
    """Most rows must be readable: otherwise the file is another one than it seems, and its first trouble says it all."""
    files = ", ".join(found.rows.files)
    if not len(found):
        raise RegardError(f"there are no rows in {files}", "it should hold one example a line")
    if 2 * len(found.wrong) > len(found):
        first = found.wrong[0]
        raise RegardError(
            f"{files}: {len(found.wrong):,} of {len(found):,} rows cannot be read; "
            f"line {found.lines[first]}: {found.reasons[first]}",
            "look whether it is UTF-8 text of the form that its name says",
        )


def _lone(text: str) -> bool:
    """Whether a text holds a lone surrogate, which no encoding can write."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


# --- Equal rows


def repeated(keys: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """The rows whose key an earlier row has; only those of `among` count."""
    places = np.arange(len(keys)) if among is None else np.flatnonzero(among)
    order = places[np.argsort(keys[places], kind="stable")]
    same = keys[order][1:] == keys[order][:-1]
    return np.sort(order[1:][same])


def disagreeing(keys: np.ndarray, values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The rows whose key also comes with another value."""
    places = np.flatnonzero(among)
    _, group = np.unique(keys[places], return_inverse=True)
    kinds = np.unique(np.stack([group.astype(np.uint64), values[places].astype(np.uint64)]), axis=1)
    several = np.bincount(kinds[0].astype(np.int64), minlength=group.max(initial=0) + 1) > 1
    return places[several[group]] if len(places) else places


def joined(*hashes: Sequence[int]) -> np.ndarray:
    """One hash of several, for each row: the order of the parts matters."""
    whole = np.zeros(len(hashes[0]), dtype=np.uint64)
    for each in hashes:
        whole = whole * np.uint64(0x9E3779B97F4A7C15) + np.asarray(each, dtype=np.uint64)
        whole ^= whole >> np.uint64(29)
    return whole


# --- Held-out texts that training has


class Grams:
    """Runs of eight words of held-out texts, of which training shows how many it has: memory grows with these alone."""

    def __init__(self) -> None:
        self.seen: dict[int, bool] = {}

    def expect(self, words: Sequence[str]) -> None:
        for gram in _grams(words):
            self.seen.setdefault(gram, False)

    def meet(self, words: Sequence[str]) -> None:
        if self.seen and len(words) >= GRAM:
            for gram in _grams(words):
                if gram in self.seen:
                    self.seen[gram] = True

    def share(self, words: Sequence[str]) -> float:
        """The share of a text's runs that training has; 0 of a text that is shorter than one."""
        found = [self.seen.get(gram, False) for gram in _grams(words)]
        return sum(found) / len(found) if found else 0.0


def _grams(words: Sequence[str]) -> Iterator[int]:
    return (hash(tuple(words[start : start + GRAM])) for start in range(len(words) - GRAM + 1))


def expect_grams(rows: Iterable[Row], grams: Grams) -> None:
    for row in rows:
        grams.expect(words_of(row.texts[0]))


def coverage(train: Scan, other: Scan) -> list[Coverage]:
    """How many words of a held-out set training has, by part."""
    found = []
    for ours, theirs in zip(train.columns, other.columns, strict=False):
        known = [word in ours.counts for word in theirs.counts]
        running = sum(count for count, here in zip(theirs.counts.values(), known, strict=True) if here)
        total = theirs.counts.total()
        if total:
            found.append(Coverage(other.name, theirs.name, running / total, sum(known) / len(known)))
    return found


# --- Examples


def fetch(rows: Rows, wanted: Collection[int]) -> dict[int, Row]:
    """The rows of these numbers, by one more pass that ends with the last of them."""
    left, found = set(wanted), dict[int, Row]()
    for number, row in enumerate(rows) if left else ():
        if number in left:
            found[number] = row
            left.remove(number)
            if not left:
                break
    return found
