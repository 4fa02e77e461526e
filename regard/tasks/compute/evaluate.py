"""Score a model that computes: how many answers are right, by how many operations they need, and how many programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.data.programs import TableQuestion, effect, operations_in, same_answer
from regard.files import JSON
from regard.predictor import Cancel, Result
from regard.tasks.compute.predictor import Computed, TableComputer


@dataclass(frozen=True)
class Share:
    """How many questions of a group were answered right, and by the true program."""

    operations: int | None  # that they need; None: all of them
    questions: int
    right: int
    programs: int | None = None  # that do what the true one does; None where it is not known

    @property
    def accuracy(self) -> float:
        return 100 * self.right / self.questions

    def data(self) -> dict[str, JSON]:
        found: dict[str, JSON] = {
            "operations": self.operations,
            "questions": self.questions,
            "right": self.right,
            "accuracy": self.accuracy,
        }
        return found if self.programs is None else {**found, "programs": self.programs}


@dataclass(frozen=True, eq=False)
class ComputeEvaluation(Result):
    """The scores on a test set: numbers to one part in a million, printed cells as a set."""

    whole: Share
    by_operations: tuple[Share, ...]
    found: tuple[Computed, ...]
    right: tuple[bool, ...]
    seconds: float

    def data(self) -> dict[str, JSON]:
        return {
            **{name: value for name, value in self.whole.data().items() if name != "operations"},
            "seconds": self.seconds,
            "by_operations": [each.data() for each in self.by_operations],
        }


def evaluate_tables(
    computer: TableComputer,
    questions: Sequence[TableQuestion],
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
) -> ComputeEvaluation:
    """Answer the questions of a test set and compare, also the programs where they are known."""
    started = time.perf_counter()
    found = computer.answers(questions, progress=progress, cancel=cancel)
    seconds = time.perf_counter() - started
    right = [same_answer(each.answer, asked.answer) for each, asked in zip(found, questions, strict=True)]
    same = [
        effect([step.step for step in each.steps]) == effect(asked.program)
        for each, asked in zip(found, questions, strict=True)
    ]
    needs = [operations_in(asked.program) for asked in questions]

    def share(operations: int | None) -> Share:
        rows = [row for row, count in enumerate(needs) if operations is None or count == operations]
        known = all(needs[row] for row in rows)
        programs = sum(same[row] for row in rows) if known else None
        return Share(operations, len(rows), sum(right[row] for row in rows), programs)

    groups = tuple(share(count) for count in sorted(set(needs) - {0}))
    return ComputeEvaluation(share(None), groups, tuple(found), tuple(right), seconds)
