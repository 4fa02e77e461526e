"""Files of pairs of texts: parallel files, tables, translation memories, folders and archives, one pair after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice, zip_longest
from pathlib import Path

from regard.data.archives import pair_files, split_member
from regard.data.lines import Bad, decode_line, line_blocks, lines_of, suffix_of
from regard.data.parquet import PARQUET, parquet_cells, parquet_table
from regard.data.rows import (
    FORMATS,
    MISSING,
    RowsOfFile,
    Table,
    Wanted,
    as_text,
    is_numbers,
    no_column,
    place_of,
    read_table,
    renamed,
    tsv_cells,
    words_of,
)
from regard.data.tmx import TMX, tmx_pairs
from regard.errors import Advice, Option, RegardError, UsageError

Pair = tuple[str, str]
Block = Callable[[], list[Pair]]  # some pairs, read when it is called
FIELDS = ("source", "target")
SOURCE_NAMES = ("source", "src", "input", "source_text", "src_text", "original")
FORMS = (*FORMATS, TMX, PARQUET)  # of one file of pairs
TARGET_NAMES = ("target", "tgt", "output", "target_text", "tgt_text", "translation", "reference")
_LANGUAGES = """
ar bg bn ca cs da de el en es et fa fi fr ga gl gu he hi hr hu hy is it ja ka kk ko lt lv mk mn ms nb nl nn no pl pt
ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh arabic bulgarian catalan chinese croatian czech danish dutch english
estonian finnish french german greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latvian
lithuanian norwegian persian polish portuguese romanian russian serbian slovak slovenian spanish swahili swedish tamil
thai turkish ukrainian urdu vietnamese deutsch español français italiano
"""
LANGUAGES = frozenset(_LANGUAGES.split())  # what columns of sentences are called


@dataclass(frozen=True)
class PairReader:
    """How files of pairs are read, and where it is told what was guessed of them and what is wrong with single pairs.

    `fields` are the columns or keys of source and target, by name or number; `languages` also name them, and the sides of
    a translation memory, and files in a folder. `bad` gets errors by the places of their pairs, from 0, and these are
    empty; without it, one of them is an error.
    """

    fields: tuple[str, str] = FIELDS
    languages: tuple[str, str] | None = None
    notes: list[str] | None = None
    bad: Bad | None = None

    def pairs(self, paths: Sequence[Path]) -> Iterator[Pair]:
        """The pairs of one file, of two parallel files, or of a folder or archive of them, one after the other."""
        paths = meant_files(paths, self.languages)
        if len(paths) == 2:
            return self._parallel(paths[0], paths[1])
        form = suffix_of(paths[0]).lower()
        if form == TMX:
            return (pair for _, pair in tmx_pairs(paths[0], self.languages, self.notes))
        return self._parquet(paths[0]) if form == PARQUET else self._table(paths[0])

    def blocks(self, paths: Sequence[Path], skip: int, size: int) -> Iterator[Block]:
        """The pairs behind the first `skip`, so many at once, each block read by whoever calls it.

        Of parallel files and TSV nothing is decoded before, so that several processes can share the work; of other forms
        the pairs are there already.
        """
        found = meant_files(paths, self.languages)
        if self.bad is None and len(found) == 2:
            return self._parallel_blocks(found[0], found[1], skip, size)
        if self.bad is None and suffix_of(found[0]).lower() not in (TMX, PARQUET):
            return self._table_blocks(found[0], skip, size)
        return pair_blocks(islice(self.pairs(paths), skip, None), size)

    def _parallel_blocks(self, source: Path, target: Path, skip: int, size: int) -> Iterator[Block]:
        sides = line_blocks(source, skip, size), line_blocks(target, skip, size)
        is_whole = skip > 0  # a file without lines is not
        for number, both in zip(count(skip + 1, size), zip_longest(*sides, fillvalue=())):
            is_whole = len(both[0]) == len(both[1])
            if not is_whole:
                break
            yield partial(_decoded, (source, target), number, both)
        if not is_whole:
            for _ in self._parallel(source, target):
                pass  # it tells what is wrong

    def _table_blocks(self, path: Path, skip: int, size: int) -> Iterator[Block]:
        table, first, second = self._columns(path, None)
        if not isinstance(table.rows, RowsOfFile) or table.rows.above is None:
            rows = islice(table.rows, skip, None)
            yield from pair_blocks((_row_pair(table, *row, first, second, None) for row in rows), size)
            return
        above = table.rows.above + skip
        for number, lines in zip(count(above + 1, size), line_blocks(path, above, size)):
            yield partial(_split, table, number, lines, first, second)

    def _parallel(self, source: Path, target: Path) -> Iterator[Pair]:
        wrong: tuple[Bad, Bad] | tuple[None, None] = (None, None) if self.bad is None else ({}, {})
        sides = lines_of(source, bad=wrong[0]), lines_of(target, bad=wrong[1])
        for place, (first, second) in enumerate(zip_longest(*sides)):
            if first is None or second is None:
                counts = [
                    place + sum(1 for _ in side) + (line is not None)
                    for side, line in zip(sides, (first, second), strict=True)
                ]
                raise RegardError(
                    f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}",
                    "line n of one must translate line n of the other",
                )
            if self.bad is not None and (
                found := [each.pop(place + 1) for each in wrong if each and place + 1 in each]
            ):
                self.bad[place] = found[-1]
            yield first, second

    def _table(self, path: Path) -> Iterator[Pair]:
        lines: Bad | None = None if self.bad is None else {}
        table, first, second = self._columns(path, lines)
        for place, (line, row) in enumerate(table.rows):
            wrong = lines.get(line) if lines else None
            yield self._pair(place, partial(_row_pair, table, line, row, first, second, wrong))

    def _columns(self, path: Path, lines: Bad | None) -> tuple[Table, int, int]:
        """A table, and where source and target are in it; what was guessed of that is noted."""
        source, target = wanted_columns(self.fields, self.languages)
        table = read_table(path, (source, target), "data.fields", titles=LANGUAGES, bad=lines)
        first, second, guessed = find_columns(table if self.bad is None else _whole_rows(table), source, target)
        if self.notes is not None and guessed:
            columns = f"source is {table.kind} {table.called(first)}, target is {table.kind} {table.called(second)}"
            otherwise = ("; say otherwise with ", Option("source"), " and ", Option("target"), ")")
            self.notes.append(Advice(f"{path}: {columns} ({guessed}", *otherwise))
        return table, first, second

    def _parquet(self, path: Path) -> Iterator[Pair]:
        table = parquet_table(path)
        first, second, guessed = find_columns(table, *wanted_columns(self.fields, self.languages))
        if self.notes is not None and guessed:
            self.notes.append(f"{path}: source is {table.called(first)}, target is {table.called(second)} ({guessed})")
        number = 0
        for number, cells in parquet_cells(path, (first, second)):
            yield self._pair(number - 1, partial(as_pair, path, number, cells))
        if not number:
            raise RegardError(f"{path} is empty", "it should hold a pair a row")

    def _pair(self, place: int, read: Callable[[], Pair]) -> Pair:
        """A pair as it is read; one that is wrong is empty, and noted, if someone asked for what is wrong."""
        try:
            return read()
        except RegardError as error:
            if self.bad is None:
                raise
            self.bad[place] = error
            return "", ""


def pair_blocks(pairs: Iterable[Pair], size: int) -> Iterator[Block]:
    """Pairs that are read as they come, so many at once."""
    left = iter(pairs)
    while found := list(islice(left, size)):
        yield partial(list, found)


def _decoded(paths: tuple[Path, Path], number: int, sides: Sequence[Sequence[bytes]]) -> list[Pair]:
    """Lines of two parallel files, from line `number` on, as pairs."""
    texts = [
        [decode_line(raw, line, str(path)) for line, raw in enumerate(lines, start=number)]
        for path, lines in zip(paths, sides, strict=True)
    ]
    return list(zip(*texts, strict=True))


def _split(table: Table, number: int, lines: Sequence[bytes], first: int, second: int) -> list[Pair]:
    """Lines of TSV, from line `number` on, as pairs."""
    name = str(table.path)
    texts = ((line, decode_line(raw, line, name)) for line, raw in enumerate(lines, start=number))
    return [_row_pair(table, line, tsv_cells(text), first, second, None) for line, text in texts]


def meant_files(paths: Sequence[Path], languages: tuple[str, str] | None) -> tuple[Path, ...]:
    """The file of pairs or the two parallel files that paths mean: these themselves, or what is in a folder or archive."""
    if len(paths) == 2:
        found = [pair_files(path, None, FORMS) for path in paths]
        return found[0][0], found[1][0]
    found = [pair_files(path, languages, FORMS) for path in paths]
    if len(found) == 1 and (len(found[0]) == 2 or is_one_file(found[0][0])):
        return found[0]
    named = ", ".join(map(str, paths))
    raise UsageError(
        f"{named}: {renamed(paths[0])}pairs come as one .tsv, .csv or .jsonl file, or as two parallel files (each may "
        "end in .gz)"
    )


def is_one_file(path: Path) -> bool:
    """Whether a file holds both sides of pairs: by its name, or as the only text of an archive, where all but names tell."""
    form = suffix_of(path).lower()
    if form == PARQUET and split_member(path) is not None:
        raise UsageError(f"{path}: Parquet is not read inside an archive", "unpack it first")
    return form in FORMS or split_member(path) is not None


def as_pair(path: Path, number: int, cells: Sequence[object]) -> Pair:
    """Two cells of row `number` as texts; one without a value is empty."""
    try:
        source, target = (
            "" if cell is MISSING else as_text(name, cell) for name, cell in zip(FIELDS, cells, strict=True)
        )
    except ValueError as error:
        raise RegardError(f"{path}, row {number}: {error}") from error
    return source, target


def _row_pair(
    table: Table, line: int, row: Sequence[object], first: int, second: int, wrong: RegardError | None
) -> Pair:
    """The pair in two columns of a row, unless something is wrong with its line."""
    if wrong is not None:
        raise wrong
    if table.separator and row and len(row) <= max(first, second):
        raise RegardError(f"{table.path}, line {line}: {_too_few(table, row, first, second)}")
    return (table.cell(line, row, first, as_text), table.cell(line, row, second, as_text)) if row else ("", "")


def _whole_rows(table: Table) -> Table:
    """Without rows of one cell, if others have more: these tell where source and target are."""
    rows = [(line, row) for line, row in table.seen if len(row) != 1]
    return replace(table, rows=rows, sample=None) if any(row for _, row in rows) else table


def wanted_columns(fields: tuple[str, str], languages: tuple[str, str] | None) -> tuple[Wanted, Wanted]:
    """The columns that pairs are looked for in, by the names that a person gave or that mean them."""
    codes = [(code.casefold(),) for code in languages] if languages else [(), ()]
    asked = [None if field == usual else field for field, usual in zip(fields, FIELDS, strict=True)]
    return (
        Wanted("source", Option("source"), asked[0], (*SOURCE_NAMES, *codes[0])),
        Wanted("target", Option("target"), asked[1], (*TARGET_NAMES, *codes[1])),
    )


def find_columns(table: Table, source: Wanted, target: Wanted) -> tuple[int, int, str]:
    """The places of source and target, and what was guessed of them: as asked, by name, else in their order."""
    first, second = place_of(table, source), place_of(table, target)
    if not table.width:
        return 0, 1, ""  # nothing but blank lines
    if first is not None and second is not None:
        if first == second:
            raise UsageError(f"{table.path}: column {table.called(first)} cannot be source and target at once")
        return first, second, ""
    named = [place for place, name in enumerate(table.names) if words_of(name) & LANGUAGES]
    if first is None and second is None:
        usual = named if len(named) == 2 else list(range(table.width))
        if len(usual) == 2 or (not table.names and len(usual) > 2 and not _numbers_before_texts(table)):
            return usual[0], usual[1], "the first two" if table.names else ""
    rest = [place for place in range(table.width) if place not in (first, second)]
    if len(rest) == 1 and first is not None:
        return first, rest[0], "the other column"
    if len(rest) == 1 and second is not None:
        return rest[0], second, "the other column"
    raise _unsure(table, source if first is None else target)


def _numbers_before_texts(table: Table) -> bool:
    """Whether the first of several columns holds numbers and the second does not: then it hardly is the source."""
    return is_numbers(table.column(0)) and not is_numbers(table.column(1))


def _unsure(table: Table, wanted: Wanted) -> RegardError:
    """That a column cannot be told, and the ways to say it."""
    if not table.separator:
        return RegardError(no_column(table, wanted.names[0]))
    if table.width < 2:
        line, row = next(((line, row) for line, row in table.seen if row), (1, []))
        return RegardError(f"{table.path}, line {line}: {_too_few(table, row, 0, 1)}")
    return UsageError(
        f"{table.path}: which column is the {wanted.what}? There is {table.columns()}",
        Advice(
            "write source and target as the first two columns, or name them source and target in the first line, or say ",
            *(Option("source"), " and ", Option("target"), " by name or number, as "),
            *(Option("source", "2"), " ", Option("target", "3"), " (data.fields)"),
        ),
    )


def _too_few(table: Table, row: Sequence[object], first: int, second: int) -> str:
    between = table.separator.removeprefix("a ")
    if len(row) < 2:
        return f"no {between}; write source, {between}, target (further columns are ignored)"
    return f"{len(row)} columns, and source and target are in columns {first + 1} and {second + 1}"
