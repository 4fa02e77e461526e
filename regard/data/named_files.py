"""Rows of CSV, TSV and JSON Lines that name files beside them, pictures or sounds: each trouble names its line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from regard.data.lines import read_lines, suffix_of
from regard.data.pictures.config import is_picture
from regard.data.rows import as_text, csv_rows, tsv_rows
from regard.data.sound.config import is_sound
from regard.errors import RegardError, UsageError, nearest

_USUAL = {
    "picture": ("picture", "image", "file"),
    "caption": ("caption", "captions"),
    "question": ("question",),
    "answer": ("answer",),
    "audio": ("audio", "sound", "file"),
    "text": ("text", "transcript", "transcription"),
    "label": ("label", "class"),
}
_OTHERWISE = {  # where none of the usual is there; file_name and text are those of Hugging Face's folders of pictures
    "picture": ("file_name", "filename", "path", "image_path"),
    "caption": ("text", "sentence", "description"),
    "question": ("query",),
    "answer": ("label",),
    "audio": ("audio_filepath", "audio_path", "file_name", "filename", "path", "wav"),
    "text": ("sentence", "words"),
    "label": ("category", "target"),
}
_ALIASES = {name: usual + _OTHERWISE[name] for name, usual in _USUAL.items()}
IS_FILE: dict[str, Callable[[Path | str], bool]] = {"picture": is_picture, "audio": is_sound}
LeftOut = tuple[str, str]  # what was left out, by its name, and why
Row = tuple[int, Mapping[str, object]]  # its line, and its values under our own names


class FilesBeside:
    """Where the files of a table's rows are, and how many rows were left out, why, and which was the first."""

    def __init__(self, source: Path, what: str) -> None:
        self.source, self.what, self.known = source, what, dict[str, Path | None]()
        self.left_out: dict[str, tuple[int, str]] = {}
        self.every: list[LeftOut] = []

    def find(self, line: int, row: Mapping[str, object]) -> Path | None:
        """The file of a row, or None if it is not there."""
        name = cell_of(self.source, line, row, self.what, as_text)
        if not name:
            raise RegardError(f"{self.source}, line {line}: the name of the {self.what} is empty")
        if name not in self.known:
            full = os.path.normpath(self.source.parent / name)
            self.known[name] = Path(full) if os.path.isfile(full) else None
        if self.known[name] is None:
            self.leave_out(f"rows whose {self.what} is missing", line, named=name)
        return self.known[name]

    def leave_out(self, why: str, line: int, count: int = 1, named: str = "") -> None:
        before, first = self.left_out.get(why, (0, f"line {line}" + (f": {named}" if named else "")))
        self.left_out[why] = before + count, first
        self.every.append((f"{self.source}, line {line}" + (f": {named}" if named else ""), why))

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{self.source}: left out {count:,} {why} (first in {first})"
            for why, (count, first) in self.left_out.items()
        )


def cell_of(path: Path, line: int, row: Mapping[str, object], name: str, read: Callable[[str, object], str]) -> str:
    """The text under a name without the space around it; "" if it is missing."""
    value = row.get(name)
    try:
        return "" if value is None else read(name, value).strip()
    except ValueError as error:
        raise RegardError(f"{path}, line {line}: {error}") from error


TABLES = (".jsonl", ".json", ".tsv", ".csv")


def named_rows(path: Path, names: tuple[str, ...]) -> Iterator[Row]:
    """The rows of a file under our own names, of which the first is that of the files: "picture" or "audio"."""
    kind = suffix_of(path)
    if kind in (".jsonl", ".json"):
        return _jsonl(path, names)
    if kind == ".tsv":
        return _columns(path, tsv_rows(path), names)
    if kind == ".csv":
        return _columns(path, csv_rows(path), names)
    inside = sorted(each for each in path.iterdir() if suffix_of(each) in TABLES) if path.is_dir() else []
    if inside:
        raise UsageError(f"{path} is a folder", f"name the file in it that has {' and '.join(names)}: {inside[0]}")
    raise UsageError(f"{path}: {', '.join(names)} come as .jsonl, .csv or .tsv (each may end in .gz)")


def _jsonl(path: Path, names: tuple[str, ...]) -> Iterator[Row]:
    wanted = ", ".join(f'"{name}": "…"' for name in names)
    rows: list[tuple[int, dict[str, object]]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RegardError(f"{path}, line {number}: {error}", f"each line should be {{{wanted}}}") from error
        if not isinstance(row, dict):
            raise RegardError(f"{path}, line {number}: a {type(row).__name__}", f"each line should be {{{wanted}}}")
        if _aliased(row, names[0]) is None:
            raise RegardError(f"{path}, line {number}: {_no_such('key', names[0], list(row))}")
        rows.append((number, row))
    for name in names:  # one row may lack a caption, but not all of them
        if rows and not any(alias in row for _, row in rows for alias in _ALIASES[name]):
            number, row = rows[0]
            raise RegardError(f"{path}, line {number}: {_no_such('key', name, list(row))}")
    for number, row in rows:
        yield number, {name: _aliased(row, name) for name in names}


def _aliased(row: Mapping[str, object], name: str) -> object:
    """The value under a name or the first of its aliases that has one."""
    return next((row[alias] for alias in _ALIASES[name] if row.get(alias) is not None), None)


def _no_such(what: str, name: str, there: Sequence[str]) -> str:
    """That a key or a column is missing, which there are, and which would do."""
    near = nearest(name, there)
    close = f"{near}; " if "did you mean" in near else ""
    *most, last = _ALIASES[name]
    would = f"{', '.join(most)} or {last}" if most else last
    return f"no {what} {name}; {close}there is {', '.join(there)}, and {would} would do"


def _columns(path: Path, rows: Iterator[tuple[int, list[str]]], names: tuple[str, ...]) -> Iterator[Row]:
    """Rows under the names of a first row that has the file's, or else in the order of `names`."""
    full = [(number, row) for number, row in rows if any(cell.strip() for cell in row)]
    if not full:
        return
    (number, first), columns = full[0], list(names)
    heads = _own_names(first, names)
    if names[0] in heads or _names_unknown(first, [row for _, row in full[1:]], IS_FILE[names[0]]):
        _complete(path, number, first, heads, names)
        columns, full = heads, full[1:]
    for number, row in full:
        if len(row) != len(columns):
            raise RegardError(
                f"{path}, line {number}: {len(row)} columns where {len(columns)} should be",
                f"write {', '.join(names)}, or name the columns so in the first line",
            )
        yield number, dict(zip(columns, row, strict=True))


def _own_names(heads: Sequence[str], names: tuple[str, ...]) -> list[str]:
    """Our names for what a person calls the columns; "" for those that are of no use here."""
    found = [""] * len(heads)
    folded = [head.strip().casefold() for head in heads]
    for name in names:
        usual = [place for place, head in enumerate(folded) if head in _USUAL[name]]
        for place in usual or [place for place, head in enumerate(folded) if head in _OTHERWISE[name]]:
            found[place] = name
    return found


def _names_unknown(first: Sequence[str], below: Sequence[Sequence[str]], is_file: Callable[[str], bool]) -> bool:
    """Whether a first row names columns by names that mean nothing here: no file is in it, and below they are."""
    place = next((place for place in range(len(first)) if below and all(map(is_file, _cells(below, place)))), None)
    return place is not None and not is_file(first[place].strip())


def _cells(rows: Sequence[Sequence[str]], place: int) -> list[str]:
    return [row[place].strip() if len(row) > place else "" for row in rows]


def _complete(path: Path, number: int, row: list[str], heads: list[str], names: tuple[str, ...]) -> None:
    for name in names:
        if heads.count(name) != 1:
            missing = _no_such("column", name, [cell.strip() for cell in row])
            raise RegardError(f"{path}, line {number}: {missing if name not in heads else f'two columns for {name}'}")
