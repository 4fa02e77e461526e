"""`regard formation`: how a run's attention came to look where it looks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.model import check_out
from regard.cli.options import AsJson
from regard.cli.output import print_json, results, say
from regard.errors import UsageError
from regard.runs import all_runs

SUFFIXES = (".png", ".svg", ".gif", ".html", ".json")


def formation(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The folder of a run.", show_default="the newest run here")
    ] = None,
    text: Annotated[int, typer.Option(metavar="N", help="Which of its probed texts, from 0.")] = 0,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="cross, causal, self or pool.", show_default="the first there is")
    ] = None,
    layer: Annotated[int | None, typer.Option(metavar="N", help="One layer, from 0.", show_default=False)] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", help="One head of it, from 0.", show_default="the mean, or the sharpest; it is said"),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Which steps to show.", show_default="well-chosen ones")
    ] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Sub-word pieces as they are, not joined to words.")] = False,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="A figure (.png .svg), a film (.gif .html), or .json."),
    ] = None,
) -> None:
    """When a model learned where to look: the attention of a probed text over the steps of its training."""
    check_out(out, SUFFIXES)
    folder, wanted = run or _newest(), _numbers(steps)
    found = regard.formation_of(folder, text=text, role=role, layer=layer, head=head, steps=wanted, pieces=pieces)
    if out is not None:
        say(f"wrote {found.save(out)}")
    if as_json:
        print_json(found.data())
    elif out is None:
        results().print(found)


def _numbers(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError as error:
        raise UsageError(f"--steps takes numbers with commas between them, as in 0,200,400; not {text}") from error


def _newest() -> Path:
    found = [run for run in all_runs() if (run.folder / "probes" / "texts.json").exists()]
    if not found:
        raise UsageError("there is no run with probes here; make one with: regard train translate, or name its folder")
    say(f"run: {found[-1].folder} (the newest with probes here; regard formation RUN takes another)")
    return found[-1].folder
