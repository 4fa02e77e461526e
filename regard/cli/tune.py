"""`regard tune`: good settings for a task and data, searched for in a given time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.arguments import Typed
from regard.cli.model import check_device, check_files, choose_device
from regard.cli.options import (
    AsJson,
    Device,
    LabelColumn,
    PairColumn,
    SourceColumn,
    TargetColumn,
    TextColumn,
    column_settings,
    given,
)
from regard.cli.output import print_json, print_table, results, say
from regard.cli.train import data_tables
from regard.config import check
from regard.errors import UsageError
from regard.runs import check_free, new_run
from regard.tasks.configure import asked_settings, data_folder, run_config, task_named
from regard.tasks.table import TASKS
from regard.training.config import TrainConfig
from regard.training.show import number
from regard.training.stopwatch import duration

if TYPE_CHECKING:
    from regard.tasks.config import RunConfig
    from regard.tasks.tuned import TuneResult

BOUNDS = ("train.steps", "train.max_time", "train.budget", "train.schedule")  # a search bounds its trials itself


def tune(
    what: Annotated[
        str | None,
        typer.Argument(metavar="WHAT", help="A task, as of regard train, or a TOML file.", show_default=False),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="FILE...", help="Training data, as of regard train.")
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Validation data; without, some of the data is held out."),
    ] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    pair: PairColumn = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    languages: Annotated[str | None, typer.Option(metavar="A,B", help="Language codes, such as en,de.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind of model, as of regard train.", show_default="of the task")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Size of the model; without, sizes are tried as well.")
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN", help="Fine-tune: each trial goes on from this model's weights."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Any key of the configuration; what is set is not varied."),
    ] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time by the clock for all together.")] = "30m",
    trials: Annotated[int, typer.Option(metavar="N", min=2, help="Most settings that are tried.")] = 9,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Everything random follows from it.", show_default="1")
    ] = None,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Folder of the search.", show_default="runs/tune/NUMBER"),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with a search that was stopped.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search for good settings: many short runs, the better ones longer.

    Ctrl-C stops a search so that it can go on: regard tune --resume DIR.
    """
    check_device(device)
    columns = given(text=text, label=label, pair=pair, source=source, target=target)
    if resume is not None:
        fixed = given(WHAT=what, data=data, valid=valid, languages=languages, model=model, preset=preset, out=out)
        fixed |= given(**{"from": origin, "set": settings}, seed=seed) | columns
        result = go_on(resume, fixed, device)
    else:
        if what is None:
            raise UsageError("name a task or a configuration: regard tune classify --data texts.tsv")
        tables = data_tables(data, valid, languages) | (column_settings(task_named(what), **columns) if columns else {})
        over = given(preset=preset, train=given(seed=seed) or None, data=tables or None, start=origin)
        over |= given(model=None if model is None else {"kind": model})
        config, data_root = run_config(what, over, settings), data_folder(what) or Path.cwd()
        asked = asked_settings(what, over, settings)
        check_request(config, data_root, asked, out)
        span = check(TrainConfig, {"max_time": budget}, "--budget").max_time or 0.0
        place = out or new_run("tune")
        say(f"search: {place}")  # before torch is imported, which takes seconds
        from regard.tasks import tuned, tuning
        from regard.tasks.tuning_show import make_trial_show

        words = tuned.train_words(what, over, settings or [])
        request = tuning.Request(config, asked, words, data_root, span, trials, choose_device(device))
        try:
            result = tuning.tune(request, tuning.make_place(place), make_trial_show(), asked_at=Typed.at)
        except KeyboardInterrupt:
            say("interrupted before the first trial; start it again")
            raise typer.Exit(130) from None
    show(result, as_json)


def check_request(config: RunConfig, data_root: Path, asked: frozenset[str], out: Path | None) -> None:
    """Check, before torch is imported, that trials can be bounded, that the folder is free and the data there."""
    bounded = [name for name in BOUNDS if name in asked]
    if bounded:
        raise UsageError(
            f"{bounded[0]}: a search says itself how long each run is; leave it out, and give --budget TIME"
        )
    if out is not None and not (out / "tune.json").exists():  # else it is told how to go on
        check_free(out)
    files = config.data
    check_files((*files.train, *files.valid, *getattr(files, "test", ())), data_root)


def go_on(folder: Path, fixed: dict[str, object], device: str) -> TuneResult:
    if fixed:
        names = ", ".join(name if name.isupper() else f"--{name}" for name in fixed)
        raise UsageError(f"a search goes on as it began: leave out {names}, or start a new one without --resume")
    if not (folder / "tune.json").exists():
        again = f"regard tune ... -o {folder}"
        raise UsageError(f"{folder} is not a search; if it was stopped before its first trial, start it again: {again}")
    from regard.tasks import tuning
    from regard.tasks.tuning_show import make_trial_show

    return tuning.go_on(folder, choose_device(device), make_trial_show(), asked_at=Typed.at)


def show(result: TuneResult, as_json: bool) -> None:
    """Print the result; of a search that was stopped, say how to go on, and exit 130."""
    if not result.finished:
        say(f"interrupted; go on with: regard tune --resume {result.folder}")
        raise typer.Exit(130)
    if as_json:
        print_json(result.data())
    else:
        print_trials(result)
        print_best(result)


def print_trials(result: TuneResult) -> None:
    """A row for each trial: its settings, how far it came, its score there, and the time of all its runs."""
    search = result.search
    scores = list(dict.fromkeys((search.select, "loss")))
    columns = ("rank", "trial", *(each.name for each in search.space), "rung", *scores, "steps", "seconds", "")
    rows = []
    for rank, trial in enumerate(result.trials, start=1):
        run = trial.ended
        cells = [str(rank), str(trial.number), *(each.label(trial.settings) for each in search.space)]
        metrics = {} if run is None else run.metrics
        cells += ["" if run is None else str(run.rung + 1)]
        cells += [number(name, metrics[name]) if name in metrics else "" for name in scores]
        cells += ["" if run is None else f"{run.steps:,}", f"{sum(each.seconds for each in trial.runs):.0f}"]
        about = ["as the rules choose"] if trial.number == 0 else []
        rows.append([*cells, "; ".join([*about, *([f"failed: {trial.error}"] if trial.error else [])])])
    print_table(columns, rows, right=("rank", "trial", "rung", *scores, "steps", "seconds"), fold=("",), stack=True)


def print_best(result: TuneResult) -> None:
    console, best, search = results(), result.best, result.search
    assert best is not None
    rows = [("best", f"{best.folder} ({search.select} {number(search.select, best.outcome.metrics[search.select])})")]
    beside = result.against_rules()
    rows.append(("differs", differences(result) or "the best is what the rules choose"))
    if beside is not None:
        rows.append(("and so", gain(beside)))
    rows += [("again", result.command()), ("picture", str(result.picture))]
    rows.append(("try it", TASKS[search.task].first_try.format(model=best.folder)))
    rows.append(("took", f"{search.spent:,.0f} s of {search.budget:,.0f} s"))
    console.print()
    print_table(("", " "), rows, fold=(" ",))


def gain(beside: dict[str, object]) -> str:
    """The score of the best trial beside that of the rules, and the loss, which decides where scores are alike."""
    name, span = str(beside["metric"]), duration(float(str(beside["budget"])))
    told = []
    for which in ("best", "rules"):
        score, loss = (float(str(beside[key])) for key in (which, f"{which}_loss"))
        about = "" if name == "loss" else f"loss {number('loss', loss)}, "
        told.append(f"{name} {number(name, score)} ({about}{beside[f'{which}_steps']:,} steps)")
    return f"{' instead of '.join(told)} after {span} each"


def differences(result: TuneResult) -> str:
    """Name the settings in which the best trial differs from the choice of the rules."""
    search, rules = result.search, result.search.trials[0].settings
    best = rules if result.best_trial is None else result.best_trial.settings
    pairs = ((each.name, each.label(best), each.label(rules)) for each in search.space)
    return ", ".join(f"{name} {now} instead of {before}" for name, now, before in pairs if now != before)
