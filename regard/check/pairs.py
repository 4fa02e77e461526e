"""The check of pairs: duplicates, copies, swapped sides, lines that slipped, sides that do not belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from regard.check.aligning import LEAST_PAIRS, OFFSETS, Belonging, Scale, stretches
from regard.check.findings import (
    Draft,
    broken_texts,
    conflicts,
    duplicates,
    leakage,
    unreadable,
    with_examples,
    wrong_scripts,
)
from regard.check.languages import TOLD, Looks, TwoLanguages, fold_of, one_language, swapped
from regard.check.reading import Rows
from regard.check.report import Report, in_order
from regard.check.scan import Grams, OnProgress, Scan, coverage, expect_grams, joined, scan
from regard.check.texts import NO_SCRIPT, words_of

UNIT = "pairs"
LONG = 200  # words of a side from which on it is long: training drops sides of over 256 tokens
ODD = 7.0  # robust standard deviations of the ratio of lengths
TWICE = 0.7  # and its logarithm must be off by so much: about twice as long
SCORED = 50_000  # pairs that Model 1 scores at most, in blocks from all over the file
BLOCK = 1000
FIRST = 1500  # rows that tell whether all of a file has slipped
CHUNK = 5000  # rows whose letters are looked at together
COPIED_WORDS = 3  # shorter ones are names and numbers, which are the same in both languages


def check_pairs(
    train: Rows,
    held_out: dict[str, Rows] | None = None,
    *,
    examples: int = 3,
    progress: OnProgress | None = None,
) -> Report:
    """Check pairs to learn from, and whether validation and test are apart from them."""
    held_out, grams = held_out or {}, Grams()
    for rows in held_out.values():
        expect_grams(rows, grams)
    found = scan(train, grams=grams, keep=True, progress=progress)
    others = [scan(rows, name) for name, rows in held_out.items()]
    notes = list(train.notes)
    drafts = [
        unreadable(found),
        *broken_texts(found, UNIT),
        duplicates(found, UNIT),
        *_several(found),
        _copied(found),
        _odd_lengths(found),
        _long(found),
    ]
    judged = _Judged(found)
    drafts += judged.languages(notes, progress)
    drafts += judged.alignment(notes, progress)
    findings = with_examples(drafts, found, examples)
    for other in others:
        held = [unreadable(other), *broken_texts(other, UNIT), *leakage(found, other, UNIT, grams)]
        findings += with_examples(held, other, examples)
    sizes = tuple(each.size() for each in (found, *others))
    covered = tuple(each for other in others for each in coverage(found, other))
    return Report("translate", UNIT, sizes, in_order(findings), covered, {}, tuple(notes))


# --- Told by hashes and lengths


def _several(found: Scan) -> list[Draft]:
    source, target = found.columns
    return [
        conflicts(found, source.exact, target.exact, "several-targets",
                  f"pairs share their {source.name} with a pair of another {target.name}",
                  "no harm if all are right; if one is meant, keep the best", 0.3, 2.0),
        conflicts(found, target.exact, source.exact, "several-sources",
                  f"pairs share their {target.name} with a pair of another {source.name}",
                  "no harm if all are right; many of one text point at a placeholder", 0.3, 2.0),
    ]  # fmt: skip


def _copied(found: Scan) -> Draft:
    """Pairs whose sides are equal, case and punctuation apart, and long enough that they should not be."""
    source, target = found.columns
    same = (np.asarray(source.alike) == np.asarray(target.alike)) & (np.asarray(source.words) >= COPIED_WORDS)
    rows = np.flatnonzero(
        same & found.readable() & (np.asarray(source.scripts) != NO_SCRIPT)
    )  # numbers stay as they are
    if len(rows) > 0.5 * len(found):
        what, advice = "pairs are copies, with both sides the same", "if copying is not the task, the columns are wrong"
        return Draft("copied", rows, what, advice, severity="warning")
    what = f"pairs have the same words on both sides ({COPIED_WORDS} or more), as if not translated"
    return Draft("copied", rows, what, "delete them: a model learns to copy from them", 0.001, 0.1)


def _odd_lengths(found: Scan) -> Draft:
    """Pairs with a side that is too long for the other (Gale & Church 1993: the ratio's deviation falls with √length)."""
    lengths = [np.asarray(column.characters, dtype=np.float64) for column in found.columns]
    full = (np.minimum(*lengths) > 0) & found.readable()
    rows = np.empty(0, dtype=np.int64)
    if full.sum() >= 30:
        ratio = np.log((lengths[1] + 1) / (lengths[0] + 1))
        off = ratio - np.median(ratio[full])
        scaled = off * np.sqrt((lengths[0] + lengths[1]) / 2)
        deviation = max(1.4826 * float(np.median(np.abs(scaled[full]))), 0.3)
        rows = np.flatnonzero(full & (np.abs(scaled) > ODD * deviation) & (np.abs(off) > TWICE))
    notes = {int(row): f"{lengths[0][row]:.0f} and {lengths[1][row]:.0f} characters" for row in rows[:1000]}
    what = "pairs have a side that is far too long or short for the other"
    advice = "look whether a sentence is missing, or a line slipped"
    return Draft("length-ratio", rows, what, advice, 0.001, 0.1, notes=notes)


def _long(found: Scan) -> Draft:
    most = np.maximum(*(np.asarray(column.words) for column in found.columns))
    what = f"pairs have a side of over {LONG} words"
    advice = "training leaves out sides of over 256 tokens (data.max_length): cut them into sentences"
    return Draft("long", np.flatnonzero(most > LONG), what, advice, 0.001, 0.5)


# --- Told by models that learn from the pairs


@dataclass
class _Judged:
    """Judgements by models that learned from a sample of the pairs."""

    found: Scan
    misplaced: np.ndarray = field(init=False)  # rows that are already known to be no translation

    def __post_init__(self) -> None:
        source, target = self.found.columns
        self.misplaced = np.zeros(len(self.found), dtype=bool)
        for draft in (_copied(self.found), wrong_scripts(self.found, UNIT)):
            self.misplaced[draft.rows] = True
        self.hashes = joined(source.alike, target.alike)

    def languages(self, notes: list[str], progress: OnProgress | None) -> list[Draft]:
        """Rows whose sides are swapped, or in one language."""
        sample = [(row, texts) for row, texts in self.found.sample if all(text.strip() for text in texts)]
        if len(sample) < 50:
            return []
        folds = fold_of(self.hashes)
        model = TwoLanguages([texts for _, texts in sample], folds[[row for row, _ in sample]])
        chunks = []
        for start, pairs in _chunks(self.found.rows):
            chunks.append(model.looks(pairs, folds[start : start + len(pairs)]))
            if progress is not None:
                progress(start + len(pairs), len(self.found))
        looks = Looks(*(np.concatenate([getattr(c, side) for c in chunks]) for side in ("first", "second")))
        source, target = self.found.columns
        full = np.minimum(np.asarray(source.words), np.asarray(target.words)) > 0
        accuracy = Looks(looks.first[full], looks.second[full]).accuracy if full.any() else 0.0
        if accuracy < TOLD:
            notes.append(f"{source.name} and {target.name} look alike by their letters: swapped sides cannot be told")
            return []
        turned = np.flatnonzero(swapped(looks))
        same = np.flatnonzero(one_language(looks) & ~self.misplaced)
        self.misplaced[turned] = self.misplaced[same] = True
        return [
            Draft("swapped", turned, f"pairs have their sides swapped, {source.name} where {target.name} should be",
                  "swap them back: by their letters, each side looks like the other column", 0.0, 0.01),
            Draft("one-language", same, f"pairs have both sides in one language, {source.name} or {target.name}",
                  "look whether one side was never translated", 0.001, 0.05),
        ]  # fmt: skip

    def alignment(self, notes: list[str], progress: OnProgress | None) -> list[Draft]:
        """Rows whose sides do not belong together, and stretches in which one file slipped."""
        sample = [(row, (words_of(a), words_of(b))) for row, (a, b) in self.found.sample if not self.misplaced[row]]
        if len(sample) < LEAST_PAIRS:
            notes.append(f"fewer than {LEAST_PAIRS} pairs: whether their sides belong together cannot be told")
            return []
        folds = (self.hashes // np.uint64(7) % np.uint64(4)).astype(np.int64)
        belonging = Belonging([pair for _, pair in sample], folds[[row for row, _ in sample]])
        some = sample[: 2 * LEAST_PAIRS] if len(sample) < 4000 else sample[:2000]
        scale = belonging.scale([pair for _, pair in some], [int(folds[row]) for row, _ in some])
        if not scale.apart and (whole := self._whole_shift()) is not None:
            return [whole]
        if not scale.apart:
            notes.append("whether the sides belong together cannot be told: their words do not foresee each other")
            return []
        scored = _Scored(self.found, belonging, scale, folds, self.misplaced)
        scored.run(progress)
        if scored.count < len(self.found):
            notes.append(
                f"whether sides belong together: {scored.count:,} of {len(self.found):,} pairs were scored, in blocks of "
                f"{BLOCK:,}, by a model of {belonging.learned:,}"
            )
        return scored.drafts()

    def _whole_shift(self) -> Draft | None:
        """All lines have slipped, if the words of neighbours foresee each other and those of a line do not."""
        chunk = next(_chunks(self.found.rows, FIRST), (0, []))[1]
        words = [(words_of(source), words_of(target)) for source, target in chunk]
        for by in OFFSETS:
            near = range(max(0, -by), len(words) - max(0, by))
            pairs = [(words[row][0], words[row + by][1]) for row in near]
            folds = np.arange(len(pairs))
            if len(pairs) >= LEAST_PAIRS and Belonging(pairs, folds).scale(pairs, folds.tolist()).apart:
                notes = {0: f"the {self.found.columns[1].name} stands {_way(by)} its {self.found.columns[0].name}"}
                what = "pairs have slipped, from the first line on, and fit the lines beside them better"
                advice = "look for a line too many or too few at the start of one of the files"
                rows = np.arange(len(self.found))
                return Draft("shifted", rows, what, advice, notes=notes, severity="error", ranked=True)
        return None


class _Scored:
    """Pairs scored by Model 1, in blocks of neighbours, so that a line that slipped is found beside its own."""

    def __init__(
        self, found: Scan, belonging: Belonging, scale: Scale, folds: np.ndarray, misplaced: np.ndarray
    ) -> None:
        self.found, self.belonging, self.scale, self.folds, self.misplaced = found, belonging, scale, folds, misplaced
        self.count = 0
        self.low: list[int] = []
        self.scores: dict[int, float] = {}
        self.shifted: list[tuple[int, int, int]] = []  # start, end, by how many lines

    def run(self, progress: OnProgress | None) -> None:
        blocks = -(-len(self.found) // BLOCK)
        chosen = set(np.linspace(0, blocks - 1, min(blocks, SCORED // BLOCK)).astype(int).tolist())
        before: list[tuple[int, float, int]] = []
        for number, (start, pairs) in enumerate(_chunks(self.found.rows, BLOCK)):
            if number not in chosen:
                self._stretches(before)
                before = []
                continue
            before += self._block(start, [(words_of(pair[0]), words_of(pair[1])) for pair in pairs])
            self.count += len(pairs)
            if progress is not None:
                progress(self.count, min(len(self.found), SCORED))
        self._stretches(before)

    def _block(self, start: int, pairs: list[tuple[list[str], list[str]]]) -> list[tuple[int, float, int]]:
        """Score a block; returns the rows, their scores, and by how many lines each seems to have slipped."""
        votes = []
        halfway = (self.scale.good + self.scale.chance) / 2
        for place, pair in enumerate(pairs):
            row = start + place
            score = self.belonging.score(pair, int(self.folds[row]))
            vote = 0
            if score < halfway and not self.misplaced[row]:
                near = {
                    by: self.belonging.score((pair[0], pairs[place + by][1]), int(self.folds[row]))
                    for by in OFFSETS
                    if 0 <= place + by < len(pairs)
                }
                best = max(near, key=lambda by: -np.inf if np.isnan(near[by]) else near[by])
                vote = best if near[best] > max(halfway, score + (self.scale.good - self.scale.chance) / 4) else 0
            votes.append((row, score, vote))
            if score < self.scale.threshold and not self.misplaced[row]:
                self.low.append(row)
                self.scores[row] = score
        return votes

    def _stretches(self, votes: list[tuple[int, float, int]]) -> None:
        for by in OFFSETS if votes else ():
            for start, end in stretches(np.array([vote == by for _, _, vote in votes])):
                self.shifted.append((votes[start][0], votes[end - 1][0] + 1, by))

    def drafts(self) -> list[Draft]:
        inside = np.zeros(len(self.found), dtype=bool)
        notes = {}
        source, target = self.found.columns
        for start, end, by in sorted(self.shifted):
            inside[start:end] = True
            first, last = self.found.lines[start], self.found.lines[end - 1]
            notes[start] = f"lines {first:,} to {last:,}: the {target.name} stands {_way(by)} its {source.name}"
        starts = len({start for start, _, _ in self.shifted})
        slipped = np.flatnonzero(inside)
        ordered = np.array([*notes, *(row for row in slipped if int(row) not in notes)], dtype=np.int64)
        low = np.array(
            sorted((row for row in self.low if not inside[row]), key=self.scores.__getitem__), dtype=np.int64
        )
        scores = {row: f"score {self.scores[row]:.1f}, as a rule {self.scale.good:.1f}" for row in low[:1000].tolist()}
        where = f"in {starts} stretch{'es' * (starts != 1)}"
        return [
            Draft("shifted", ordered, f"pairs {where} have slipped, and fit the lines beside them better",
                  "look for a line too many or too few just before, in one of the files",
                  notes=notes, severity="error", ranked=True),
            Draft("misaligned", low, "pairs have sides that do not seem to belong together",
                  "look at some: they may be free translations, or the wrong ones", 0.003, 0.05,
                  total=self.count, notes=scores, ranked=True),
        ]  # fmt: skip


def _way(by: int) -> str:
    return f"{abs(by)} line{'s' * (abs(by) > 1)} {'below' if by > 0 else 'above'}"


def _chunks(rows: Rows, size: int = CHUNK) -> Iterator[tuple[int, list[tuple[str, ...]]]]:
    """The texts of all rows, `size` at a time, each with the number of its first."""
    left, start = iter(rows), 0
    while chunk := [row.texts for row in islice(left, size)]:
        yield start, chunk
        start += len(chunk)
