"""The verb of a task that a plugin adds: `regard TASK -m RUN INPUT ...`, with the task's own name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from regard.cli.inputs import AsText, Item, answers, texts_or_lines
from regard.cli.model import load_model, newest_run
from regard.cli.options import AsJson, Device, Model
from regard.cli.output import print_json
from regard.tasks.table import TASKS

CHUNK = 32  # inputs answered before the first of them is shown


def verb_of(task: str) -> Callable[..., None]:
    """The function of the verb `task`: inputs in, what the task's predictor says of each out."""

    def predict(
        inputs: Annotated[
            list[str] | None,
            typer.Argument(metavar="INPUT", help="Texts, or a file of lines; without, standard input."),
        ] = None,
        model: Model = None,
        as_text: AsText = False,
        device: Device = "auto",
        as_json: AsJson = False,
    ) -> None:
        asked = texts_or_lines(inputs, as_text=as_text, what="an input")
        predictor = load_model(model or newest_run(task), device, task)

        def ask(items: list[Item]) -> list[Any]:
            return list(predictor.predict([item.value for item in items]))

        told = []
        with answers(asked, ask, CHUNK, task) as answered:
            for each in answered:
                if as_json:
                    bad = {"source": each.item.value, "error": str(each.error)}
                    told.append(bad if each.found is None else each.found.data())
                else:
                    print("" if each.found is None else each.found)
        if as_json:
            print_json(told)

    predict.__doc__ = does(task)
    return predict


def does(task: str) -> str:
    """The purpose of a task: the first line of its configuration's docstring."""
    return (TASKS[task].configuration.__doc__ or "").strip().partition("\n")[0]
