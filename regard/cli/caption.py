"""`regard caption`: pictures in, sentences out, and where the model looked at each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import Answered, Item, answers, pictures
from regard.cli.model import check_model, check_out, load_model, newest_run
from regard.cli.options import Beam, Device, Model, given
from regard.cli.output import json_line, one_line, printable, results, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.caption.predictor import Caption, Captioner

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
    """Write a caption for each picture, one line each; of several pictures, with its name before it.

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
    captioner: Captioner = load_model(run, device, "caption")
    looks = attention or out is not None

    def ask(items: list[Item]) -> Sequence[Caption]:
        return captioner.caption([item.value for item in items], attention=looks, **options)

    with answers(asked, ask, CHUNK, "captioning") as answered:
        for each in answered:
            look = None if each.found is None else each.found.attention
            if out is not None and look is not None:  # before what is printed: the reader of stdout may have gone
                say(f"wrote {look.save(out, smooth=smooth)}")
            for line in _as_lines(each, names=not asked.alone, as_json=as_json, attention=attention):
                print(line)
            if attention and out is None and look is not None and not as_json:
                results().print(look)


def _as_lines(each: Answered[Caption], *, names: bool, as_json: bool, attention: bool) -> list[str]:
    """Every caption of a picture, the best first; in JSON with where the model looked, if that was asked for."""
    name = f"{printable(each.item.where)}\t" if names else ""
    if each.found is None:
        return [json_line({"picture": each.item.value, "error": str(each.error)}) if as_json else name]
    every = (each.found if attention else replace(each.found, attention=None)).each()
    return [json_line(one.data()) if as_json else f"{name}{one_line(one.text)}" for one in every]
