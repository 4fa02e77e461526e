"""The check of pictures with classes, captions or questions: what cannot be read, what comes twice, what is held out too."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from regard.check.findings import Draft
from regard.check.labelled import few_labels, imbalance, unknown_labels
from regard.check.reading import Rows, made_rows
from regard.check.report import Example, Finding, PartSize, Report, SetSize, in_order, severity_of
from regard.check.scan import OnProgress
from regard.data.pictures.decode import PictureError, read_picture
from regard.data.pictures.sets import CaptionSet, PictureSet, QuestionSet

UNIT = "pictures"
TINY = 8  # pixels of a side below which there is nothing to see


@dataclass
class Seen:
    """Each picture of a set: its hash, its size, its class, or why it cannot be read."""

    name: str
    places: list[str] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)  # of the decoded pixels; b"" if it cannot be read
    sizes: list[tuple[int, int]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    wrong: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.places)


def look(found: PictureSet, name: str, files: tuple[str, ...], progress: OnProgress | None = None) -> Seen:
    """Decode every picture of a set once."""
    seen = Seen(name)
    labels = [] if found.labels is None else [found.names[label] for label in found.labels]
    for number, (place, picture, wrong) in enumerate(_decoded(found, files[0])):
        seen.places.append(place)
        seen.classes.append(labels[number] if labels else "")
        if picture is None:
            seen.wrong[number] = wrong
        seen.hashes.append(b"" if picture is None else _hash(picture))
        seen.sizes.append((0, 0) if picture is None else (picture.shape[0], picture.shape[1]))
        if progress is not None:
            progress(number + 1, len(found))
    return seen


def _decoded(found: PictureSet, file: str) -> Iterator[tuple[str, np.ndarray | None, str]]:
    if found.arrays is not None:
        yield from ((f"{file}:{number}", picture, "") for number, picture in enumerate(found.arrays, start=1))
        return
    for path in found.paths:
        yield _read(path)


def _read(path: Path) -> tuple[str, np.ndarray | None, str]:
    try:
        return str(path), read_picture(path), ""
    except PictureError as error:
        return str(path), None, error.reason


def _hash(picture: np.ndarray) -> bytes:
    shape = repr(picture.shape).encode()
    return hashlib.blake2b(shape + np.ascontiguousarray(picture).tobytes(), digest_size=16).digest()


def check_pictures(
    train: PictureSet,
    held_out: dict[str, PictureSet] | None = None,
    *,
    files: dict[str, tuple[str, ...]],
    examples: int = 3,
    task: str = "classify-pictures",
    progress: OnProgress | None = None,
) -> Report:
    """Check pictures with a class each, and whether validation and test are apart from them."""
    seen = look(train, "train", files["train"], progress)
    others = [look(found, name, files[name], progress) for name, found in (held_out or {}).items()]
    values = Counter(each for each in seen.classes if each)
    findings = [*_of_pictures(seen, examples), *_left_out(train, examples)]
    if values:
        findings += [*few_labels(values, examples, UNIT), *imbalance(values, UNIT)]
    for other in others:
        findings += [*_unreadable(other, examples), *_leak(seen, other, examples)]
        findings += unknown_labels(values, Counter(filter(None, other.classes)), other.name)
    sizes = tuple(SetSize(each.name, files[each.name], len(each), _sides(each)) for each in (seen, *others))
    return Report(task, UNIT, sizes, in_order(findings), (), dict(values.most_common()), train.notes)


def _sides(seen: Seen) -> tuple[PartSize, ...]:
    """Height and width in pixels, in the form of lengths."""
    sizes = np.array([size for size in seen.sizes if size != (0, 0)] or [(0, 0)])
    parts = []
    for name, side in (("height", sizes[:, 0]), ("width", sizes[:, 1])):
        median, most = float(np.median(side)), float(np.percentile(side, 95))
        parts.append(PartSize(name, 0, 0, len(np.unique(side)), 0.0, median, most, int(side.max())))
    return tuple(parts)


def _finding(seen: Seen, draft: Draft, examples: int) -> list[Finding]:
    """A finding with the places of its pictures."""
    if not len(draft.rows):
        return []
    share = len(draft.rows) / len(seen)
    severity = draft.severity or severity_of(share, draft.warning, draft.error)
    shown = tuple(Example(seen.places[row], (), draft.notes.get(int(row), "")) for row in draft.rows[:examples])
    return [Finding(draft.kind, severity, draft.what, draft.advice, len(draft.rows), len(seen), seen.name, shown,
                    draft.rows)]  # fmt: skip


def _unreadable(seen: Seen, examples: int) -> list[Finding]:
    draft = Draft("unreadable", np.array(sorted(seen.wrong), dtype=np.int64), "pictures cannot be read",
                  "fetch them again, or delete them: training leaves them out", 0.0, 0.05, notes=seen.wrong)  # fmt: skip
    return _finding(seen, draft, examples)


def _of_pictures(seen: Seen, examples: int) -> list[Finding]:
    """Pictures that cannot be read, that come twice, in one class or in several, or that are too small."""
    first: dict[bytes, int] = {}
    twice, torn = {}, {}
    for row, key in enumerate(seen.hashes):
        if key and first.setdefault(key, row) != row:
            twice[row] = f"the same as {seen.places[first[key]]}"
            if seen.classes[row] != seen.classes[first[key]]:
                torn[row] = f"{seen.classes[row]}, and {seen.classes[first[key]]} is {seen.places[first[key]]}"
    small = [row for row, size in enumerate(seen.sizes) if 0 < min(size) < TINY]
    drafts = [
        Draft("duplicates", np.array(list(twice), dtype=np.int64), "pictures came before, pixel for pixel",
              "keep one of each: they may end up on both sides of a split", 0.01, 0.5, notes=twice),
        Draft("contradiction", np.array(list(torn), dtype=np.int64), "pictures are in several classes",
              "decide which class is right", 0.0, 0.05, notes=torn),
        Draft("tiny", np.array(small, dtype=np.int64), f"pictures have a side of less than {TINY} pixels",
              "look whether these are icons or place holders", 0.0, 0.5),
    ]  # fmt: skip
    return _unreadable(seen, examples) + [finding for draft in drafts for finding in _finding(seen, draft, examples)]


def _left_out(found: PictureSet | CaptionSet | QuestionSet, examples: int) -> list[Finding]:
    """Files and rows that the reader leaves out, with its reasons."""
    count, total = len(found.left_out), len(found) + len(found.left_out)
    if not count:
        return []
    shown = tuple(Example(name, (), why) for name, why in found.left_out[:examples])
    what, advice = "files or rows are left out", "look whether they should be: their names or their rows say nothing"
    return [Finding("left-out", severity_of(count / total, 0.01, 0.2), what, advice, count, total, examples=shown)]


def _leak(train: Seen, other: Seen, examples: int) -> list[Finding]:
    known = {key: row for row, key in enumerate(train.hashes) if key}
    rows = [row for row, key in enumerate(other.hashes) if key in known]
    notes = {row: f"the same as {train.places[known[other.hashes[row]]]}" for row in rows}
    draft = Draft("leak", np.array(rows, dtype=np.int64), f"pictures of {other.name} are also in training",
                  f"take them out of training, or scores on {other.name} flatter", 0.0, 0.1, notes=notes)  # fmt: skip
    return _finding(other, draft, examples)


# --- Captions and questions


def caption_rows(found: CaptionSet | QuestionSet, files: tuple[str, ...]) -> Rows:
    """The texts of pictures: captions, or questions with their answers as labels."""
    if isinstance(found, CaptionSet):
        return made_rows(files, ("caption",), [(text,) for texts in found.captions for text in texts])
    rows = list(zip(found.questions, found.answers, strict=True))
    return made_rows(files, ("question", "label"), rows)


def pictures_of(found: CaptionSet | QuestionSet) -> PictureSet:
    """The pictures alone."""
    return PictureSet(found.paths, notes=found.notes, left_out=found.left_out)


def check_captions(texts: Report, pictures: Report, task: str) -> Report:
    """One report of the pictures and of what is said of them."""
    findings = in_order([*texts.findings, *pictures.findings])
    sets = tuple(
        SetSize(text.name, text.files, text.examples, (*text.parts, *picture.parts))
        for text, picture in zip(texts.sets, pictures.sets, strict=True)
    )
    notes = (*texts.notes, *pictures.notes)
    return Report(task, texts.unit, sets, findings, texts.coverage, texts.labels, notes)
