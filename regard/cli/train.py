"""`regard train`: a model from a task and data, from a TOML file, or on from where a run was stopped."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.arguments import Typed
from regard.cli.ended import print_rehearsal, print_summary, summary
from regard.cli.model import check_device, check_files, choose_device
from regard.cli.options import (
    AsJson,
    Device,
    LabelColumn,
    PairColumn,
    SourceColumn,
    Tables,
    TargetColumn,
    TextColumn,
    column_settings,
    given,
)
from regard.cli.output import print_json, say, show_run
from regard.cli.processes import (
    RESTARTS,
    device_of,
    follow,
    launch,
    own_words,
    place_here,
    restarts_so_far,
    taking_part,
)
from regard.config import from_assignments
from regard.errors import RegardError, UsageError
from regard.files import is_bare, is_taken
from regard.runs import CONFIG, check_free, new_run, read_run
from regard.tasks.config import RunConfig
from regard.tasks.configure import asked_settings, data_folder, run_config, task_named, time_of
from regard.tasks.table import TASKS
from regard.training.config import seconds
from regard.training.history import read_progress
from regard.world import alone

if TYPE_CHECKING:
    from regard.tasks.rehearse import Rehearsal
    from regard.tasks.run import RunResult

LAUNCHING = ("--processes", "--restarts")  # what the processes themselves are not told
LENGTHEN = ("steps", "max_time", "patience")  # what may change when a run goes on


def _tasks() -> str:
    """The tasks that can be trained, those of plugins too: "translate, generate or fill"."""
    names = list(dict.fromkeys(task.verb for task in TASKS.values()))
    return f"{', '.join(names[:-1])} or {names[-1]}"


def train(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help=f"{_tasks()}; or a TOML file.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Training data: pairs, labelled texts or sounds, captions, questions about pictures, stories or tables "
            "(.tsv .jsonl .csv .tmx .zip, two parallel files, bAbI's .txt), any text, music (.mid) or sound (.wav), a folder "
            "of pictures or sounds with a class a folder, or a graph (.npz; edges.csv nodes.csv).",
        ),
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
        str | None,
        typer.Option(
            metavar="KIND",
            help="transformer, bahdanau, luong, seq2seq, bytenet, decoder-only; llama, gpt1, gpt2, gpt3, lstm, wavenet, "
            "pixelcnn, pixelrnn, image-transformer; bert; "
            "tfidf, token-weights, plain-attention, additive, self-attention; convnet, resnet, vit, mixer, convmixer; "
            "show-attend-tell, caption-transformer, show-and-tell; answerer; memory-network, turing-machine, ponder, "
            "programmer; gat, gatv2, gcn, graph-transformer.",
            show_default="of the task",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Size of the model: demo, tiny, small, base or big.", show_default="tiny"),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN", help="Fine-tune: go on from this model's weights and tokenizer."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of align: dpo, ppo or reward.", show_default="dpo")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Any key of the configuration, as train.lr=1e-3.")
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Most training time, as 45s, 30m or 1h30m (all resumes together)."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time by the clock, all of which is used.", show_default="15m"),
    ] = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Most updates of the weights.")] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Everything random follows from it.", show_default="1")
    ] = None,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Folder of the run.", show_default="runs/TASK/NUMBER"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run; --budget, --steps and --max-time lengthen it.")
    ] = None,
    repeat: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Train again as this run did, to the same end.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be chosen, and what to expect; leaves nothing.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="So many processes on this machine train together, as torchrun does it."),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            metavar="N", help="With --processes: how often all are started again, and go on, where one fails."
        ),
    ] = RESTARTS,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Of several processes: how long one waits for another.", show_default="10m"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--go-on", help="Go on with the run in --out, if one was begun there.", show_default=False)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model from your own data.

    Ctrl-C stops a run so that it can go on: regard train --resume RUN.
    """
    here, wait = place_here(), _time("--timeout", timeout)
    if here.rank:
        follow(device, wait)
        return
    if processes is not None and not here.is_alone:
        raise UsageError(f"{here.size} processes were started already: leave out --processes")
    again = again or restarts_so_far() > 0
    changes = given(steps=steps, max_time=max_time)
    columns = given(text=text, label=label, pair=pair, source=source, target=target)
    fixed = given(WHAT=what, data=data, valid=valid, languages=languages, model=model, preset=preset)
    fixed |= given(**{"from": origin}, method=method, seed=seed) | columns
    if dry_run and (repeat or resume) is not None:
        raise UsageError("a run that goes on or is repeated is chosen already: leave out --dry-run")
    if repeat is not None:
        if processes is not None:
            raise UsageError("--repeat gives the bits of that run, which --processes would not: leave out one of them")
        result = do_again(
            repeat, fixed | given(**changes, budget=budget, set=settings, resume=resume), out, device, wait
        )
    elif resume is not None:
        fixed |= given(out=out)
        more = given(budget=None if restarts_so_far() else _budget(budget, steps, max_time))
        if processes is not None:
            read_run(resume)  # a wrong name is told before any process starts
            raise typer.Exit(launch(processes, restarts, own_words(Typed.words, *LAUNCHING)))
        result = go_on(resume, fixed, {**changes, **more, **_train_settings(settings or [])}, device, wait)
    else:
        if what is None:
            raise UsageError("name a task or a configuration: regard train translate --data pairs.tsv")
        tables = data_tables(data, valid, languages) | (column_settings(task_named(what), **columns) if columns else {})
        over = given(preset=preset, train=given(**changes, seed=seed), data=tables, start=origin)
        over |= given(model=None if model is None else {"kind": model})
        over |= given(align=None if method is None else {"method": method})
        notes = {} if processes is not None else {"note": say}  # the first process will tell them
        config, data_root = run_config(what, over, settings, **notes), data_folder(what) or Path.cwd()
        asked = asked_settings(what, over, settings)
        span = time_of(asked, _budget(budget, steps, max_time), config.task)
        check_start(config, data_root, out, device, again)
        if dry_run:
            print_rehearsal(rehearse(config, data_root, device, span, asked), as_json)
            return
        if processes is not None:
            words, folder = own_words(Typed.words, *LAUNCHING), out or new_run(config.task.partition("-")[0])
            code = launch(processes, restarts, words if out is not None else [*words, "--out", str(folder)])
            if folder.is_dir():
                _leave_no_empty(folder)
            raise typer.Exit(code)
        result = start(config, data_root, out, device, span, asked, again, wait)
    if as_json:
        print_json(summary(result))
    else:
        print_summary(result)


def check_start(config: RunConfig, data_root: Path, out: Path | None, device: str, again: bool = False) -> None:
    """Check, before torch is imported, that there is such a device, that the folder is free and the data there.

    `again`: the folder may hold a run, which goes on.
    """
    check_device(device)
    if out is None and again:
        raise UsageError("a run that goes on needs the name of its folder", "name it with --out")
    if out is not None and not (again and (out / CONFIG).exists()):
        check_free(out)
    data = config.data
    check_files((*data.train, *data.valid, *getattr(data, "test", ())), data_root)


def start(
    config: RunConfig,
    data_root: Path,
    out: Path | None,
    device: str,
    span: float | None = None,
    asked: frozenset[str] = frozenset(),
    again: bool = False,
    wait: float | None = None,
) -> RunResult:
    """Start a new run, shown while it learns; with `span`, a time by the clock, all that was not asked for is chosen.

    `again`: go on with the run in that folder, if there is one.
    """
    folder = out or new_run(config.task.partition("-")[0])
    say(f"run: {folder}")  # before torch is imported, which takes seconds
    from regard.tasks import budget, run
    from regard.tasks.choose import Chooser

    begun = again and (folder / CONFIG).exists()

    def work() -> RunResult:
        on, planned, chooser = device_of(device), config, None
        if begun and read_progress(folder):
            say(f"{folder} goes on from its last checkpoint")
            return run.resume_run(folder, device=on, show=show_run())
        if span is not None and "train.schedule" in asked:
            place = folder.with_name(folder.name + budget.MEASURING)
            with alone():
                planned = budget.fit(str(folder), config, data_root, span, place, on, say, show_run())
        elif span is not None:
            chooser = Chooser(asked, span, Typed.at)
        place = folder if begun else run.make_place(config.task, folder)
        return run.begin_run(planned, place, data_root=data_root, device=on, show=show_run(), chooser=chooser)

    return watch(work, folder, wait)


def rehearse(config: RunConfig, data_root: Path, device: str, span: float | None, asked: frozenset[str]) -> Rehearsal:
    """Do all that comes before the first update of a run, and measure how fast it would learn."""
    from regard.tasks import rehearse as rehearsal

    return rehearsal.rehearse(config, data_root, choose_device(device), span, asked, show_run(), Typed.at)


def go_on(folder: Path, fixed: dict[str, object], changes: Tables, device: str, wait: float | None = None) -> RunResult:
    """Go on with a run that was stopped, from its last checkpoint."""
    if fixed:
        names = ", ".join(name if name.isupper() else f"--{name}" for name in fixed)
        raise UsageError(f"a run goes on as it began: leave out {names}, or start a new run without --resume")
    check_device(device)
    read_run(folder)  # a wrong name is told before torch is imported
    if read_progress(folder).get("finished") and not changes:
        say(f"{folder} had come to its end; --steps N or --max-time TIME lengthen it")
    from regard.tasks.run import resume_run

    return watch(lambda: resume_run(folder, device=device_of(device), show=show_run(), **changes), folder, wait)


def do_again(
    origin: Path, fixed: dict[str, object], out: Path | None, device: str, wait: float | None = None
) -> RunResult:
    """Train as a run did, in a folder of its own."""
    if fixed:
        names = ", ".join(name if name.isupper() else f"--{name.replace('_', '-')}" for name in fixed)
        raise UsageError(f"a run is repeated as it was: leave out {names}")
    check_device(device)
    task = read_run(origin)["config"]["task"]  # a wrong name is told before torch is imported
    folder = out or new_run(str(task).partition("-")[0])
    say(f"run: {folder}")
    from regard.tasks.run import repeat_run

    return watch(lambda: repeat_run(origin, folder=folder, device=device_of(device), show=show_run()), folder, wait)


def watch(work: Callable[[], RunResult], folder: Path, wait: float | None = None) -> RunResult:
    """Do the work, with other processes if there are any; if the person interrupts it, say how to go on, and exit 130."""
    try:
        with taking_part(wait):
            result = work()
    except KeyboardInterrupt:
        result = None
    except RegardError as error:
        _leave_no_empty(folder)
        if getattr(error.__cause__, "errno", None) == errno.ENOSPC and (folder / "run.json").exists():
            say(f"what was learned until the last checkpoint is kept; make room, then: regard train --resume {folder}")
        raise
    if result is not None and result.outcome.reason != "interrupted":
        return result
    if (folder / "run.json").exists():
        say(f"interrupted; go on with: regard train --resume {folder}")
    else:
        say("interrupted before training began; start it again")
        _leave_no_empty(folder)
    raise typer.Exit(130)


def _leave_no_empty(folder: Path) -> None:
    """Remove the folder of a run that could not start, unless another process has just begun one in it."""
    if folder.exists() and is_bare(folder) and not is_taken(folder):
        shutil.rmtree(folder, ignore_errors=True)


def data_tables(data: list[str] | None, valid: list[str] | None, languages: str | None) -> dict[str, object]:
    codes = None if languages is None else [code.strip() for code in languages.split(",")]
    if codes is not None and (len(codes) != 2 or not all(codes)):
        raise UsageError(f"--languages {languages}: name two codes with a comma between them, as --languages en,de")
    return given(train=data or None, valid=valid or None, languages=codes)


def _budget(budget: str | None, steps: int | None, max_time: str | None) -> float | None:
    if budget is None:
        return None
    if steps is not None or max_time is not None:
        raise UsageError("--budget says how long to train; leave out --steps and --max-time")
    try:
        found = float(seconds(budget))  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from error
    if found <= 0:
        raise UsageError(f"--budget {budget} is no time to train; write 45s, 30m or 1h30m")
    return found


def _time(option: str, text: str | None) -> float | None:
    """A time as a person types it, in seconds."""
    if text is None:
        return None
    try:
        found = float(seconds(text))  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if found <= 0:
        raise UsageError(f"{option} {text} is no time; write 45s, 30m or 1h30m")
    return found


def _train_settings(settings: list[str]) -> Tables:
    """The `--set` assignments of a run that goes on: only its length may change."""
    tables = from_assignments(settings)
    over = tables.pop("train", {})
    if tables or not isinstance(over, dict) or not over.keys() <= set(LENGTHEN):
        allowed = ", ".join(f"train.{name}" for name in LENGTHEN)
        raise UsageError(f"a run goes on as it began: with --resume, --set may only change {allowed}")
    return over
