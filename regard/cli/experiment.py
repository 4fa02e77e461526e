"""`regard experiment`: what lectures say of attention, tested in minutes on built-in data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, progress, results, say
from regard.errors import UsageError
from regard.experiments.table import EXPERIMENTS, find_experiment

if TYPE_CHECKING:
    from regard.experiments.run import Outcome

FOLDER, TINY_FOLDER = Path("experiments"), Path("experiments/tiny")
MARKS = {True: "yes", False: "no", None: "undecided"}


def experiment(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Which experiment; without, all are listed.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="DIR", help="Folder of NAME.png and NAME.json.", show_default="experiments"
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seeds", metavar="N...", min=0, help="Seeds of the runs.", show_default="the experiment's own"),
    ] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="Next to nothing, in seconds: to see that it runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Test what lectures say of attention: a question, runs of minutes, a figure, and whether it came so.

    What is finished is kept in the folder: the same command goes on where it was stopped.
    """
    if name is None:
        list_experiments(as_json)
        return
    chosen = find_experiment(name)
    folder = out or (TINY_FOLDER if tiny else FOLDER)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"-o {folder} is a file", "name a folder")
    say(f"{chosen.name}: {chosen.question}")
    if not tiny:
        say(f"about {chosen.minutes:g} min on one core; what is finished is kept in {folder}")
    from regard.experiments.run import run_experiment

    with progress(f"{name}, thousandths", every=10.0) as advance:
        found = run_experiment(name, folder, tiny=tiny, seeds=seeds or (), progress=advance)
    if as_json:
        print_json(found.values)
    else:
        print_outcome(found, tiny)
    say(f"wrote {found.figure} and {found.file}")


def list_experiments(as_json: bool) -> None:
    if as_json:
        print_json([each.data() for each in EXPERIMENTS.values()])
        return
    rows = [[each.name, f"{each.minutes:g} min", each.question, each.claim] for each in EXPERIMENTS.values()]
    columns = ("experiment", "takes", "question", "what lectures say")
    print_table(columns, rows, fold=("question", "what lectures say"))
    results().print("\nregard experiment NAME runs one; regard experiment NAME --tiny in seconds, to see what it does.")


def print_outcome(found: Outcome, tiny: bool) -> None:
    console = results()
    for table in found.tables:
        if table.title:
            console.print(table.title, style="dim", markup=False)
        print_table(table.columns, table.rows, right=table.columns[1:], stack=True)
        console.print()
    rows = [[check.says, MARKS[check.holds], check.found] for check in found.checks]
    print_table(("lectures say", "so?", "what came"), rows, fold=("lectures say", "what came"))
    console.print()
    console.print(found.verdict, markup=False, soft_wrap=True)
    if tiny:
        console.print("This was a tiny run: it shows that everything works, and nothing about the claim.", style="dim")
