"""`regard caption`: pictures in, sentences out, and where the model looked at each word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.inputs import Answered, answers, pictures
from regard.cli.model import check_model, check_out, load_model, newest_run
from regard.cli.options import Beam, Device, Model, given
from regard.cli.output import json_line, one_line, printable, results, say
from regard.errors import UsageError

CHUNK = 64  # pictures captioned together


def caption(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="PICTURE", help="Picture files; without, those that standard input names, one a line."),
    ] = None,
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
    """What is in each picture, one line for each; of several, with its name before it.

    A picture that cannot be read is named on stderr and gets an empty caption; the exit code is 1.
    """
    if out is not None and len(files or []) != 1:
        raise UsageError("-o draws one picture; name one PICTURE")
    check_out(out)
    run, options = model or newest_run("caption"), given(beam=beam, n_best=n_best)
    found_model = check_model(run, device, "caption", decode=given(beam=beam))
    if n_best is not None and beam is None:
        options["beam"] = max(n_best, found_model.decode.get("beam", 1))
    check_model(run, device, "caption", decode=options)
    asked = pictures(files, "caption")
    captioner = load_model(run, device, "caption")
    options["attention"] = attention or out is not None
    ask = lambda items: captioner.caption([item.value for item in items], **options)  # noqa: E731
    with answers(asked, ask, CHUNK, "captioning") as answered:
        for each in answered:
            if out is not None and each.found is not None:  # before what is printed: the reader of stdout may have gone
                say(f"wrote {each.found.attention.save(out, smooth=smooth)}")
            for line in _as_lines(each, names=not asked.alone, as_json=as_json):
                print(line)
            if attention and out is None and each.found is not None:
                results().print(each.found.attention)


def _as_lines(each: Answered[Any], *, names: bool, as_json: bool) -> list[str]:
    """Every caption of a picture, the best first."""
    name = f"{printable(each.item.where)}\t" if names else ""
    if each.found is None:
        return [json_line({"picture": each.item.value, "error": str(each.error)}) if as_json else name]
    every = (each.found, *each.found.alternatives)
    if not as_json:
        return [f"{name}{one_line(one.text)}" for one in every]
    rows = [{"picture": one.picture, "caption": one.text, "log_probability": one.log_probability} for one in every]
    return [json_line(row) for row in rows]
