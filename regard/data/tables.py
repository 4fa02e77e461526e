"""Questions about tables: built-in ones, JSON Lines of one's own, and tables from CSV; and how a question is read.

Of a question, a word that names a column of the table becomes the mark `@`, a number the mark `#`; a model is told which column
and which number stand there. So it learns how questions are built, and reads tables with any names and any numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import find_file
from regard.data import held_out
from regard.data.builtin.tables import table_questions
from regard.data.config import TablesConfig, generated
from regard.data.lines import lines_of, suffix_of
from regard.data.programs import (
    COMPARE,
    OF_COLUMN,
    OPERATIONS,
    Answer,
    Cell,
    Step,
    Table,
    TableQuestion,
    run_program,
    same_answer,
)
from regard.data.rows import csv_rows, tsv_rows
from regard.errors import RegardError, UsageError

VALIDATED, TESTED = 600, 1000  # built-in questions
MOST = {"tables": 4}  # operations of a built-in question
KEYS = ("table", "question", "answer", "program")
SHOULD = '{"table": [{"name": "Ada", "price": 3}, ...], "question": "...", "answer": 7 or ["Ada"]}'
COLUMN, NUMBER = "@", "#"
_WORDS = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?|[^\W\d_]+|\d+")
_CELL = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")  # a number in a file
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class ReadQuestion:
    """A question as words, with the places where it names columns and numbers."""

    words: tuple[str, ...]  # in small letters, with marks for columns and numbers
    columns: tuple[tuple[int, int], ...]  # place in the question, column of the table
    numbers: tuple[tuple[int, float], ...]  # place in the question, number

    def __str__(self) -> str:
        return " ".join(self.words)


def read_question(question: str, columns: Sequence[str]) -> ReadQuestion:
    """Find columns and numbers in a question; a longer name comes before a shorter one, a plural `s` changes nothing."""
    left, words = _WORDS.findall(question.lower()), list[str]()
    names = sorted(
        ((tuple(_WORDS.findall(name.lower())), place) for place, name in enumerate(columns)),
        key=lambda each: (-len(each[0]), each[1]),
    )
    named, numbers = list[tuple[int, int]](), list[tuple[int, float]]()
    while left:
        found = next((each for each in names if each[0] and _begins(left, each[0])), None)
        if found is not None:
            named.append((len(words), found[1]))
            words.append(COLUMN)
            left = left[len(found[0]) :]
            continue
        word, left = left[0], left[1:]
        if _NUMBER.fullmatch(word):
            numbers.append((len(words), float(word.replace(",", ""))))
            word = NUMBER
        words.append(word)
    return ReadQuestion(tuple(words), tuple(named), tuple(numbers))


def _begins(words: Sequence[str], name: Sequence[str]) -> bool:
    if len(words) < len(name):
        return False
    *others, last = words[: len(name)]
    return others == list(name[:-1]) and last in (name[-1], f"{name[-1]}s")


@dataclass(frozen=True)
class TableSets:
    """The questions of a run, and sentences for the person."""

    train: list[TableQuestion]
    valid: list[TableQuestion]
    notes: tuple[str, ...]


def load_tables(config: TablesConfig, data_root: Path | None = None) -> TableSets:
    """Training and validation questions as the configuration names them."""
    train = read_tables(config.train, data_root, "train", config.builtin_size)
    if config.valid:
        return TableSets(train, read_tables(config.valid, data_root, "valid"), ())
    if all(name.startswith("builtin/") for name in config.train):
        return TableSets(train, read_tables(config.train, data_root, "valid"), ())
    train, valid = hold_out(train, config.hold_out)
    if not train or not valid:
        raise RegardError(f"{len(train)} training and {len(valid)} validation questions", "give more tables")
    told = f"no validation set: held out {len(valid):,} of {len(train) + len(valid):,} questions (by table)"
    return TableSets(train, valid, (told,))


def read_tables(
    names: Sequence[str], data_root: Path | None = None, split: str = "test", size: int | None = None
) -> list[TableQuestion]:
    """The questions of JSON Lines files, or built-in ones, of which there are `size`."""
    found = [asked for name in names for asked in _named(name, data_root, split, size)]
    if not found:
        raise RegardError(f"there are no questions in {', '.join(names)}")
    return found


def _named(name: str, data_root: Path | None, split: str, size: int | None) -> Sequence[TableQuestion]:
    if name.startswith("builtin/"):
        which = generated(name, MOST)
        split = which.split or split
        return table_questions(split, size or {"valid": VALIDATED}.get(split, TESTED), which.length or which.most)
    path = find_file(name, data_root)
    if suffix_of(path) not in (".jsonl", ".json"):
        raise UsageError(f"{path}: questions about tables are .jsonl, each line {SHOULD}")
    return list(_json_questions(path))


def _json_questions(path: Path) -> Iterator[TableQuestion]:
    for line, text in enumerate(lines_of(path), start=1):
        if not text.strip():
            continue
        try:
            yield question_from(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise RegardError(f"{path}, line {line}: {error}", f"each line should be {SHOULD}") from error


def question_from(row: object) -> TableQuestion:
    """A question from JSON; a ValueError says what is wrong with it."""
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}, not an object")
    if unknown := sorted(row.keys() - set(KEYS)):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(KEYS)}")
    table, question = table_from(row.get("table")), row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("no text under 'question'")
    given = row.get("answer")
    answer: Answer = tuple(_cell(each, "answer") for each in given) if isinstance(given, list) else _number(given)
    program = tuple(step_from(each, table) for each in _texts(row.get("program", [])))
    if not isinstance(answer, tuple):
        cells: tuple[tuple[int, int], ...] = ()
    else:
        cells = printed_cells(table, question, answer)
    if program and not same_answer(found := run_program(table, program)[0], answer):
        raise ValueError(f"the program gives {found}, and the answer is {answer}")
    return TableQuestion(table, question.strip(), answer, cells, program)


def table_from(rows: object) -> Table:
    """A table from a list of objects that all have the same keys."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and row for row in rows):
        raise ValueError('table is not a list of rows, each an object such as {"name": "Ada", "price": 3}')
    columns = tuple(rows[0])
    for number, row in enumerate(rows, start=1):
        if set(row) != set(columns):
            raise ValueError(f"row {number} of the table has {', '.join(row)}, and row 1 {', '.join(columns)}")
    return checked(Table(columns, tuple(tuple(_cell(row[name], name) for name in columns) for row in rows)))


def checked(table: Table) -> Table:
    """The table, if no column holds both numbers and words."""
    for place, name in enumerate(table.columns):
        words = [row[place] for row in table.rows if isinstance(row[place], str) and row[place]]
        if words and any(not isinstance(row[place], str) for row in table.rows):
            raise ValueError(f"column {name!r} has numbers, and the word {words[0]!r}")
    return table


def _cell(value: object, name: str) -> Cell:
    if isinstance(value, str):
        return value
    try:
        return _number(value)
    except ValueError:
        raise ValueError(f"{value!r} under {name!r} is neither a number nor a word") from None


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no answer: a number, or a list of cells")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("program is not a list of steps such as 'greater price 5'")
    return value


def step_from(text: str, table: Table) -> Step:
    """A step of a program as it is written: "greater price 5", "sum price", "count"."""
    operation, _, rest = text.strip().partition(" ")
    if operation not in OPERATIONS:
        raise ValueError(f"{operation!r} is none of the operations {', '.join(OPERATIONS)}")
    column, number = rest.strip(), None
    if operation in COMPARE:
        column, _, last = column.rpartition(" ")
        if not _NUMBER.fullmatch(last):
            raise ValueError(f"{text!r} ends with no number")
        number = float(last)
    if operation not in OF_COLUMN and column:
        raise ValueError(f"{operation} takes no column, such as {column!r}")
    if operation in OF_COLUMN and column not in table.columns:
        raise ValueError(f"{text!r} needs one of the columns {', '.join(table.columns)}")
    return Step(operation, column, number)


def printed_cells(table: Table, question: str, answer: tuple[Cell, ...]) -> tuple[tuple[int, int], ...]:
    """The cells that are an answer: of the first column that holds them all, of those that the question names if it can be."""
    named = [column for _, column in read_question(question, table.columns).columns]
    for column in dict.fromkeys((*named, *range(len(table.columns)))):
        cells = [row[column] for row in table.rows]
        if answer and set(answer) <= set(cells):
            return tuple((row, column) for row, cell in enumerate(cells) if cell in answer)
    raise ValueError(f"no column of the table holds {', '.join(map(str, answer)) or 'an empty answer'}")


def table_of_file(path: Path) -> Table:
    """A table from CSV or TSV: the first line names the columns, of which those that hold numbers and no words are numbers."""
    rows = tsv_rows(path) if suffix_of(path) == ".tsv" else csv_rows(path)
    filled = [(line, [cell.strip() for cell in cells]) for line, cells in rows if any(map(str.strip, cells))]
    if len(filled) < 2:
        raise RegardError(f"{path} has {len(filled)} lines", "the first names the columns, and each other is a row")
    columns = filled[0][1]
    for line, cells in filled[1:]:
        if len(cells) != len(columns):
            raise RegardError(
                f"{path}, line {line}: {len(cells)} cells, and {len(columns)} columns: {', '.join(columns)}"
            )
    if len(set(columns)) < len(columns):
        raise RegardError(f"{path}: two columns have one name: {', '.join(columns)}")
    by_column = [_numbers_if_all(column) for column in zip(*(cells for _, cells in filled[1:]), strict=True)]
    return Table(tuple(columns), tuple(zip(*by_column, strict=True)))


def _numbers_if_all(cells: Sequence[str]) -> Sequence[Cell]:
    if not any(cells) or not all(_CELL.fullmatch(cell) for cell in cells if cell):
        return cells
    return [_read_number(cell.replace(",", "")) if cell else "" for cell in cells]


def _read_number(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def hold_out(questions: list[TableQuestion], most: int) -> tuple[list[TableQuestion], list[TableQuestion]]:
    """A tenth of the questions, or about `most`; those about one table stay together."""
    held = held_out.held_rows(held_out.hashes_of(str(asked.table) for asked in questions), most, "questions")
    both = list(zip(questions, held, strict=True))
    return [asked for asked, out in both if not out], [asked for asked, out in both if out]
