"""Rows as they stand in files, also those that training would refuse or leave out, one after the other and as often as asked.

Readers of training keep what they can use; a check must see the rest. Which columns are meant is decided as there, from
the first rows and a sample of all.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.data import labelled, pair_files, pairs
from regard.data.documents import SENTENCES, read_documents
from regard.data.labelled_files import LABEL_NAMES, TEXT_NAMES, Keys, find_columns, wanted_columns
from regard.data.lines import Bad, decode_lines, opened, suffix_of
from regard.data.parquet import PARQUET, parquet_cells, parquet_table
from regard.data.rows import (
    BETWEEN,
    FORMATS,
    MISSING,
    Table,
    Wanted,
    as_label,
    as_text,
    delimiter_of,
    some_rows,
    table_of,
)
from regard.data.tmx import TMX, tmx_pairs, two_languages
from regard.errors import Option, RegardError

CELL = 1 << 30  # characters of a cell of CSV: longer than any
JSONL = (".jsonl", ".json")
OF_PICTURES = ("picture", "image", "file_name", "filename", "image_path", "caption", "question", "answer")


class Row(NamedTuple):
    """A row of a file: where it stands, its texts, and why it cannot be read if it cannot."""

    file: str
    line: int
    texts: tuple[str, ...]
    wrong: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Rows:
    """Rows that can be read again and again, and what was guessed of their columns."""

    files: tuple[str, ...]
    parts: tuple[str, ...]  # of each row: "source", "target"
    read: Callable[[], Iterator[Row]]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        return self.read()


def made_rows(names: Sequence[str], parts: tuple[str, ...], texts: Sequence[tuple[str, ...]]) -> Rows:
    """Rows that are in memory already, as those of built-in data."""
    return Rows(tuple(names), parts, lambda: (Row(names[0], line, row) for line, row in enumerate(texts, start=1)))


# --- Pairs


def pair_rows(paths: Sequence[Path], fields: tuple[str, str], languages: tuple[str, str] | None) -> Rows:
    """The pairs of one table or translation memory, of two parallel files, or of a folder or archive with one of these."""
    parts = pair_files.FIELDS if languages is None else languages
    paths = pair_files.meant_files(paths, languages)
    if len(paths) == 2:
        return Rows(tuple(map(str, paths)), parts, lambda: _parallel(*paths))
    form = suffix_of(paths[0]).lower()
    if form == TMX:
        return _memory(paths[0], languages)
    wanted = pair_files.wanted_columns(fields, languages)
    table, skip = (
        (parquet_table(paths[0]), 0) if form == PARQUET else _sampled(paths[0], wanted, titles=pair_files.LANGUAGES)
    )
    first, second, guessed = pair_files.find_columns(table, *wanted)
    if form == PARQUET:
        return Rows((str(paths[0]),), parts, lambda: _parquet(paths[0], (first, second)))
    told = f"{paths[0]}: source is {table.kind} {table.called(first)}, target is {table.kind} {table.called(second)}"
    notes = (f"{told} ({guessed})",) if guessed else ()
    reads = (as_text, as_text)
    return Rows((str(paths[0]),), parts, lambda: _cells(paths[0], table, (first, second), reads, skip), notes)


def _memory(path: Path, languages: tuple[str, str] | None) -> Rows:
    """The units of a translation memory that have both languages; how many have not is counted beforehand."""
    notes: list[str] = []
    both = languages or two_languages(path, notes)
    for _ in tmx_pairs(path, both, notes):
        pass
    read = partial(tmx_pairs, path, both)
    return Rows((str(path),), both, lambda: (Row(str(path), line, pair) for line, pair in read()), tuple(notes))


def _parquet(path: Path, columns: tuple[int, int]) -> Iterator[Row]:
    for number, cells in parquet_cells(path, columns):
        try:
            yield Row(str(path), number, pair_files.as_pair(path, number, cells))
        except RegardError as error:
            yield Row(str(path), number, ("", ""), error.wrong.partition(": ")[2])


def _parallel(first: Path, second: Path) -> Iterator[Row]:
    """Lines side by side; where one file ends first, the rest of the other stands alone."""
    for line, (source, target) in enumerate(zip_longest(_lines(first), _lines(second)), start=1):
        if source is None or target is None:
            yield Row(
                str(first), line, ((source and source[1]) or "", (target and target[1]) or ""), "no line beside it"
            )
        else:
            yield Row(str(first), line, (source[1], target[1]), source[2] or target[2])


# --- Labelled texts


def labelled_rows(paths: Sequence[Path], keys: Keys) -> Rows:
    """Texts and labels of tables, of lines that begin with their label, or of a folder for each label."""
    found = [_labelled(path, keys) for path in paths]
    parts = max((rows.parts for rows in found), key=len)
    notes = tuple(note for rows in found for note in rows.notes)
    return Rows(tuple(map(str, paths)), parts, lambda: chain.from_iterable(found), notes)


def _labelled(path: Path, keys: Keys) -> Rows:
    name = (str(path),)
    if path.is_dir():
        return Rows(name, ("text", "label"), lambda: _folders(path))
    if suffix_of(path) not in FORMATS:
        return Rows(name, ("text", "label"), lambda: _label_first(path))
    table, skip = _sampled(path, wanted_columns(keys))
    columns = find_columns(table, keys)
    places = [columns.text, columns.label, *([] if columns.second is None else [columns.second])]
    read_label = as_label if not table.separator else as_text
    reads = (as_text, read_label, as_text)
    told = f"{path}: text is {table.kind} {table.called(columns.text)}, label is {table.called(columns.label)}"
    notes = (f"{told} ({columns.guessed})",) if columns.guessed else ()
    parts = ("text", "label", "second")[: len(places)]
    return Rows(name, parts, lambda: _cells(path, table, places, reads, skip), notes)


def _folders(folder: Path) -> Iterator[Row]:
    for label in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        for path in sorted((*label.glob("*.txt"), *label.glob("*.txt.gz"))):
            lines = list(_lines(path))
            wrong = next((each for _, _, each in lines if each), "")
            yield Row(str(path), 0, ("\n".join(text for _, text, _ in lines), label.name), wrong)


def _label_first(path: Path) -> Iterator[Row]:
    for number, line, wrong in _lines(path):
        label, _, text = line.strip().partition(" ")
        yield Row(str(path), number, (text, label), wrong)


# --- Plain text


def plain_rows(paths: Sequence[Path], field: str) -> Rows:
    """The lines of text files, the rows of JSON Lines; of a folder, those of all its files."""
    files = [file for path in paths for file in (_files(path) if path.is_dir() else [path])]
    if not files:
        raise RegardError(f"there is no file in {', '.join(map(str, paths))}", "name files with text")
    return Rows(tuple(map(str, paths)), ("text",), lambda: chain.from_iterable(_plain(file, field) for file in files))


def _files(folder: Path) -> list[Path]:
    hidden = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in hidden if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _plain(path: Path, field: str) -> Iterator[Row]:
    if suffix_of(path) not in JSONL:
        yield from (Row(str(path), number, (line,), wrong) for number, line, wrong in _lines(path))
        return
    names = ("text", "content", "document", "body") if field == "text" else (field,)
    for number, row, wrong in _objects(path):
        value = next((row[name] for name in names if name in row), None)
        told = wrong or ("" if isinstance(value, str) else f"no text under {field!r}")
        yield Row(str(path), number, (value if isinstance(value, str) else "",), told)


# --- Built-in data


def builtin_rows(task: str, names: Sequence[str], split: str) -> Rows:
    """Rows of built-in data, so that a check can be tried without a file."""
    if task == "translate":
        name = pairs.whole_builtin(names)
        found = pairs.read_pairs(names) if name is None else pairs.builtin_pairs(split, 5000, name)
        return made_rows(names, pair_files.FIELDS, found)
    if task == "classify":
        whole = [f"{name}/{split}" if name in (labelled.BUILTIN, labelled.LISTOPS) else name for name in names]
        return made_rows(names, ("text", "label"), [(e.text, e.label) for e in labelled.read_labelled(whole)])
    whole = [f"{name}/{split}" if name == SENTENCES else name for name in names]
    texts = read_documents(whole, builtin_size=400_000).texts
    return made_rows(names, ("text",), [(line,) for text in texts for line in text.split("\n")])


# --- Rows of tables, read one by one


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Number, text, and what is wrong with it, of each line; an empty file is an error."""
    bad: Bad = {}
    number = 0
    with opened(path) as file:
        for number, line in enumerate(decode_lines(file, str(path), bad=bad), start=1):
            error = bad.pop(number, None)
            if error is not None and number == 1 and "utf-16" in error.hint:  # not a line is wrong, but all of the file
                raise error
            yield number, line, "" if error is None else error.wrong.partition(": ")[2] or error.wrong
    if not number:
        raise RegardError(f"{path} is empty", "it should hold one sentence or pair a line")


def _objects(path: Path) -> Iterator[tuple[int, dict[str, object], str]]:
    for number, line, wrong in _lines(path):
        if not line.strip() and not wrong:
            continue
        try:
            row = json.loads(line) if not wrong else {}
            if not isinstance(row, dict):
                row, wrong = {}, f"a {type(row).__name__}, not an object"
        except (ValueError, RecursionError) as error:
            row, wrong = {}, f"not JSON ({error})"
        yield number, row, wrong


def _split_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str], str]]:
    """Line, cells, and what is wrong, of each row of TSV or CSV; CSV may have line ends in quotes."""
    if suffix_of(path) != ".csv":
        yield from ((number, line.split("\t"), wrong) for number, line, wrong in _lines(path))
        return
    wrongs: dict[int, str] = {}
    csv.field_size_limit(CELL)
    reader = csv.reader(_watched(path, wrongs), delimiter=delimiter)
    before = 0
    for row in reader:
        wrong = next((wrongs.pop(line) for line in range(before + 1, reader.line_num + 1) if line in wrongs), "")
        before = reader.line_num
        if reader.line_num > 1 or row != ["sep=", ""]:
            yield reader.line_num, row, wrong


def _watched(path: Path, wrongs: dict[int, str]) -> Iterator[str]:
    for number, line, wrong in _lines(path):
        if wrong:
            wrongs[number] = wrong
        yield line.replace("\0", "\ufffd") + "\n"


def _delimiter(path: Path) -> str:
    if suffix_of(path) != ".csv":
        return "\t"
    return delimiter_of(lambda: (f"{line}\n" for _, line, _ in islice(_lines(path), 200)))


def _sampled(path: Path, wanted: Sequence[Wanted], titles: frozenset[str] = frozenset()) -> tuple[Table, int]:
    """A table of the first rows and of a sample of the others, and the line of its header (0: none)."""
    if suffix_of(path) in JSONL:
        rows = some_rows(lambda: ((number, row) for number, row, wrong in _objects(path) if not wrong), spread=True)[0]
        keys = tuple(dict.fromkeys(key for _, row in rows for key in row))
        return Table(path, keys, [(line, [row.get(key, MISSING) for key in keys]) for line, row in rows], ""), 0
    delimiter = _delimiter(path)
    read = lambda: ((line, row) for line, row, wrong in _split_rows(path, delimiter) if not wrong)  # noqa: E731
    cells = some_rows(read, spread=True)[0]
    table = table_of(path, cells, delimiter, wanted, titles=titles)
    header = next((line for line, row in cells if tuple(row) == table.names), 0) if table.names else 0
    whole = [(line, row) for line, row in table.seen if len(row) != 1]  # rows of one cell tell nothing, if others do
    kept = whole if any(row for _, row in whole) else table.seen
    return Table(path, table.names, kept, table.separator, table.should), header


def columns_of(path: Path) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of a table's columns, if it has any, and what stands in them, in a sample of its rows."""
    words = (*pair_files.SOURCE_NAMES, *pair_files.TARGET_NAMES, *LABEL_NAMES, *TEXT_NAMES, *OF_PICTURES)
    known = Wanted("column", Option("text"), None, words, needed=False)
    table, _ = _sampled(path, [known], titles=pair_files.LANGUAGES)
    return table.names, [table.column(place) for place in range(table.width)]


def _cells(
    path: Path,
    table: Table,
    places: Sequence[int],
    reads: Sequence[Callable[[str, object], str]],
    header: int,
) -> Iterator[Row]:
    """The wanted cells of each row below the header."""
    if table.separator:
        delimiter = next(sign for sign, name in BETWEEN.items() if name == table.separator)
        for line, row, wrong in _split_rows(path, delimiter):
            if line > header and (wrong or any(cell.strip() for cell in row)):
                few = "" if len(row) > max(places) else f"{len(row)} columns where {max(places) + 1} should be"
                texts = tuple(row[place] if place < len(row) else "" for place in places)
                yield Row(str(path), line, texts, wrong or few)
        return
    names = [table.names[place] for place in places]
    for line, found, wrong in _objects(path):
        texts, told = _values(found, names, reads)
        yield Row(str(path), line, texts, wrong or told)


def _values(
    row: dict[str, object], names: Sequence[str], reads: Sequence[Callable[[str, object], str]]
) -> tuple[tuple[str, ...], str]:
    """The texts of an object under some keys, and what is wrong with the first that is none."""
    texts, wrong = [], ""
    for name, read in zip(names, reads, strict=False):
        try:
            if name not in row:
                raise ValueError(f"no key {name!r}")
            texts.append(read(name, row[name]))
        except ValueError as error:
            texts.append("")
            wrong = wrong or str(error)
    return tuple(texts), wrong
