"""`regard scale`: a family of sizes, the law of its losses, and the size that a budget is best spent on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.arguments import Typed
from regard.cli.model import check_device, check_files, check_out, choose_device
from regard.cli.options import AsJson, Device, TextColumn, column_settings, given
from regard.cli.output import print_json, print_table, say
from regard.cli.train import data_tables
from regard.config import check
from regard.errors import UsageError
from regard.runs import check_free, new_run
from regard.tasks.configure import asked_settings, data_folder, run_config, task_named
from regard.training.config import TrainConfig

if TYPE_CHECKING:
    from regard.look.scaling import Scaling
    from regard.scale.family import Family
    from regard.tasks.config import RunConfig

SUFFIXES = (".png", ".svg", ".html", ".json")
SET_HERE = ("train.steps", "train.max_time", "train.epochs", "train.budget", "train.schedule", "model.width")
COUNTS = range(2, 13)  # sizes of a family, where their number is given


def scale(
    what: Annotated[
        str | None, typer.Argument(metavar="WHAT", help="generate, or a TOML file of it.", show_default=False)
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="FILE...", help="Text, as of regard train generate.")
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Validation text; without, some of the data is held out."),
    ] = None,
    text: TextColumn = None,
    model: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind of model, as of regard train.", show_default="llama")
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="N or A,B,...", help="How many sizes; or which: widths, as 32,64,96, or presets, as demo,tiny."
        ),
    ] = "5",
    amounts: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=8, help="Amounts of data for each size, each about twice the one before."),
    ] = 4,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time by the clock for all runs together.")] = "10m",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Any key of the configuration of all runs.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Everything random follows from it.", show_default="1")
    ] = None,
    device: Device = "cpu",
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Folder of the runs.", show_default="runs/scale/NUMBER")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with a family that was stopped, or show one again.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="A figure (.png .svg), a page (.html), or .json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Loss against parameters, data and compute: several sizes on several amounts of data, and the law they follow.

    Ctrl-C stops it so that it can go on: regard scale --resume DIR.
    """
    check_out(out, SUFFIXES)
    check_device(device)
    if resume is not None:
        fixed = given(WHAT=what, data=data, valid=valid, text=text, model=model, set=settings, seed=seed, runs=runs)
        folder, family = resume, _go_on(resume, fixed)
    else:
        if what is None:
            raise UsageError("name what is learned: regard scale generate --data book.txt")
        tables = data_tables(data, valid, None) | (column_settings(task_named(what), text=text) if text else {})
        over = given(train=given(seed=seed) or None, data=tables or None)
        over |= given(model=None if model is None else {"kind": model})
        config, data_root = run_config(what, over, settings), data_folder(what) or Path.cwd()
        asked = asked_settings(what, over, settings)
        check_request(config, data_root, asked, runs)
        span = check(TrainConfig, {"max_time": budget}, "--budget").max_time or 0.0
        folder = runs or new_run("scale")
        say(f"runs: {folder}")  # before torch is imported, which takes seconds
        from regard.scale import family as families
        from regard.tasks.tuning_show import make_trial_show

        wanted = wanted_sizes(sizes, config.model.kind)
        request = families.Request(config, asked, data_root, span, wanted, amounts, choose_device(device))
        try:
            family = families.scale(request, families.make_place(folder), make_trial_show(), asked_at=Typed.at)
        except KeyboardInterrupt:
            say("interrupted before the first run; start it again")
            raise typer.Exit(130) from None
    show(family, folder, out, as_json)


def check_request(config: RunConfig, data_root: Path, asked: frozenset[str], runs: Path | None) -> None:
    """Check, before torch is imported, that these are language models, that the folder is free and the data there."""
    if config.task != "generate":
        raise UsageError(f"a law of sizes is for language models (generate), not to {config.task}")
    if config.start is not None:
        raise UsageError("every size begins with fresh weights: leave out start")
    for name in SET_HERE:
        if name in asked:
            raise UsageError(
                f"{name} is what a family varies or plans itself: leave it out; --sizes and --budget say it"
            )
    if runs is not None and not (runs / "scale.json").exists():  # else it is told how to go on
        check_free(runs)
    check_files((*config.data.train, *config.data.valid), data_root)


def wanted_sizes(text: str, kind: str) -> int | dict[str, dict[str, object]]:
    """`5` is a number of sizes; `32,64,96` are widths, `demo,tiny` presets."""
    from regard.scale.sizes import named_sizes

    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > 1:
        if len(set(words)) < len(words):
            raise UsageError(f"--sizes {text} names a size twice")
        return named_sizes(words, kind)
    if words and words[0].isdecimal() and int(words[0]) in COUNTS:
        return int(words[0])
    raise UsageError(
        f"--sizes {text}: say how many, {COUNTS[0]} to {COUNTS[-1]}, or which, at least two, as 32,64,96 or demo,tiny"
    )


def _go_on(folder: Path, fixed: dict[str, object]) -> Family:
    if fixed:
        names = ", ".join(name if name.isupper() else f"--{name}" for name in fixed)
        raise UsageError(f"a family goes on as it began: leave out {names}, or start a new one without --resume")
    if not (folder / "scale.json").exists():
        again = f"regard scale ... --runs {folder}"
        raise UsageError(
            f"{folder} is no family of sizes; if it was stopped before its first run, start it again: {again}"
        )
    from regard.scale.family import go_on
    from regard.tasks.tuning_show import make_trial_show

    return go_on(folder, make_trial_show())


def show(family: Family, folder: Path, out: Path | None, as_json: bool) -> None:
    """Print what came; of a family that was stopped, say how to go on, and exit 130."""
    if not family.finished:
        say(f"interrupted; go on with: regard scale --resume {folder}")
        raise typer.Exit(130)
    from regard.scale.law import scaling_of

    found = scaling_of(family)
    if out is not None:
        say(f"wrote {found.save(out)}")
    if as_json:
        print_json(found.data())
    else:
        print_scaling(found)


def print_scaling(found: Scaling) -> None:
    for table in (found.table_of_runs(), found.table_of_laws(), found.table_of_choices()):
        if table.lines:
            print(table.title)
            print_table(table.columns, table.lines, right=table.columns[1:], stack=True)
            print()
    for note in found.notes:
        say(note)
