"""Pictures with captions, or with questions and answers, from CSV, TSV and JSON Lines: each trouble names its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.named_files import FilesBeside, LeftOut, cell_of, named_rows
from regard.data.rows import as_label, as_text
from regard.errors import RegardError


@dataclass(frozen=True)
class CaptionSet:
    """Pictures, and of each one or more captions; sentences for the person tell what was left out."""

    paths: tuple[Path, ...]
    captions: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

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
    left_out: tuple[LeftOut, ...] = ()

    def __len__(self) -> int:
        return len(self.questions)


def read_captions(path: str | Path) -> CaptionSet:
    """Rows of a picture and its caption, or captions; rows of the same picture are joined.

    JSON Lines have the keys picture (or image, file, file_name) and caption (or text), a text, or captions, a list; CSV
    and TSV have columns of these names, or two columns without names. Pictures are looked for beside the file.
    """
    path = Path(path)
    pictures = FilesBeside(path, "picture")
    captions: dict[Path, list[str]] = {}
    for line, row in named_rows(path, ("picture", "caption")):
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
    return CaptionSet(tuple(captions), tuple(map(tuple, captions.values())), notes, tuple(pictures.every))


def read_questions(path: str | Path) -> QuestionSet:
    """Rows of a picture, a question and its answer, in the formats of `read_captions`."""
    path = Path(path)
    pictures = FilesBeside(path, "picture")
    places: dict[Path, int] = {}
    rows: list[tuple[int, str, str]] = []
    for line, row in named_rows(path, ("picture", "question", "answer")):
        question = cell_of(path, line, row, "question", as_text)
        answer = cell_of(path, line, row, "answer", _answer)
        if not question or not answer:
            pictures.leave_out("rows without " + ("an answer" if question else "a question"), line)
        elif (found := pictures.find(line, row)) is not None:
            rows.append((places.setdefault(found, len(places)), question, answer))
    notes = pictures.notes()
    if not rows:
        raise RegardError(_nothing(path, "questions", notes))
    numbers, questions, answers = zip(*rows, strict=True)
    return QuestionSet(
        tuple(places), np.array(numbers, dtype=np.int64), questions, answers, notes, tuple(pictures.every)
    )


def _nothing(path: Path, what: str, notes: tuple[str, ...]) -> str:
    return f"there are no {what} in {path}" + ("; " + "; ".join(notes) if notes else "")


def _answer(name: str, value: object) -> str:
    """Answers may be whole numbers, or true and false; an empty one is missing."""
    return "" if isinstance(value, str) and not value.strip() else as_label(name, value)


def _texts(path: Path, line: int, value: object) -> list[str]:
    """A caption, or a list of them; none if there is no value."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [cell_of(path, line, {"caption": each}, "caption", as_text) for each in values]
