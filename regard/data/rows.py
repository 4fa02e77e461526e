"""Rows of TSV, CSV and JSON Lines, and which columns are meant: by name, by number, by their header, or by what is in them.

One reader serves pairs, labelled texts, captions and questions. A first line that names the columns is never data.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from regard.data.lines import Bad, decode_lines, lines_of, opened, suffix_of
from regard.errors import Advice, Option, RegardError, UsageError, nearest

T = TypeVar("T")
TableRow = tuple[int, list[object]]  # line and cells
HEAD, SPREAD = 10_000, 4000  # rows that tell which column is which: the first, and some of the others
Reader = Callable[[str, object], str]  # (key, value) -> text, or a ValueError that says what is wrong with the value
FORMATS = (".tsv", ".csv", ".jsonl", ".json")
MISSING = object()  # what a row of JSON Lines has under a key that it lacks
_NAME = re.compile(r"[^\W\d]([\w .()/#:-]{0,38}[\w)])?")  # what people call a column; a sentence ends otherwise
_TITLE = 3  # words of a title at most
_SENTENCE = 12  # characters of a cell, on average, below a header of a few letters
_OTHERS = frozenset(
    ("id", "idx", "index", "uid", "guid", "date", "time", "timestamp", "author", "user", "url", "split")
)
BETWEEN = {",": "a comma", ";": "a semicolon", "\t": "a tab"}  # what divides cells of CSV, in this order
_SAMPLE = 100  # rows that tell what divides a file
_ENOUGH = 8  # rows from which on it tells something that a column has few values


@dataclass(frozen=True)
class Wanted:
    """A column that a reader looks for."""

    what: str  # "text", for the person
    option: Option  # by which a person says which it is
    asked: str | None  # the name or number that the person gave; None: whatever is called by one of `names`
    names: tuple[str, ...]  # that are known to mean it; the first is ours, and wins over the others
    needed: bool = True


class RowsOfFile:
    """The rows of a large file, read anew by whoever goes through them. `above`: lines before them, if each line is a row."""

    def __init__(self, read: Callable[[], Iterator[TableRow]], above: int | None = None) -> None:
        self.read, self.above = read, above

    def __iter__(self) -> Iterator[TableRow]:
        return self.read()


@dataclass(frozen=True)
class Table:
    """The rows of a file, and what its columns are called, if it tells."""

    path: Path
    names: tuple[str, ...]  # of a header, or the keys of JSON Lines; none if columns are only numbered
    rows: Iterable[TableRow]  # line and cells; a blank line has no cells
    separator: str  # "a tab", "a comma", "a semicolon"; "" for JSON Lines
    should: str = ""  # what each row should be, at the end of an error
    sample: Sequence[TableRow] | None = None  # rows that tell which column is which; None: all of them

    @property
    def seen(self) -> Sequence[TableRow]:
        """The rows that tell which column is which."""
        if self.sample is not None:
            return self.sample
        return self.rows if isinstance(self.rows, list) else list(self.rows)

    @property
    def kind(self) -> str:
        return "column" if self.separator else "key"

    @property
    def width(self) -> int:
        return len(self.names) or next((len(cells) for _, cells in self.seen if cells), 0)

    def column(self, place: int) -> list[str]:
        """The cells of a column as plain text, to guess from; rows without it are left out."""
        cells = (row[place] for _, row in self.seen if len(row) > place)
        return [str(cell).strip() for cell in cells if cell is not MISSING]

    def called(self, place: int) -> str:
        """A column's name, or else its number from 1."""
        return (self.names[place].strip() if self.names else "") or str(place + 1)

    def columns(self) -> str:
        """All that could be named, for an error."""
        if self.names:
            return ", ".join(self.called(place) for place in range(self.width))
        return f"column 1 to {self.width}"

    def cell(self, line: int, row: Sequence[object], place: int, read: Reader) -> str:
        """A cell as text; what is wrong with it is told with its line."""
        value = row[place] if len(row) > place else MISSING
        try:
            if value is MISSING:
                raise ValueError(self.lacks(row, self.called(place)))
            return read(self.called(place), value)
        except ValueError as error:
            raise RegardError(f"{self.path}, line {line}: {error}{self.should}") from error

    def lacks(self, row: Sequence[object], name: str) -> str:
        """That a row has nothing under a name, and what it has."""
        if self.separator:
            return f"{len(row)} columns where {self.width} should be"
        there = [key for key, value in zip(self.names, row, strict=True) if value is not MISSING]
        return str(RegardError(f"no key {name!r}", nearest(name, there)))


def renamed(path: Path) -> str:
    """The advice for a file of rows whose name does not say so: each of its first lines has a tab."""
    if not path.is_file():
        return ""
    with opened(path) as file:
        lines = [line for line in islice(file, _SAMPLE) if line.strip()]
    if not lines or not all(b"\t" in line for line in lines):
        return ""
    name = path.name.removesuffix(".gz")
    return f"it has tabs: call it {Path(name).with_suffix('.tsv')}{path.name[len(name) :]}; "


def read_table(
    path: Path,
    wanted: Sequence[Wanted],
    see: str,
    encoding: str = "utf-8",
    *,
    values: Collection[str] = frozenset(),
    titles: Collection[str] = frozenset(),
    bad: Bad | None = None,
    spread: bool = False,
) -> Table:
    """The rows of a file by what its name ends with; a header is taken from them.

    `see` names the settings of its columns. `values` are known to stand below a header and never in it; where each cell
    of the first row has one of `titles`, above longer texts, it is a header. `bad` gets the lines of TSV and JSON Lines
    that cannot be read; without it, one such line is an error. Of a file with more than HEAD rows these tell which column is
    which, with `spread` also a sample of the others, and the rows are read as they are asked for.
    """
    if (kind := suffix_of(path)) in (".jsonl", ".json"):
        return _json_table(path, wanted, see, bad, spread)
    delimiter = delimiter_of(partial(_csv_lines, path, encoding)) if kind == ".csv" else "\t"

    def read() -> Iterator[tuple[int, list[str]]]:
        return _split(path, delimiter, encoding) if kind == ".csv" else tsv_rows(path, encoding, bad)

    rows, is_all = some_rows(read, spread)
    found = table_of(path, rows, delimiter, wanted, values=values, titles=titles)
    if is_all:
        return found
    below = next(line for line, cells in rows if tuple(cells) == found.names) if found.names else 0
    left = RowsOfFile(lambda: _below(read(), below), None if kind == ".csv" else below)
    return replace(found, rows=left, sample=found.seen)


def _below(rows: Iterable[tuple[int, list[str]]], line: int) -> Iterator[TableRow]:
    """The rows below a header, blank ones without cells."""
    return ((number, list(cells) if any(map(str.strip, cells)) else []) for number, cells in rows if number > line)


def tsv_cells(line: str) -> list[object]:
    """The cells between the tabs of a line; a blank one has none."""
    return list(line.split("\t")) if line.strip() else []


def some_rows(read: Callable[[], Iterator[T]], spread: bool) -> tuple[list[T], bool]:
    """The first rows, and whether these are all; with `spread` and a seeded sample of the others (Vitter 1985, algorithm R)."""
    rows = read()
    head = list(islice(rows, HEAD))
    draw, more = random.Random(1), list[T]()
    for number, row in enumerate(rows):
        if not spread:
            return head, False
        if number < SPREAD:
            more.append(row)
        elif (place := draw.randrange(number + 1)) < SPREAD:
            more[place] = row
    return head + more, not more


def table_of(
    path: Path,
    rows: list[tuple[int, list[str]]],
    delimiter: str,
    wanted: Sequence[Wanted],
    *,
    values: Collection[str] = frozenset(),
    titles: Collection[str] = frozenset(),
) -> Table:
    """A table of cells that were read already: a first row that names the columns is taken from them."""
    full = [cells for _, cells in rows if any(cell.strip() for cell in cells)]
    names: tuple[str, ...] = ()
    if full and (names_columns(full[0], full[1:], wanted, values) or _are_titles(full[0], full[1:], titles)):
        names = tuple(full[0])
        first = next(place for place, (_, cells) in enumerate(rows) if cells is full[0])
        rows = rows[first + 1 :]
    return Table(path, names, list(_below(rows, 0)), BETWEEN[delimiter])


def tsv_rows(path: Path, encoding: str = "utf-8", bad: Bad | None = None) -> Iterator[tuple[int, list[str]]]:
    """Lines, from 1, and what stands between their tabs."""
    for number, line in enumerate(lines_of(path, encoding, bad), start=1):
        yield number, line.split("\t")


def csv_rows(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, list[str]]]:
    """Lines in which rows end, from 1, and their cells."""
    return _split(path, delimiter_of(partial(_csv_lines, path, encoding)), encoding)


def _csv_lines(path: Path, encoding: str) -> Iterator[str]:
    """Lines with their ends; a carriage return alone also ends one."""
    with opened(path) as file:
        for line in decode_lines(file, str(path), encoding):
            yield from io.StringIO(line + "\n", newline="") if "\r" in line else (line + "\n",)


def _split(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(_csv_lines(path, encoding), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if reader.line_num > 1 or row != ["sep=", ""]:
                yield reader.line_num, row
    except csv.Error as error:
        raise RegardError(f"{path}, line {reader.line_num}: {error}; it is not valid CSV") from error


def delimiter_of(lines: Callable[[], Iterator[str]]) -> str:
    """The delimiter that divides the first rows into equally many cells, more than one; a comma is tried first.

    Spreadsheets write semicolons where the comma is in numbers, and some say so in a first line such as "sep=;".
    """
    if (declared := re.match(r"sep=([,;\t])\r?\n", next(lines(), ""))) is not None:
        return declared[1]
    return next((each for each in BETWEEN if _divides(lines(), each)), ",")


def _divides(lines: Iterator[str], delimiter: str) -> bool:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        widths = {len(row) for row in islice(reader, _SAMPLE) if any(cell.strip() for cell in row)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}


def _json_table(path: Path, wanted: Sequence[Wanted], see: str, bad: Bad | None, spread: bool) -> Table:
    names = [each.asked or each.names[0] for each in wanted if each.needed or each.asked]
    should = "; each line should be {" + ", ".join(f'"{name}": "…"' for name in names) + f"}} (see {see})"
    read = partial(_objects, path, should, bad)
    found, is_all = some_rows(read, spread)
    keys = tuple(dict.fromkeys(key for _, row in found if row for key in row))
    rows = list(_under(keys, found))
    if is_all:
        return Table(path, keys, rows, "", should)
    return Table(path, keys, RowsOfFile(lambda: _under(keys, read())), "", should, rows)


def _under(keys: Sequence[str], rows: Iterable[tuple[int, dict[str, object] | None]]) -> Iterator[TableRow]:
    """Line and values of each row under the keys."""
    return ((line, [] if row is None else [row.get(key, MISSING) for key in keys]) for line, row in rows)


def _objects(path: Path, should: str, bad: Bad | None) -> Iterator[tuple[int, dict[str, object] | None]]:
    """Lines of JSON, from 1, and their objects; a blank line has none."""
    for number, line in enumerate(lines_of(path, bad=bad), start=1):
        try:
            row = json.loads(line) if line.strip() else None
            if line.strip() and not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__}, not an object")
        except (ValueError, RecursionError) as error:  # JSONDecodeError is a ValueError
            wrong = RegardError(f"{path}, line {number}: {error}{should}")
            if bad is None:
                raise wrong from error
            bad[number], row = wrong, None
        yield number, row


# --- Headers


def names_columns(
    first: Sequence[str], below: Sequence[Sequence[str]], wanted: Sequence[Wanted], values: Collection[str]
) -> bool:
    """Whether a first row names the columns: it has a name that was asked for, or all that are known, or looks so."""
    cells = [cell.strip().casefold() for cell in first]
    asked = {each.asked.casefold() for each in wanted if each.asked is not None and not each.asked.isdecimal()}
    if asked & set(cells):
        return True
    needed = [each for each in wanted if each.needed and each.asked is None]
    if len(needed) > 1 and all(set(each.names) & set(cells) for each in needed):
        return True
    return not any(cell.strip() in values for cell in first) and _looks_like_names(first, below, wanted)


def _looks_like_names(first: Sequence[str], below: Sequence[Sequence[str]], wanted: Sequence[Wanted]) -> bool:
    """Short words, all different, that do not come again below: one of them known, or above numbers or repeated values."""
    cells = [cell.strip() for cell in first]
    names = [cell for cell in cells if cell]  # a column of numbers that pandas wrote has no name
    if not names or len(set(names)) < len(names) or not all(_NAME.fullmatch(name) for name in names):
        return False
    columns = [[row[place].strip() for row in below if len(row) > place] for place in range(len(cells))]
    if any(cell in column for cell, column in zip(cells, columns, strict=True) if cell):
        return False
    known = _OTHERS.union(*(each.names for each in wanted))
    if any(name.casefold() in known for name in names):
        return True
    return any(is_numbers(column) or _repeats(column) for column in columns)


def _are_titles(first: Sequence[str], below: Sequence[Sequence[str]], titles: Collection[str]) -> bool:
    """Whether each cell has a word such as "en" or "German", and what is below is so long that it is no dictionary.

    Codes of languages are also words ("it", "is", "de"): what has more than a few words is a sentence.
    """
    words = [words_of(cell) for cell in first]
    if not below or len(first) < 2 or len(set(first)) < len(first):
        return False
    if not all(
        each & set(titles) and len(each) <= _TITLE and _NAME.fullmatch(cell.strip())
        for each, cell in zip(words, first, strict=True)
    ):
        return False
    return sum(len(cell) for row in below for cell in row) > _SENTENCE * sum(map(len, below))


def words_of(name: str) -> set[str]:
    """The words of a column's name: "english_text" has two."""
    return set(re.split(r"[\W_]+", name.strip().casefold()))


def is_numbers(column: Sequence[str]) -> bool:
    """Whether all of a column are numbers (and there are some)."""
    return bool(column) and all(re.fullmatch(r"[-+]?\d+([.,]\d+)?", cell) for cell in column)


def counts_rows(column: Sequence[str]) -> bool:
    """Whether a column only counts the rows: whole numbers, each one more than the last."""
    if len(column) < 2 or not all(re.fullmatch(r"\d{1,15}", cell) for cell in column):
        return False
    first = int(column[0])
    return all(int(cell) == first + place for place, cell in enumerate(column))


def _repeats(column: Sequence[str]) -> bool:
    """Whether every value of a column comes more than once, and there are few of them."""
    counts = Counter(column)
    return few_values(column) and min(counts.values()) > 1


def few_values(column: Sequence[str]) -> bool:
    """Whether a column has as few different values as one of labels: two or more, up to a fifth of the rows."""
    return len(column) >= _ENOUGH and 2 <= len(set(column)) <= max(2, len(column) // 5)


# --- Which column is meant


def place_of(table: Table, wanted: Wanted) -> int | None:
    """Where a column is: as asked, or under a known name; None where neither tells, or two known names do."""
    folded = [name.strip().casefold() for name in table.names]
    if wanted.asked is not None:
        return _asked_place(table, wanted, folded)
    if wanted.names[0] in folded:
        return folded.index(wanted.names[0])
    known = [place for place, name in enumerate(folded) if name in wanted.names]
    return known[0] if len(known) == 1 else None


def _asked_place(table: Table, wanted: Wanted, folded: Sequence[str]) -> int:
    assert wanted.asked is not None
    plain = [name.strip() for name in table.names]
    for names, name in ((plain, wanted.asked), (folded, wanted.asked.casefold())):
        if names.count(name) > 1:
            raise RegardError(f"{table.path}: two columns are called {wanted.asked}", "say which by its number")
        if name in names:
            return names.index(name)
    if table.separator and wanted.asked.isdecimal():
        if 1 <= int(wanted.asked) <= table.width:
            return int(wanted.asked) - 1
        raise UsageError(
            Advice(
                f"{table.path}: ",
                Option(wanted.option.name, wanted.asked),
                f": there are {table.width} columns, 1 to {table.width}",
            )
        )
    raise UsageError(no_column(table, wanted.asked, wanted.option))


def no_column(table: Table, name: str, option: Option | None = None) -> str:
    """That a file has no such column or key, and which it has."""
    if not table.separator:
        line, row = next(((line, row) for line, row in table.seen if row), (1, []))
        return f"{table.path}, line {line}: {table.lacks(row, name)}{table.should}"
    asked = ("",) if option is None else (" (", option, ")")
    if not table.names:
        first = next((row for _, row in table.seen if row), [])
        cells = ", ".join(repr(str(cell)[:30]) for cell in first)
        seen = f": the first line is {cells}; a number, 1 to {table.width}, will do"
        return Advice(f"{table.path}: no column {name!r}", *asked, seen)
    names = [table.called(place) for place in range(table.width)]
    close = get_close_matches(name, names, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return Advice(f"{table.path}: no column {name!r}", *asked, f"; there is {', '.join(names)}{meant}")


# --- What a cell may hold


def as_text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key} holds a lone surrogate, which is not Unicode text") from None
    return value


def as_label(key: str, value: object) -> str:
    """A label may be a text, a whole number, or true and false."""
    if isinstance(value, int):  # True and False are also int
        return str(value)
    label = as_text(key, value).strip()
    if not label:
        raise ValueError(f"{key} is empty")
    return label
