"""`regard compute`: a table and questions in, answers out, and the programs that gave them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import check_out, load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import json_line, one_line, print_table, printable, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.compute.evaluate import ComputeEvaluation
    from regard.tasks.compute.predictor import ChosenStep, Computed, TableComputer

FORMS = (".png", ".svg", ".html", ".json")
MOST_ROWS = 12  # of a table whose numbers are listed


def compute(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="A .csv or .tsv file; its first line names the columns.", show_default=False
        ),
    ],
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="One or more questions about it.", show_default=False)
    ],
    model: Model = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show the program that was chosen, step by step.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Draw the program (.png .svg .html .json).")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with every step, one line for each question.")
    ] = False,
) -> None:
    """The answer to each question about a table, computed by a program that the model chooses."""
    if out is not None and len(questions) != 1:
        raise UsageError("-o draws one question; ask one QUESTION")
    check_out(out, FORMS)
    from regard.data.tables import read_question, table_of_file

    if not table.is_file():
        raise UsageError(f"there is no file {table}", "name a .csv or .tsv file whose first line names the columns")
    known = table_of_file(table)
    for question in questions:
        if not read_question(question, known.columns).words:
            raise UsageError(f"there is no word in {question!r}", "ask such as: How many rows have price over 5?")
    computer: TableComputer = load_model(model or newest_run("compute"), device, "compute")
    _say_unknown(computer, [str(read_question(question, known.columns)) for question in questions])
    for found in computer.compute(known, questions):
        for note in found.notes:
            say(note)
        if out is not None:
            say(f"wrote {found.view.save(out)}")
        if as_json:
            print(json_line(found.data()))
            continue
        print(printable(str(found)))
        if steps:
            print_steps(found)


def print_steps(found: Computed) -> None:
    """A row for each step: what was chosen with which weight, and which rows it selects."""
    rows = [[str(number), *_told(step, len(found.table.rows))] for number, step in enumerate(found.steps, start=1)]
    print_table(("step", "operation", "column", "number", "rows", ""), rows)


def _told(step: ChosenStep, total: int) -> list[str]:
    from regard.data.programs import ANSWER

    about = step.data()
    weights = about["weights"]
    assert isinstance(weights, dict)
    number = "" if step.step.number is None else f"{step.step.number:g}"
    names = {"operation": step.step.operation, "column": step.step.column, "number": number}
    cells = [f"{one_line(name)} {weights[key]:.0%}" if name else "" for key, name in names.items()]
    listed = ", ".join(str(row + 1) for row in step.rows) if len(step.rows) <= MOST_ROWS else f"{len(step.rows)} rows"
    chosen = "all" if len(step.rows) == total else listed or "none"
    return [*cells, "" if step.step.operation in ANSWER else chosen, "" if step.is_used else "changes nothing"]


def print_computed(run: str, on: list[str], found: ComputeEvaluation) -> None:
    """A row for each number of operations, and one for all."""
    heads = ("questions", "right", "true program")
    rows = [
        [
            "all" if each.operations is None else f"{each.operations} operation{'s' if each.operations > 1 else ''}",
            f"{each.questions:,}",
            f"{each.accuracy:.1f}%",
            "" if each.programs is None else f"{100 * each.programs / each.questions:.1f}%",
        ]
        for each in (*found.by_operations, found.whole)
    ]
    print_table((f"{run} on {' '.join(on)}", *heads), rows, right=heads)


def _say_unknown(computer: TableComputer, questions: list[str]) -> None:
    """Words that no question of the training had: the model reads them all alike."""
    unknown = dict.fromkeys(word for text in questions for word in computer.tokenizer.unknown_in(text))
    if unknown:
        say(f"not among the words that it learned from: {', '.join(map(one_line, unknown))}")
