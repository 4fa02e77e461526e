"""`regard landscape`: the loss around a trained run, how sharp it is there, and what each layer did on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.model import check_device, check_out, choose_device
from regard.cli.options import AsJson, Device
from regard.cli.output import print_json, progress, results, say
from regard.runs import bundle_folder, read_run

SUFFIXES = (".png", ".svg", ".html", ".json")


def landscape(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs.", show_default=False)],
    points: Annotated[int, typer.Option(metavar="N", min=3, help="Points of a side of the map; odd.")] = 21,
    reach: Annotated[
        float, typer.Option(metavar="R", min=0.001, help="Farthest distance, in lengths of filters.")
    ] = 1.0,
    examples: Annotated[int, typer.Option(metavar="N", min=1, help="Validation examples, at least.")] = 64,
    directions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Random directions whose rises are averaged.")
    ] = 5,
    iterations: Annotated[
        int, typer.Option(metavar="N", min=0, help="Most applications of the Hessian; 0: no eigenvalues.")
    ] = 20,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the random directions.")] = 1,
    device: Device = "cpu",
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="A figure (.png .svg), a page (.html), or .json."),
    ] = None,
) -> None:
    """The loss around a trained run, in one and two directions, its sharpness, gradients and attention by layer."""
    check_out(out, SUFFIXES)
    check_device(device)
    for run in runs:
        read_run(run)
        bundle_folder(run)
    on = choose_device(device)
    with progress("looking around", every=20.0) as advance:
        found = regard.landscape_of(
            runs, points=points, reach=reach, examples=examples, directions=directions, iterations=iterations, seed=seed,
            device=on, on_progress=lambda what, done, total: advance(done, total),
        )  # fmt: skip
    if out is not None:
        say(f"wrote {found.save(out)}")
    if as_json:
        print_json(found.data())
    elif out is None or results().is_terminal:
        results().print(found)
