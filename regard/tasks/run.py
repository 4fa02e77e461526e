"""Start a run in a new folder, or go on with one, and draw its curves at the end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.brief import brief
from regard.bundle import Made
from regard.config import Tables, check
from regard.data.kept.ranks import help_until_told, helped_by
from regard.errors import Advice, Option, RegardError, UsageError
from regard.files import alone_in, is_bare, is_taken, read_json, write_json
from regard.runs import CONFIG, check_free, data_root_of, new_run, read_run
from regard.tasks.choose import Chooser
from regard.tasks.config import RunConfig
from regard.tasks.configure import check_run
from regard.tasks.examples import FILES
from regard.tasks.generate.recipe import OLD_STREAMS, STREAMS
from regard.tasks.recipe import DATA, TOKENS, PreparedRun, made_by, prepare
from regard.tasks.table import TASKS
from regard.tasks.trained import load_model
from regard.training.config import TrainConfig
from regard.training.events import Chosen, Note, OnEvent, Prepared
from regard.training.finetune import START, read_table
from regard.training.history import RunLog
from regard.training.job import Outcome
from regard.training.show import BothListeners, Show
from regard.training.state import has_checkpoint, progress_in
from regard.training.timed import BEFORE_FALL, train
from regard.training.timetable import SCHEDULE
from regard.training.verdict import Verdict, verdict_on
from regard.world import alone, world

NAMING = ("train", "valid", "test")  # the keys of a data table that name files


@dataclass(frozen=True)
class RunResult:
    """A run that ended: where it lies and how it went."""

    folder: Path
    outcome: Outcome
    task: str = "translate"

    def __repr__(self) -> str:
        return brief(self, repr(str(self.folder)), self.outcome.chosen or self.outcome.reason, **self.outcome.metrics)

    def __fspath__(self) -> str:
        """Its folder, so that `regard.load(run)` and `regard.formation_of(run)` take the run itself."""
        return str(self.folder)

    @property
    def best(self) -> Path:
        return self.folder / "best"

    @property
    def curves(self) -> Path:
        return self.folder / "curves.png"

    @property
    def verdict(self) -> Verdict:
        """Whether the model is of use, and what to do next, by the log of the run."""
        config, outcome = check_run(read_run(self.folder)["config"], f"{self.folder}"), self.outcome
        rows, fresh = RunLog(self.folder).rows(), config.start is None
        return verdict_on(rows, config.train, outcome.metrics, outcome.progress.first_loss, fresh)

    @property
    def tuning(self) -> dict[str, Any] | None:
        """Gain on the new data and loss on the old of a fine-tuned model; None of a run that began with nothing."""
        return read_table(self.folder)

    def load(self, device: str = "cpu") -> Any:
        """The trained model, ready to use: a Translator, Generator, Filler or TextClassifier."""
        return load_model(self.best, device)


def start_run(
    config: RunConfig,
    *,
    data_root: Path | None = None,
    folder: str | Path | None = None,
    device: str = "cpu",
    show: Show | None = None,
    on_event: OnEvent | None = None,
    chooser: Chooser | None = None,
) -> RunResult:
    """Train from the start, in `folder` or in the next free `runs/<task>/<number>`; `chooser` fills what is left open.

    Of several processes the first one starts the run, or goes on with one, and the others call `follow_run`.
    """
    place = make_place(config.task, folder)
    return begin_run(config, place, data_root=data_root, device=device, show=show, on_event=on_event, chooser=chooser)


def make_place(task: str, folder: str | Path | None) -> Path:
    """The folder of a new run: the next free one, or that which was asked for, if nothing is in it."""
    if folder is None:
        return new_run(TASKS[task].verb)
    place = Path(folder)
    check_free(place)
    place.mkdir(parents=True, exist_ok=True)
    return place


def begin_run(
    config: RunConfig,
    place: Path,
    *,
    data_root: Path | None = None,
    device: str = "cpu",
    show: Show | None = None,
    on_event: OnEvent | None = None,
    chooser: Chooser | None = None,
) -> RunResult:
    """Train from the start in a folder that `make_place` gave, where only examples are kept so far."""
    data_root, listeners = find_data_root(config, data_root), _listeners(show, on_event)
    return _run(config, place, data_root, resume=False, device=device, show=listeners, chooser=chooser)


def repeat_run(
    origin: str | Path,
    *,
    folder: str | Path | None = None,
    device: str = "cpu",
    show: Show | None = None,
    on_event: OnEvent | None = None,
) -> RunResult:
    """Train again as a run did: its configuration, and what its clock decided, so that the clock is not asked."""
    values = read_run(origin)
    config, data_root = check_run(values["config"], f"{origin}"), data_root_of(values)
    if data_root is not None:
        config = _anchored(config, Path(origin), data_root)
    place = make_place(config.task, folder)
    if (Path(origin) / SCHEDULE).exists():
        write_json(place / SCHEDULE, read_json(Path(origin) / SCHEDULE))
    return _run(config, place, data_root, resume=False, device=device, show=_listeners(show, on_event))


def resume_run(
    folder: str | Path,
    *,
    device: str = "cpu",
    show: Show | None = None,
    on_event: OnEvent | None = None,
    **train_over: object,
) -> RunResult:
    """Go on with a run that was stopped; `train_over` may lengthen it (`steps`, `max_time`, `budget`: so much more time).

    A run that was stopped before its first checkpoint starts over. With a `budget`, one whose learning rate has fallen goes
    back to before that.
    """
    values = read_run(folder)
    config = check_run(values["config"], f"{folder}")
    longer = "budget" in train_over
    if longer:
        train_over = _longer(Path(folder), config, train_over)
    if train_over:
        changed = check(type(config.train), {**config.train.model_dump(), **train_over}, "train")
        config = config.model_copy(update={"train": changed})
        write_json(Path(folder) / CONFIG, {**values, "config": config.dump()})  # the next resume knows it too
    data_root = data_root_of(values)
    started = has_checkpoint(Path(folder) / "checkpoints")
    listeners = _listeners(show, on_event)
    if data_root is not None:
        config = _anchored(config, Path(folder), data_root)
    if started and (other := _made_otherwise(values.get("made"), config, device)):
        listeners(Note(other))
    return _run(config, Path(folder), data_root, resume=started, device=device, show=listeners, longer=longer)


def follow_run(device: str = "cpu") -> RunResult:
    """Take part in the run that the first process of this world starts or goes on with: help it to prepare it, read what it
    wrote, and train with it. Nothing is written here, and nothing shown.
    """
    here = world()
    told = help_until_told(here)
    folder = Path(told["folder"])
    with alone():
        job = _prepare_as_written(folder, device).job
    here.wait_long()
    outcome = train(replace(job, world=here), Show(), resume=told["resume"], longer=told["longer"])
    return RunResult(folder, outcome, told["task"])


def _prepare_as_written(folder: Path, device: str) -> PreparedRun:
    """The data, the model and the job of a run that another process has prepared."""
    values = read_run(folder)
    config, data_root = check_run(values["config"], f"{folder}"), data_root_of(values)
    if data_root is not None:
        config = _anchored(config, folder, data_root)
    return prepare(config, folder, data_root=data_root, resume=True, device=device)


def prepare_again(folder: str | Path, device: str = "cpu") -> PreparedRun:
    """The data, the model with fresh weights and the job of a run as it had them; nothing is trained."""
    read_run(folder)
    if is_taken(Path(folder)):
        raise RegardError(f"{folder} is being trained right now", "look again when it has ended")
    return _prepare_as_written(Path(folder), device)


def _longer(folder: Path, config: RunConfig, train_over: Tables) -> Tables:
    """The settings of a run that is given more time, counted from where it goes on."""
    if config.train.budget is None:
        raise UsageError(
            f"{folder} does not go by the clock: its schedule is {config.train.schedule}",
            Advice("lengthen it with ", Option("steps"), " or ", Option("max_time")),
        )
    more = check(TrainConfig, {"budget": train_over["budget"], "schedule": "wsd"}, "budget").budget
    assert more is not None
    before = folder / BEFORE_FALL
    progress = progress_in(before if has_checkpoint(before) else folder / "checkpoints")
    return {**train_over, "budget": progress.prepared + progress.seconds + more}


def find_data_root(config: RunConfig, data_root: Path | None) -> Path:
    """The folder from which the data is named: the one of the configuration, unless the files lie where the person is."""
    here = Path.cwd()
    names = [name for part in NAMING for name in getattr(config.data, part, ())]
    names += [name for corpus in getattr(config.data, "further", ()) for name in corpus.train]
    files = [name for name in names if not name.startswith("builtin/")]
    return (
        here if data_root is None or (files and all((here / name).exists() for name in files)) else data_root.absolute()
    )


def _anchored(config: RunConfig, folder: Path, data_root: Path) -> RunConfig:
    """The configuration with its data where it was when the run began, not where the person is now; or in the run's folder."""

    def place(name: str) -> str:
        own = folder / Path(name).name
        if own.name in FILES.values() and own.exists() and not Path(name).exists():
            return str(own)  # the run was moved
        return str(data_root / name) if (data_root / name).exists() else name

    parts = {part: getattr(config.data, part, ()) for part in NAMING}
    names: Tables = {part: tuple(map(place, found)) for part, found in parts.items() if found}
    if getattr(config.data, "also", ()):
        corpora = getattr(config.data, "further", ())
        names["also"] = tuple({"train": [*map(place, each.train)], "weight": each.weight} for each in corpora)
    return config.model_copy(update={"data": config.data.model_copy(update=names)})


def _made_otherwise(before: object, config: RunConfig, device: str) -> str:
    """Why a run that goes on here may not end with the same bits; empty if it will."""
    if not isinstance(before, dict):  # an older Regard did not say
        return ""
    known = {name: value for name, value in before.items() if name in Made.model_fields}
    changed = Made.model_validate(known).differences(made_by(config, device))
    if not changed:
        return ""
    return f"goes on with {', '.join(changed)}: the rest may differ in its last digits from a run without a stop"


def _listeners(show: Show | None, on_event: OnEvent | None) -> Show:
    show = show or Show()
    return show if on_event is None else BothListeners(show, on_event)


def _run(
    config: RunConfig,
    folder: Path,
    data_root: Path | None,
    *,
    resume: bool,
    device: str,
    show: Show,
    chooser: Chooser | None = None,
    longer: bool = False,
) -> RunResult:
    with alone_in(folder), show:
        began = (folder / CONFIG).exists()
        try:
            with helped_by(world()), alone():
                prepared = prepare(
                    config, folder, data_root=data_root, resume=resume, device=device, emit=show, chooser=chooser
                )
        except RegardError:
            if not began:
                leave_nothing(folder)
            raise
        job = replace(prepared.job, world=world())
        _call_others(folder, config.task, resume, longer)
        parameters = sum(parameter.numel() for parameter in job.model.parameters())
        if chooser is not None:
            show(Chosen(tuple(chooser.choices)))
        show(Prepared(folder, parameters, job.config.steps, prepared.notes))
        try:
            outcome = train(job, show, resume=resume, longer=longer)
        except RegardError:
            if not began and not has_checkpoint(folder / "checkpoints"):  # the time was gone before it could begin
                leave_nothing(folder)
            raise
        if outcome.reason != "interrupted":
            from regard.look.figures.curves import (
                training_curves,  # Matplotlib takes a second that the start does not have
            )

            training_curves(RunLog(folder).rows(), folder / "curves.png")
    return RunResult(folder, outcome, config.task)


def _call_others(folder: Path, task: str, resume: bool, longer: bool) -> None:
    """Tell the other processes what was prepared, and wait until they have read it."""
    here = world()
    here.tell({"folder": str(folder.absolute()), "task": task, "resume": resume, "longer": longer})
    here.wait_long()


def leave_nothing(folder: Path) -> None:
    """Remove what a run wrote that could not start; its folder held nothing before (`make_place`)."""
    shutil.rmtree(folder / TOKENS, ignore_errors=True)
    for name in (*STREAMS, *OLD_STREAMS, *FILES.values(), DATA, SCHEDULE, START):
        (folder / name).unlink(missing_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
    if is_bare(folder):
        shutil.rmtree(folder, ignore_errors=True)  # with the lock, which ends with this process at the latest
