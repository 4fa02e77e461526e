"""Findings that several kinds of data share, and how rows of a scan become findings with examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from regard.check.reading import Row
from regard.check.report import Example, Finding, Severity, severity_of
from regard.check.scan import Grams, Scan, disagreeing, fetch, joined, repeated
from regard.check.texts import (
    CONTROL,
    DECOMPOSED,
    EMPTY,
    ENDLESS,
    HTML,
    MOJIBAKE,
    NO_SCRIPT,
    PATTERNS,
    REPLACED,
    SCRIPTS,
    WORDLESS,
    words_of,
)
from regard.data.lines import LONGEST_LINE

ONE_SCRIPT = 0.9  # share of a column's texts in one script, for another to be wrong there
BEFORE, EXCERPT = 12, 300  # characters of an example before what matters, and in all
NEAR = 0.5  # share of a text's runs of words that training has, for it to be nearly there


@dataclass(frozen=True)
class Draft:
    """A finding before its examples are read."""

    kind: str
    rows: np.ndarray
    what: str
    advice: str
    warning: float = 0.0  # from this share on a warning
    error: float = 2.0  # from this share on an error; 2: never
    total: int | None = None  # of how many; None: of all rows
    notes: Mapping[int, str] = field(default_factory=dict)  # of single rows
    severity: Severity | None = None  # None: by the shares
    ranked: bool = False  # whether the first rows are the ones to show
    pattern: re.Pattern[str] | None = None  # what to show of a long text

    def finding(self, scan: Scan) -> Finding:
        total = len(scan) if self.total is None else self.total
        severity = self.severity or severity_of(len(self.rows) / max(1, total), self.warning, self.error)
        return Finding(self.kind, severity, self.what, self.advice, len(self.rows), total, scan.name, (), self.rows)


def with_examples(drafts: Sequence[Draft], scan: Scan, most: int) -> list[Finding]:
    """The drafts that found something, each with its first rows as they stand in the file."""
    found = [(draft, draft.finding(scan)) for draft in drafts if len(draft.rows)]
    shown = {
        finding.kind: [int(row) for row in finding.rows[:most]] if draft.ranked else _spread(finding.rows, most)
        for draft, finding in found
    }
    rows = fetch(scan.rows, {row for each in shown.values() for row in each})
    return [replace(finding, examples=_examples(draft, shown[finding.kind], rows)) for draft, finding in found]


def _examples(draft: Draft, shown: Sequence[int], rows: Mapping[int, Row]) -> tuple[Example, ...]:
    return tuple(
        Example(
            rows[row].place, tuple(_excerpt(text, draft.pattern) for text in rows[row].texts), draft.notes.get(row, "")
        )
        for row in shown
        if row in rows
    )


def _excerpt(text: str, pattern: re.Pattern[str] | None) -> str:
    """A text that is not longer than a paragraph: from a little before what matters in it."""
    met = pattern.search(text) if pattern is not None else None
    start = max(0, met.start() - BEFORE) if met is not None else 0
    cut = text[start : start + EXCERPT]
    return ("…" if start else "") + cut + ("…" if start + len(cut) < len(text) else "")


def _spread(rows: np.ndarray, most: int) -> list[int]:
    """The first of all rows, then others from all over the file."""
    if len(rows) <= most:
        return [int(row) for row in rows]
    return [int(rows[place]) for place in np.linspace(0, len(rows) - 1, most).astype(int)] if most else []


# --- Any texts


def unreadable(scan: Scan) -> Draft:
    return Draft(
        "unreadable",
        np.array(scan.wrong, dtype=np.int64),
        "rows cannot be read",
        "mend or delete these lines: training refuses the file",
        notes=scan.reasons,
        severity="error",
    )


def broken_texts(scan: Scan, unit: str) -> list[Draft]:
    """Empty, endless and wordless texts, broken encodings, control characters, markup."""
    readable = scan.readable()
    empty = np.setdiff1d(scan.flagged(EMPTY), scan.wrong)
    flagged = {flag: scan.flagged(flag) for flag in (MOJIBAKE, REPLACED, CONTROL, HTML, WORDLESS, ENDLESS)}
    drafts = [
        Draft("empty", empty, f"{unit} have an empty side" if len(scan.columns) > 1 else f"{unit} are empty",
              "training leaves them out; fill or delete them", 0.0, 0.2),
        Draft("mojibake", flagged[MOJIBAKE], f"{unit} were decoded wrongly somewhere, as ü became Ã¼",
              "decode the original as UTF-8, or undo it: text.encode('cp1252').decode('utf-8')", 0.0, 0.01,
              pattern=PATTERNS[MOJIBAKE]),
        Draft("replaced", flagged[REPLACED], f"{unit} hold U+FFFD (�), where letters were lost",
              "decode the original again with its own encoding: what was lost cannot be guessed", 0.0, 0.01,
              pattern=PATTERNS[REPLACED]),
        Draft("control", flagged[CONTROL], f"{unit} hold control characters",
              "delete them; a tool that reads columns or lines may also have put them there", 0.0, 0.05,
              pattern=PATTERNS[CONTROL]),
        Draft("html", flagged[HTML], f"{unit} hold HTML, as <br> or &amp;",
              "strip tags and unescape entities (html.unescape), or the model learns to write them", 0.002, 2.0,
              pattern=PATTERNS[HTML]),
        Draft("wordless", flagged[WORDLESS], f"{unit} have a text without a letter or digit",
              "look whether these are rows at all", 0.01, 0.2),
        Draft("endless", flagged[ENDLESS], f"{unit} have a text over {LONGEST_LINE:,} characters",
              "a line end may be missing; training leaves such pairs out", 0.0, 0.05),
    ]  # fmt: skip
    return [draft for draft in drafts if len(draft.rows)] + [*_mixed(scan, unit, readable), wrong_scripts(scan, unit)]


def _mixed(scan: Scan, unit: str, readable: np.ndarray) -> list[Draft]:
    """Texts whose letters are decomposed (e + ´), where others have them composed (é)."""
    rows = scan.flagged(DECOMPOSED)
    what = f"{unit} are not in Unicode's normal form C, as others are, so that é is written in two ways"
    advice = "normalise all: unicodedata.normalize('NFC', text)"
    return [Draft("unnormalised", rows, what, advice)] if 0 < len(rows) < int(readable.sum()) else []


def wrong_scripts(scan: Scan, unit: str) -> Draft:
    """Texts in another script than nearly all of their column."""
    rows, notes = np.zeros(len(scan), dtype=bool), {}
    for column in scan.columns:
        scripts = np.asarray(column.scripts)
        counts = np.bincount(scripts, minlength=NO_SCRIPT + 1)[:NO_SCRIPT]
        usual = int(counts.argmax())
        if counts.sum() < 10 or counts[usual] < ONE_SCRIPT * counts.sum():
            continue
        wrong = (scripts != usual) & (scripts != NO_SCRIPT)
        for row in np.flatnonzero(wrong)[:1000]:
            notes[int(row)] = f"{column.name} in {SCRIPTS[scripts[row]][0]} script, as a rule {SCRIPTS[usual][0]}"
        rows |= wrong
    what = f"{unit} are in another script than the rest of their column"
    advice = "look whether columns were mixed up, or another language came in"
    return Draft("script", np.flatnonzero(rows), what, advice, 0.0, 0.05, notes=notes)


def duplicates(scan: Scan, unit: str, least_words: int = 0) -> Draft:
    """Rows that came before, all parts and the label alike."""
    among = scan.readable()
    for column in scan.columns:
        among &= (np.asarray(column.flags) & EMPTY) == 0
        among &= np.asarray(column.words) >= least_words
    keys = joined(*(column.exact for column in scan.columns), *([scan.labels] if len(scan.labels) else []))
    what = f"{unit} came before, word for word"
    advice = "keep one of each: repeated ones weigh more, and may end up on both sides of a split"
    return Draft("duplicates", repeated(keys, among), what, advice, 0.01, 0.5)


def conflicts(scan: Scan, keys: Sequence[int], values: Sequence[int], kind: str, what: str, advice: str,
              warning: float, error: float) -> Draft:  # fmt: skip
    """Rows whose key comes with different values."""
    among = scan.readable() & ~np.isin(np.arange(len(scan)), scan.flagged(EMPTY))
    rows = disagreeing(np.asarray(keys, dtype=np.uint64), np.asarray(values, dtype=np.uint64), among)
    return Draft(kind, rows, what, advice, warning, error)


# --- Leakage


def leakage(train: Scan, other: Scan, unit: str, grams: Grams, least_words: int = 0) -> list[Draft]:
    """Rows of a held-out set that training has: word for word, but for case and punctuation, or in long runs of words.

    The first part decides (the source of a pair), as a model that saw it in training knows what is asked.
    """
    ours, theirs = train.columns[0], other.columns[0]
    long = (np.asarray(theirs.words) >= least_words) & ((np.asarray(theirs.flags) & EMPTY) == 0)
    exact = long & np.isin(np.asarray(theirs.exact), np.asarray(ours.exact))
    alike = long & np.isin(np.asarray(theirs.alike), np.asarray(ours.alike)) & ~exact
    near = np.zeros(len(other), dtype=bool)
    for number, row in enumerate(other.rows):
        near[number] = not (exact[number] or alike[number]) and grams.share(words_of(row.texts[0])) >= NEAR
    part = f" (by their {ours.name})" if len(train.columns) > 1 else ""
    advice = f"take them out of training, or scores on {other.name} flatter"
    return [
        Draft("leak", np.flatnonzero(exact), f"{unit} of {other.name} are also in training{part}", advice, 0.002, 0.1),
        Draft("leak-alike", np.flatnonzero(alike),
              f"{unit} of {other.name} are in training but for case and punctuation{part}", advice, 0.002, 0.1),
        Draft("leak-near", np.flatnonzero(near),
              f"{unit} of {other.name} are nearly in training, with half of their runs of eight words{part}",
              advice, 0.01, 0.2),
    ]  # fmt: skip
