"""`regard caption`: pictures in, sentences out, and where the model looked at each word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.model import load_model, newest_run
from regard.cli.options import Beam, Device, Model, given
from regard.cli.output import progress, results, say
from regard.errors import UsageError


def caption(
    pictures: Annotated[list[str], typer.Argument(metavar="PICTURE", help="Picture files.", show_default=False)],
    model: Model = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Draw where it looked at each word (.png .svg .html .json .csv)."
        ),
    ] = None,
    attention: Annotated[bool, typer.Option("--attention", help="Show where it looked at each word.")] = False,
    smooth: Annotated[bool, typer.Option("--smooth", help="Smooth the maps (it is said on the sheet).")] = False,
    beam: Beam = None,
    n_best: Annotated[
        int | None, typer.Option(metavar="N", help="Captions for each picture.", show_default="1")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each picture.")] = False,
) -> None:
    """What is in each picture, one line for each."""
    if out is not None and len(pictures) != 1:
        raise UsageError("-o draws one picture; name one PICTURE")
    captioner = load_model(model or newest_run("caption"), device, "caption")
    options = given(beam=beam, n_best=n_best)
    if n_best is not None and beam is None:
        options["beam"] = max(n_best, captioner.config.decode.beam)
    with progress("captioning") as advance:
        found = captioner.caption(pictures, attention=attention or out is not None, progress=advance, **options)
    for each in found:
        for one in (each, *each.alternatives):
            if as_json:
                told = {"picture": one.picture, "caption": one.text, "log_probability": one.log_probability}
                print(json.dumps(told, ensure_ascii=False))
            else:
                print(one.text)
        if attention:
            results().print(each.attention)
    if out is not None:
        say(f"wrote {found[0].attention.save(out, smooth=smooth)}")
