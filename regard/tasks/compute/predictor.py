"""Compute: a table and a question in, an answer out, and the program that gave it, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from regard.brief import brief, quoted
from regard.bundle import Bundle
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
    selections,
    used_steps,
)
from regard.data.table_batches import EncodedQuestion, encode_question, table_batch
from regard.data.tables import checked, table_of_file
from regard.errors import UsageError
from regard.files import JSON
from regard.look.program import ProgramView, StepWeights
from regard.models.programmer import Choices, hardened
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel

TOGETHER = 256
AnyTable = Table | Mapping[str, Sequence[Cell]] | str | PathLike[str]


@dataclass(frozen=True)
class ChosenStep:
    """One step of the program: what was chosen, with which weights, and which rows are selected behind it, from 0."""

    step: Step
    weights: StepWeights
    rows: tuple[int, ...]
    is_used: bool  # whether the answer depends on it

    def data(self) -> dict[str, JSON]:
        step, weights = self.step, self.weights
        chosen: dict[str, JSON] = {
            "operation": weights.operation[OPERATIONS.index(step.operation)],
            "column": max(weights.column) if step.column else None,
            "number": None if step.number is None else max(weights.number),
        }
        return {
            "operation": step.operation,
            "column": step.column or None,
            "number": step.number,
            "weights": chosen,
            "rows": list(self.rows),
            "used": self.is_used,
        }


@dataclass(frozen=True)
class Computed(Result):
    """A question about a table, the answer of the program that the model chose, and the program."""

    table: Table
    question: str
    answer: Answer
    steps: tuple[ChosenStep, ...]
    numbers: tuple[float, ...] = ()  # that the question names

    def __str__(self) -> str:
        return ", ".join(map(str, self.answer)) if isinstance(self.answer, tuple) else plain(self.answer)

    def __repr__(self) -> str:
        return brief(self, quoted(self.question), str(self), f"({'; '.join(map(str, self.program))})")

    @property
    def program(self) -> tuple[Step, ...]:
        """The steps on which the answer depends."""
        return tuple(each.step for each in self.steps if each.is_used)

    def data(self) -> dict[str, JSON]:
        answer: JSON = list(self.answer) if isinstance(self.answer, tuple) else self.answer
        return {
            "question": self.question,
            "answer": answer,
            "text": str(self),
            "program": [str(step) for step in self.program],
            "steps": [each.data() for each in self.steps],
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Of each column that was summed or compared, how many cells do not count because they hold no number."""
        used = dict.fromkeys(step.column for step in self.program if step.operation in (*COMPARE, "sum"))
        found = []
        for name in used:
            cells = [row[self.table.columns.index(name)] for row in self.table.rows]
            if words := [cell for cell in cells if isinstance(cell, str)]:
                found.append(
                    f"{name}: {len(words)} of {len(cells)} cells hold no number ({words[0]!r}) and do not count"
                )
        return tuple(found)

    @property
    def view(self) -> ProgramView:
        """The choices of each step as panels, and the rows that it selects."""
        return ProgramView(
            title=f"{self.question} {self}",
            notes=(f"a column for each step of the program: {'; '.join(str(each.step) for each in self.steps)}",),
            table=self.table,
            steps=tuple(each.step for each in self.steps),
            weights=tuple(each.weights for each in self.steps),
            rows=tuple(each.rows for each in self.steps),
            numbers=self.numbers,
        )


class TableComputer(Predictor):
    """A trained model that computes answers from tables, ready to use."""

    model: Any

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.tokenizer = bundle.tokenizer

    @overload
    def compute(self, table: AnyTable, question: str) -> Computed: ...
    @overload
    def compute(self, table: AnyTable, question: list[str] | tuple[str, ...]) -> list[Computed]: ...

    def compute(self, table: AnyTable, question: str | Sequence[str]) -> Computed | list[Computed]:
        """Answer a question about a table, or several. A table is a CSV file, or columns by their names."""
        known = table_of(table)
        asked = [question] if isinstance(question, str) else list(question)
        found = self.answers([TableQuestion(known, each, 0) for each in asked])
        return found[0] if isinstance(question, str) else found

    def predict(self, inputs: Sequence[tuple[AnyTable, str]]) -> list[Computed]:  # type: ignore[override]
        """Answer questions, each with its table."""
        return self.answers([TableQuestion(table_of(table), question, 0) for table, question in inputs])

    def answers(
        self, questions: Sequence[TableQuestion], *, progress: Progress | None = None, cancel: Cancel | None = None
    ) -> list[Computed]:
        """Answer each question; `cancel` is asked before each batch whether to stop."""
        out: list[Computed] = []
        for start in range(0, len(questions), TOGETHER):
            check_cancel(cancel)
            part = questions[start : start + TOGETHER]
            encoded = [encode_question(each, self.tokenizer) for each in part]
            out += computed(self.model, part, encoded, self.tokenizer.specials.pad)
            if progress is not None:
                progress(len(out), len(questions))
        return out


@torch.inference_mode()
def computed(
    model: Any, questions: Sequence[TableQuestion], encoded: Sequence[EncodedQuestion], fill: int
) -> list[Computed]:
    """Let a model choose a program for each question, and run it."""
    batch = table_batch(encoded, fill).to(next(model.parameters()).device)
    soft = model.choose(batch)
    chosen = [[_arrays(each) for each in steps] for steps in zip(soft, hardened(soft, batch), strict=True)]
    return [
        _computed(asked, each, chosen, row) for row, (asked, each) in enumerate(zip(questions, encoded, strict=True))
    ]


def _arrays(choices: Choices) -> list[np.ndarray]:
    """Its weights as arrays; where no number was chosen, none has any."""
    number = torch.zeros(len(choices.operation), 1) if choices.number is None else choices.number
    return [each.double().cpu().numpy() for each in (choices.operation, choices.column, number)]


def _computed(
    asked: TableQuestion, encoded: EncodedQuestion, chosen: Sequence[Sequence[Sequence[np.ndarray]]], row: int
) -> Computed:
    """The program of one question, and its answer."""
    table, numbers = asked.table, tuple(number for _, number in encoded.read.numbers)
    program, weights = list[Step](), list[StepWeights]()
    for soft, hard in chosen:
        operation, column, number = (int(each[row].argmax()) for each in hard)
        name = OPERATIONS[operation]
        program.append(
            Step(name, table.columns[column] if name in OF_COLUMN else "", numbers[number] if name in COMPARE else None)
        )
        shares = [each[row].tolist() for each in soft]
        numbered = [*shares[2], *[0.0] * len(numbers)][: len(numbers)]
        weights.append(StepWeights(tuple(shares[0]), tuple(shares[1][: len(table.columns)]), tuple(numbered)))
    used, rows = used_steps(program), selections(table, program)
    answer, _ = run_program(table, program)
    steps = [ChosenStep(*each, place in used) for place, each in enumerate(zip(program, weights, rows, strict=True))]
    return Computed(table, asked.question, answer, tuple(steps), numbers)


def table_of(given: AnyTable) -> Table:
    """A table from a CSV file, or from columns by their names."""
    if isinstance(given, Table):
        return given
    if not isinstance(given, Mapping):
        path = Path(given)
        if not path.is_file():
            raise UsageError(f"there is no file {given}", "name a .csv or .tsv file whose first line names the columns")
        return table_of_file(path)
    lengths = {name: len(cells) for name, cells in given.items()}
    if not lengths or len(set(lengths.values())) > 1 or 0 in lengths.values():
        told = ", ".join(f"{name} {length}" for name, length in lengths.items()) or "no columns"
        raise UsageError(f"columns of a table are equally long and not empty, not {told}")
    try:
        return checked(Table(tuple(given), tuple(zip(*given.values(), strict=True))))
    except ValueError as error:
        raise UsageError(str(error)) from error


def plain(number: float) -> str:
    """A number as a person writes it: no more digits than it has."""
    return str(int(number)) if float(number).is_integer() else f"{number:.10g}"
