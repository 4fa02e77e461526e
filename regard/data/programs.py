"""Tables, and programs that compute with them: a few operations, each on a column, one after the other.

    reset    select every row
    greater  select the rows whose cell in a column is greater than a number, among all rows; lesser likewise
    and, or  the rows that the last two steps both selected, or that one of them did
    sum      add up a column over the selected rows; count: how many they are; print: their cells of a column

The operations are those of Neelakantan et al. 2016 (`print` is their `assign`; `difference` is left out). The answer is what
the last step gives; a step that gives one selects nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Cell = int | float | str
Answer = int | float | tuple[Cell, ...]
Effect = tuple[object, ...]  # what a program comes to, as a tree

OPERATIONS = ("reset", "greater", "lesser", "and", "or", "sum", "count", "print")
OF_COLUMN = ("greater", "lesser", "sum", "print")  # those that need one
COMPARE = ("greater", "lesser")
ANSWER = ("sum", "count", "print")
TOLERANCE = 1e-6
EVERY: Effect = ("reset",)
NONE: Effect = ("none",)


@dataclass(frozen=True)
class Table:
    """Named columns, each of numbers or of words; a cell may be empty, which is no number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers, and no words."""
        columns = ([row[place] for row in self.rows if row[place] != ""] for place in range(len(self.columns)))
        return tuple(bool(cells) and not any(isinstance(cell, str) for cell in cells) for cells in columns)


@dataclass(frozen=True)
class Step:
    """One operation, with its column and its number where it has them."""

    operation: str
    column: str = ""
    number: float | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f"{self.number:g}"
        return " ".join(part for part in (self.operation, self.column, number) if part)


@dataclass(frozen=True)
class TableQuestion:
    """A question about a table and its answer: a number, or the cells that are printed."""

    table: Table
    question: str
    answer: Answer
    cells: tuple[tuple[int, int], ...] = ()  # row and column of each printed cell
    program: tuple[Step, ...] = ()  # that gives the answer, where it is known

    @property
    def prints(self) -> bool:
        return isinstance(self.answer, tuple)


def run_program(table: Table, program: Sequence[Step]) -> tuple[Answer, tuple[int, ...]]:
    """The answer of a program, and the rows that its last step is of."""
    if not program or program[-1].operation not in ANSWER:
        raise ValueError(f"the last operation is {program[-1].operation if program else 'missing'}: it gives no answer")
    *before, last = program
    rows = selections(table, before)[-1] if before else _every(table)
    if last.operation == "count":
        return len(rows), rows
    place = table.columns.index(last.column)
    cells = tuple(table.rows[row][place] for row in rows)
    return (cells if last.operation == "print" else sum(cell for cell in cells if not isinstance(cell, str))), rows


def selections(table: Table, program: Sequence[Step]) -> list[tuple[int, ...]]:
    """The rows that are selected behind each step, from 0."""
    found = [_every(table), _every(table)]
    for step in program:
        found.append(_selected(step, table, *found[-2:]))
    return found[2:]


def _every(table: Table) -> tuple[int, ...]:
    return tuple(range(len(table.rows)))


def _selected(step: Step, table: Table, before: tuple[int, ...], last: tuple[int, ...]) -> tuple[int, ...]:
    if step.operation == "reset":
        return _every(table)
    if step.operation == "and":
        return tuple(sorted(set(before) & set(last)))
    if step.operation == "or":
        return tuple(sorted(set(before) | set(last)))
    if step.number is None:
        return ()  # it gave an answer
    place, is_greater, number = table.columns.index(step.column), step.operation == "greater", step.number
    cells = [(row, cells[place]) for row, cells in enumerate(table.rows)]
    holds = [(row, cell > number if is_greater else cell < number) for row, cell in cells if not isinstance(cell, str)]
    return tuple(row for row, does in holds if does)


def effect(program: Sequence[Step]) -> Effect:
    """The tree of what a program comes to: equal where two programs differ only in steps that change nothing."""
    before, last, found = EVERY, EVERY, NONE
    for step in program:
        found = _effect(step, before, last)
        before, last = last, NONE if step.operation in ANSWER else found
    return found


def _effect(step: Step, before: Effect, last: Effect) -> Effect:
    if step.operation == "reset":
        return EVERY
    if step.operation in COMPARE:
        return (step.operation, step.column, step.number)
    if step.operation in ANSWER:
        return (step.operation, step.column if step.operation in OF_COLUMN else "", last)
    neutral, other = (EVERY, NONE) if step.operation == "and" else (NONE, EVERY)
    if other in (before, last):
        return other
    parts = sorted({before, last} - {neutral}, key=repr)
    return neutral if not parts else parts[0] if len(parts) == 1 else (step.operation, *parts)


def used_steps(program: Sequence[Step]) -> frozenset[int]:
    """The places of the steps on which the answer depends, from 0."""
    found, needed = set[int](), {len(program) - 1}
    while needed:
        place = needed.pop()
        found.add(place)
        operation = program[place].operation
        reach = 2 if operation in ("and", "or") else 1 if operation in ANSWER else 0
        needed |= {place - back for back in range(1, reach + 1) if place >= back}
    return frozenset(found)


def same_answer(found: Answer, wanted: Answer) -> bool:
    """Whether two answers are the same: numbers to one part in a million, printed cells as a set."""
    if isinstance(found, tuple) or isinstance(wanted, tuple):
        return isinstance(found, tuple) and isinstance(wanted, tuple) and set(found) == set(wanted)
    return abs(found - wanted) <= TOLERANCE * max(1.0, abs(wanted))


def operations_in(program: Sequence[Step]) -> int:
    """How many operations a program needs; `reset` counts for nothing."""
    return sum(step.operation != "reset" for step in program)
