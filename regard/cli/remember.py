"""`regard remember`: sequences of bits come back, or do not, by their length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import check_out, load_model, newest_run
from regard.cli.options import AsJson, Device, Model
from regard.cli.output import print_json, print_table, progress, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.remember.predictor import Remembered, Rememberer


def remember(
    lengths: Annotated[
        list[int] | None,
        typer.Argument(metavar="[LENGTH...]", help="How long the sequences are.", show_default="half, once, twice"),
    ] = None,
    model: Model = None,
    count: Annotated[int, typer.Option(metavar="N", help="Sequences of each length.")] = 1000,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Draw where a machine's heads are, or how long a ponder thinks (.png .svg .html .json).",
        ),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """How many bits of sequences come back wrong, by length; -o draws where the heads are, or how long it thinks."""
    check_out(out)
    if count < 1:
        raise UsageError("--count is 1 or more")
    from regard.data.bits import ONE_VECTOR

    rememberer: Rememberer = load_model(model or newest_run("remember"), device, "remember")
    most = rememberer.most
    asked = lengths or sorted({max(1, most // 2), most, *(() if rememberer.sequences in ONE_VECTOR else (2 * most,))})
    drawn = None if out is None else rememberer.look(asked[-1])
    found = []
    for length in asked:
        with progress(f"length {length}") as advance:
            found.append(rememberer.remember(length, count, advance))
    if out is not None and drawn is not None:
        say(f"wrote {drawn.save(out)}")
    if as_json:
        print_json([each.data() for each in found])
    else:
        print_remembered(rememberer.sequences, found)


def print_remembered(sequences: str, found: list[Remembered]) -> None:
    """A row for each length."""
    heads = ["bits wrong", "without a fault"]
    rows = [[str(each.length), f"{each.share:.3f}%", f"{100 * each.whole / each.sequences:.1f}%"] for each in found]
    if any(each.steps is not None for each in found):
        heads.append("steps an input")
        rows = [[*row, f"{each.steps or 0:.2f}"] for row, each in zip(rows, found, strict=True)]
    print_table((f"{sequences}, length", *heads), rows, right=tuple(heads))
