"""`regard fill`: a text with gaps in, what may stand in them out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from regard.cli.model import load_model, newest_run
from regard.cli.options import AsJson, Device, Model
from regard.cli.output import print_json, print_table


def fill(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Texts with a [MASK] in each gap.")],
    model: Model = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Guesses for each gap.")] = 5,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Guess what stands in the gaps of a text: regard fill "Paris is the [MASK] of France"."""
    filler = load_model(model or newest_run("fill"), device, "fill")
    found = [filler.fill(text, top) for text in texts]
    if as_json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        print(each.text)
        rows = [
            (str(number), guess.token.strip() or repr(guess.token), f"{guess.probability:.1%}")
            for number, gap in enumerate(each.gaps, start=1)
            for guess in gap
        ]
        print_table(("gap", "guess", "probability"), rows, right=("probability",))
