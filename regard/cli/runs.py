"""`regard runs`: the runs in this folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from regard.brief import in_short
from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, say
from regard.errors import UsageError
from regard.runs import all_runs
from regard.training.history import RunSummary, summarise

RUNS = Path("runs")
COLUMNS = ("run", "data", "size", "steps", "best", "state", "changed")
REASONS = {"steps": "all steps done", "time": "time was up", "patience": "no longer better"}


def runs(
    root: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the runs.")] = RUNS,
    as_json: AsJson = False,
) -> None:
    """List the runs here: how far they came, how good they are, whether they can go on."""
    found = [summarise(run) for run in all_runs(root, depth=3)]
    if as_json:
        print_json([asdict(each) for each in found])
    elif found:
        print_table(COLUMNS, [cells(each) for each in found], right=("size", "steps", "best"), stack=True)
        stopped = [each.folder for each in found if each.state == "can be resumed"]
        if stopped:
            say(f"go on with: regard train --resume {stopped[-1]}")
    else:
        if root != RUNS and not root.exists():
            raise UsageError(f"there is no folder {root}; regard runs DIR lists the runs in DIR and below")
        say(f"no runs in {root}; make one with: regard demo, or: regard train translate --data pairs.tsv")


def cells(run: RunSummary) -> list[str]:
    languages = f" ({'→'.join(run.languages)})" if run.languages else ""
    return [
        run.folder,
        " ".join(Path(name).name if not name.startswith("builtin/") else name for name in run.data) + languages,
        "" if run.parameters is None else in_short(run.parameters),
        f"{run.steps:,}",
        "" if run.best is None else f"{run.metric} {run.best:.{3 if run.metric == 'loss' else 1}f}",
        state(run),
        f"{span(run.age)} ago",
    ]


def state(run: RunSummary) -> str:
    if run.state == "damaged":
        return f"damaged: {run.reason}"
    return REASONS.get(run.reason, run.reason) if run.state == "finished" else run.state


def span(seconds: float) -> str:
    """About how long, in one unit."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
