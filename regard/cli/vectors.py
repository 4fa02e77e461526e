"""`regard vectors`: texts in, one vector for each out."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from regard.cli.model import load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import print_table
from regard.errors import UsageError


def vectors(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without, the lines of standard input.")
    ] = None,
    model: Model = None,
    pooling: Annotated[
        str | None, typer.Option(metavar="NAME", help="mean of all tokens, or cls.", show_default="the model's")
    ] = None,
    similar: Annotated[bool, typer.Option("--similar", help="Print how alike the texts are instead.")] = False,
    device: Device = "auto",
) -> None:
    """One vector of length 1 for each text, as JSON, a line each; the product of two says how alike the texts are."""
    if pooling not in (None, "mean", "cls"):
        raise UsageError(f"--pooling {pooling}: choose mean or cls")
    from regard.data.lines import decode_lines

    read = texts or list(decode_lines(sys.stdin.buffer, "stdin"))
    filler = load_model(model or newest_run("fill"), device, "fill")
    found = filler.vectors(read, pooling)
    if not similar:
        for text, vector in zip(read, found.tolist(), strict=True):
            print(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))
        return
    numbers = [str(place) for place in range(1, len(read) + 1)]
    rows = [
        (number, *(f"{value:.2f}" for value in row), text)
        for number, row, text in zip(numbers, found @ found.T, read, strict=True)
    ]
    print_table(("", *numbers, "text"), rows, right=numbers)
