"""`regard classify`: texts or pictures in, labels out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.model import load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import finite, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.classify import Classified

CHUNK = 512  # lines classified together


def classify(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts or picture files; without, the lines of standard input."),
    ] = None,
    model: Model = None,
    second: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, where labels are of pairs.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put the probability behind each label.")] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with every label, one line for each text.")
    ] = False,
) -> None:
    """The label of each text or picture, one a line.

    Line n of the output is the label of line n of the input (a pair has a tab in it).
    """
    if second is not None and len(texts or []) != 1:
        raise UsageError("--second belongs to one TEXT; pairs in a file have a tab between them")
    classifier = load_model(model or newest_run("classify"), device, "classify")
    if classifier.config.task == "classify-pictures":
        _pictures(classifier, texts, second, scores, as_json)
        return
    found = [classifier.classify(texts[0], second)] if texts and second is not None else None
    for each in found or _each(classifier, texts):
        if as_json:
            print(json.dumps(finite(asdict(each)), ensure_ascii=False))
        else:
            print(f"{each.label}\t{each.probability:.4f}" if scores else each.label)


def _pictures(classifier: Any, files: list[str] | None, second: str | None, scores: bool, as_json: bool) -> None:
    if not files:
        raise UsageError("this model classifies pictures; name their files, as regard classify photo.jpg")
    if second is not None:
        raise UsageError("--second is for classifiers of pairs of texts; this model classifies pictures")
    for each in classifier.classify(list(files)):
        if as_json:
            print(json.dumps(finite(asdict(each)), ensure_ascii=False))
        else:
            print(f"{each.label}\t{each.probability:.4f}" if scores else each.label)


def _each(classifier: Any, texts: list[str] | None) -> Iterator[Classified]:
    if texts:
        yield from classifier.classify(texts)
        return
    from regard.data.lines import decode_lines

    typed = sys.stdin.isatty()
    if typed:
        say("type a text and press Enter; Ctrl-D ends")
    lines = decode_lines(sys.stdin.buffer, "stdin")
    while chunk := list(islice(lines, 1 if typed else CHUNK)):
        pairs = [line.partition("\t") for line in chunk]
        seconds = [other for _, tab, other in pairs] if any(tab for _, tab, _ in pairs) else None
        yield from classifier.classify([first for first, _, _ in pairs], seconds)
        sys.stdout.flush()
