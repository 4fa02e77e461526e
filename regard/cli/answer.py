"""`regard answer`: a picture and questions in, answers out."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.model import load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import finite, results, say
from regard.errors import UsageError


def answer(
    picture: Annotated[str, typer.Argument(metavar="PICTURE", help="A picture file.", show_default=False)],
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="One or more questions about it.", show_default=False)
    ],
    model: Model = None,
    attention: Annotated[bool, typer.Option("--attention", help="Show where each word looked.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="A sheet of where each word looked (.png .svg .html .json .csv)."
        ),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put the probability behind each answer.")] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with every answer, one line for each question.")
    ] = False,
) -> None:
    """The answer to each question, one a line."""
    if out is not None and len(questions) != 1:
        raise UsageError("-o draws one question; ask one QUESTION")
    user = load_model(model or newest_run("answer"), device, "answer")
    for each in user.answer(picture, list(questions)):
        if as_json:
            print(json.dumps(finite(asdict(each)), ensure_ascii=False))
        else:
            print(f"{each.answer}\t{each.probability:.4f}" if scores else each.answer)
        if attention:
            results().print(user.look(picture, each.question))
    if out is not None:
        say(f"wrote {user.look(picture, questions[0]).save(out)}")
