"""`regard answer`: a picture and questions in, answers out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import Answered, InputReader, Item, answers, arguments, pictures
from regard.cli.model import check_out, load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import json_line, one_line, printable, results, say
from regard.data.pictures.config import is_picture
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.look.pictures import PictureMap
    from regard.tasks.answer.predictor import Answer, QuestionAnswerer

CHUNK = 64  # questions answered together


def answer(
    picture: Annotated[
        str,
        typer.Argument(
            metavar="PICTURE", help="A picture file; - asks all that standard input names.", show_default=False
        ),
    ],
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
    """The answer to each question, one a line; of several pictures, with the picture's name before it.

    A picture that cannot be read is named on stderr and gets empty answers; the exit code is 1.
    """
    several = picture == "-"
    if out is not None and (several or len(questions) != 1):
        raise UsageError("-o draws one question about one picture; ask one QUESTION")
    check_out(out)
    _check_questions(questions)
    run = model or newest_run("answer")
    asked = _of_each(pictures(None, "answer"), questions) if several else arguments([(picture, q) for q in questions])
    answerer: QuestionAnswerer = load_model(run, device, "answer")
    _say_unknown(answerer, questions)
    if not several:
        _check_picture(answerer, picture)

    def ask(items: list[Item]) -> list[Answer]:
        grouped = groupby((item.value for item in items), key=lambda value: value[0])
        return [
            found for file, values in grouped for found in answerer.answer(file, [question for _, question in values])
        ]

    with answers(asked, ask, CHUNK, "answering") as answered:
        for each in answered:
            look = (
                answerer.look(*each.item.value) if each.found is not None and (attention or out is not None) else None
            )
            if look is not None and out is not None:  # before what is printed: the reader of stdout may have gone
                say(f"wrote {look.save(out)}")
            columns = each.item.value[: 2 if len(questions) > 1 else 1] if several else ()
            cells = [*map(printable, columns), *_answer(each, scores)]
            print(_as_json(each, look if attention else None) if as_json else "\t".join(cells))
            if look is not None and out is None and not as_json:
                results().print(look)


def _check_questions(questions: Sequence[str]) -> None:
    """The name of a picture is no question: whoever types several pictures wants an answer about each."""
    named = [each for each in questions if is_picture(each) and (Path(each).is_file() or " " not in each)]
    if named:
        raise UsageError(
            f"{named[0]} is the name of a picture, not a question; of several pictures, name them on standard input: "
            'ls *.png | regard answer - "what colour is it?"'
        )


def _say_unknown(answerer: QuestionAnswerer, questions: Sequence[str]) -> None:
    """Words that no question of the training had: the model reads them all alike."""
    unknown = dict.fromkeys(word for question in questions for word in answerer.tokenizer.unknown_in(question))
    if unknown:
        say(f"not among the words of the questions it learned from: {', '.join(map(one_line, unknown))}")


def _of_each(files: InputReader, questions: Sequence[str]) -> InputReader:
    """Every question about every picture."""

    def chunks(most: int) -> Iterator[list[Item]]:
        for chunk in files.chunks(max(1, most // len(questions))):
            yield [
                Item(each.place * len(questions) + number, each.where, (each.value or each.where, question), each.error)
                for each in chunk
                for number, question in enumerate(questions)
            ]

    return InputReader(chunks, files.total * len(questions))


def _check_picture(answerer: QuestionAnswerer, picture: str) -> None:
    """Read the one picture, so that what is wrong with it is told once and not for each question."""
    from regard.tasks.see import see

    see(picture, answerer.format)


def _answer(each: Answered[Answer], scores: bool) -> list[str]:
    if each.found is None:
        return ["", ""] if scores else [""]
    return [each.found.answer, f"{each.found.probability:.4f}"] if scores else [each.found.answer]


def _as_json(each: Answered[Answer], look: PictureMap | None) -> str:
    picture, question = each.item.value
    bad = {"picture": picture, "question": question, "error": str(each.error)}
    return json_line(bad if each.found is None else replace(each.found, attention=look).data())
