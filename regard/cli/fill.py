"""`regard fill`: a text with gaps in, what may stand in them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import AsText, Item, answers, texts_or_lines
from regard.cli.model import load_model, newest_run
from regard.cli.options import AsJson, Device, Model
from regard.cli.output import print_json, print_table

if TYPE_CHECKING:
    from regard.tasks.fill.predictor import Filled, Filler

CHUNK = 32  # texts filled before the first of them is shown


def fill(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts with a [MASK] in each gap, or a file of lines; without, standard input."
        ),
    ] = None,
    model: Model = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Guesses for each gap.")] = 5,
    as_text: AsText = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Guess what stands in the gaps of a text: regard fill "Paris is the [MASK] of France".

    A text without a gap is named on stderr and leaves an empty line; the exit code is 1. A newline is shown as ⏎.
    """
    asked = texts_or_lines(texts, as_text=as_text, what="a text with a [MASK]")
    filler: Filler = load_model(model or newest_run("fill"), device, "fill")
    filler.check_head()
    told: list[Mapping[str, object]] = []

    def ask(items: list[Item]) -> Sequence[Filled]:
        return [filler.fill(item.value, top) for item in items]

    with answers(asked, ask, CHUNK, "filling") as answered:
        for each in answered:
            if as_json:
                bad = {"source": each.item.value, "error": str(each.error)}
                told.append(bad if each.found is None else each.found.data())
            elif each.found is None:
                print()
            else:
                _print(each.found)
        if as_json:
            print_json(told)


def _print(found: Filled) -> None:
    print(found.text.replace("\n", "⏎"))
    rows = [
        (str(number), visible(guess.token), f"{guess.probability:.1%}")
        for number, gap in enumerate(found.gaps, start=1)
        for guess in gap
    ]
    print_table(("gap", "guess", "probability"), rows, right=("probability",))


def visible(token: str) -> str:
    """A token in a table: a newline as ⏎, other white space that is all of it in quotes."""
    shown = token.replace("\n", "⏎")
    return shown.strip() or repr(shown)
