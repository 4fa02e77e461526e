"""Pictures with captions, or with questions and answers, from CSV, TSV and JSON Lines: each trouble names its line."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.lines import opened, read_lines, read_text, suffix_of
from regard.data.rows import as_label, as_text
from regard.errors import RegardError, UsageError, nearest

_ALIASES = {
    "picture": ("picture", "image", "file"),
    "caption": ("caption", "captions"),
    "question": ("question",),
    "answer": ("answer",),
}
Row = tuple[int, Mapping[str, object]]  # its line, and its values under our own names


@dataclass(frozen=True)
class CaptionSet:
    """Pictures, and of each one or more captions; sentences for the person tell what was left out."""

    paths: tuple[Path, ...]
    captions: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """Questions with their answers, and which of the pictures each is about; each picture is there once."""

    paths: tuple[Path, ...]
    pictures: np.ndarray  # (N,), int64: of each question, the place in `paths`
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.questions)


def read_captions(path: str | Path) -> CaptionSet:
    """Rows of a picture and its caption, or captions; rows of the same picture are joined.

    JSON Lines have the keys picture (or image, file) and caption (a text) or captions (a list); CSV and TSV have columns
    of these names, or two columns without names. Pictures are looked for beside the file.
    """
    path = Path(path)
    pictures = _Pictures(path)
    captions: dict[Path, list[str]] = {}
    for line, row in _rows(path, ("picture", "caption")):
        texts = _texts(path, line, row.get("caption"))
        full = [text for text in texts if text]
        if not texts:
            pictures.leave_out("rows without a caption", line)
        elif len(full) < len(texts):
            pictures.leave_out("empty captions", line, len(texts) - len(full))
        found = pictures.find(line, row) if full else None
        if found is not None:
            captions.setdefault(found, []).extend(full)
    notes = pictures.notes()
    if not captions:
        raise RegardError(_nothing(path, "captions", notes))
    return CaptionSet(tuple(captions), tuple(map(tuple, captions.values())), notes)


def read_questions(path: str | Path) -> QuestionSet:
    """Rows of a picture, a question and its answer, in the formats of `read_captions`."""
    path = Path(path)
    pictures = _Pictures(path)
    places: dict[Path, int] = {}
    rows: list[tuple[int, str, str]] = []
    for line, row in _rows(path, ("picture", "question", "answer")):
        question = _cell(path, line, row, "question", as_text)
        answer = _cell(path, line, row, "answer", _answer)
        if not question or not answer:
            pictures.leave_out("rows without " + ("an answer" if question else "a question"), line)
        elif (found := pictures.find(line, row)) is not None:
            rows.append((places.setdefault(found, len(places)), question, answer))
    notes = pictures.notes()
    if not rows:
        raise RegardError(_nothing(path, "questions", notes))
    numbers, questions, answers = zip(*rows, strict=True)
    return QuestionSet(tuple(places), np.array(numbers, dtype=np.int64), questions, answers, notes)


class _Pictures:
    """Where the pictures of a file's rows are, and how many rows were left out, why, and which was the first."""

    def __init__(self, source: Path) -> None:
        self.source, self.known = source, dict[str, Path | None]()
        self.left_out: dict[str, tuple[int, str]] = {}

    def find(self, line: int, row: Mapping[str, object]) -> Path | None:
        """The picture of a row, or None if it is not there."""
        name = _cell(self.source, line, row, "picture", as_text)
        if not name:
            raise RegardError(f"{self.source}, line {line}: the name of the picture is empty")
        if name not in self.known:
            full = os.path.normpath(self.source.parent / name)
            self.known[name] = Path(full) if os.path.isfile(full) else None
        if self.known[name] is None:
            self.leave_out("rows whose picture is missing", line, named=name)
        return self.known[name]

    def leave_out(self, why: str, line: int, count: int = 1, named: str = "") -> None:
        before, first = self.left_out.get(why, (0, f"line {line}" + (f": {named}" if named else "")))
        self.left_out[why] = before + count, first

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{self.source}: left out {count:,} {why} (first in {first})"
            for why, (count, first) in self.left_out.items()
        )


def _nothing(path: Path, what: str, notes: tuple[str, ...]) -> str:
    return f"there are no {what} in {path}" + ("; " + "; ".join(notes) if notes else "")


def _cell(path: Path, line: int, row: Mapping[str, object], name: str, read: Callable[[str, object], str]) -> str:
    """The text under a name without the space around it; "" if it is missing."""
    value = row.get(name)
    try:
        return "" if value is None else read(name, value).strip()
    except ValueError as error:
        raise RegardError(f"{path}, line {line}: {error}") from error


def _answer(name: str, value: object) -> str:
    """Answers may be whole numbers, or true and false; an empty one is missing."""
    return "" if isinstance(value, str) and not value.strip() else as_label(name, value)


def _texts(path: Path, line: int, value: object) -> list[str]:
    """A caption, or a list of them; none if there is no value."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [_cell(path, line, {"caption": each}, "caption", as_text) for each in values]


def _rows(path: Path, names: tuple[str, ...]) -> Iterator[Row]:
    kind = suffix_of(path)
    if kind in (".jsonl", ".json"):
        return _jsonl(path, names)
    if kind == ".tsv":
        lines = enumerate(read_lines(path), start=1)
        return _columns(path, ((number, line.split("\t")) for number, line in lines), names)
    if kind == ".csv":
        return _columns(path, _csv(path), names)
    raise UsageError(f"{path}: {', '.join(names)} come as .jsonl, .csv or .tsv (each may end in .gz)")


def _jsonl(path: Path, names: tuple[str, ...]) -> Iterator[Row]:
    wanted = ", ".join(f'"{name}": "…"' for name in names)
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RegardError(f"{path}, line {number}: {error}; each line should be {{{wanted}}}") from error
        if not isinstance(row, dict):
            raise RegardError(f"{path}, line {number}: a {type(row).__name__}; each line should be {{{wanted}}}")
        found = {name: _aliased(row, name) for name in names}
        if found["picture"] is None:
            raise RegardError(f"{path}, line {number}: no key picture{nearest('picture', map(str, row))}")
        yield number, found


def _aliased(row: Mapping[str, object], name: str) -> object:
    """The value under a name or the first of its aliases that has one."""
    return next((row[alias] for alias in _ALIASES[name] if row.get(alias) is not None), None)


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    with opened(path) as file:
        text = read_text(path, file.read())
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise RegardError(f"{path}, line {reader.line_num}: {error}; it is not valid CSV") from error


def _columns(path: Path, rows: Iterator[tuple[int, list[str]]], names: tuple[str, ...]) -> Iterator[Row]:
    """Rows under the names of a first row that has the picture's, or else in the order of `names`."""
    columns: list[str] | None = None
    for number, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if columns is None:
            heads = [_own_name(cell) for cell in row]
            columns = heads if "picture" in heads else list(names)
            if columns is heads:
                _complete(path, number, row, heads, names)
                continue
        if len(row) != len(columns):
            raise RegardError(
                f"{path}, line {number}: {len(row)} columns where {len(columns)} should be; "
                f"write {', '.join(names)}, or name the columns so in the first line"
            )
        yield number, dict(zip(columns, row, strict=True))


def _own_name(head: str) -> str:
    """Our name for what a person calls a column; "" if it is of no use here."""
    head = head.strip().casefold()
    return next((name for name, aliases in _ALIASES.items() if head in aliases), "")


def _complete(path: Path, number: int, row: list[str], heads: list[str], names: tuple[str, ...]) -> None:
    for name in names:
        if heads.count(name) != 1:
            trouble = f"no column {name}{nearest(name, row)}" if name not in heads else f"two columns for {name}"
            raise RegardError(f"{path}, line {number}: {trouble}")
