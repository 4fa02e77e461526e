"""A search for good settings in a given time: trials are ordinary runs by the clock, and the better ones go on.

A folder of a search has `trial-NN/rung-K` for each run, `best` (the best run), `tune.json` and `tune.png`. Whatever was
decided is in tune.json at once: a search that was killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from regard.config import Tables, merge
from regard.errors import Advice, Option, RegardError, UsageError, Verb
from regard.files import alone_in
from regard.runs import CONFIG, check_free, new_run, read_run
from regard.tasks.choose import Chooser, seconds_of_an_update, with_values
from regard.tasks.config import RunConfig
from regard.tasks.configure import check_run
from regard.tasks.halving import (
    Trial,
    TrialRun,
    best_run,
    dimensions,
    draw,
    fitting_trials,
    nested,
    rung_seconds,
    rungs,
)
from regard.tasks.recipe import prepare
from regard.tasks.run import find_data_root, leave_nothing, resume_run, start_run
from regard.tasks.table import TASKS
from regard.tasks.tuned import STATE, Search, TuneResult, keep_best
from regard.tasks.tuning_show import TrialShow
from regard.training.events import Event, Working
from regard.training.job import Job, Outcome
from regard.training.show import Show, number
from regard.training.state import has_checkpoint, progress_in
from regard.training.stopwatch import duration
from regard.training.timed import BEFORE_FALL

CHOOSING = "choosing"  # folder in which the data is prepared once to let the rules choose
DEFAULT_TRIALS, DEFAULT_TIME = 9, 30 * 60.0
ENDING = 2.0  # seconds for what comes after the last run: the picture
LEAST, AROUND = 4.0, 0.5  # seconds that a trial must have for updates, and the most of it that may go into the rest
WARMING = 5.0  # most seconds for updates before the first trial
NOT_KEPT = (BEFORE_FALL, "last", "snapshots")  # of runs that are not of the last rung, to save room

Clock = Callable[[], float]
Say = Callable[[str], None]


class TrainTrial(Protocol):
    """Whoever trains a trial: in `folder`, from the start or on from its last checkpoint."""

    def __call__(self, config: RunConfig, folder: Path, asked_at: float, /) -> Outcome: ...


@dataclass(frozen=True)
class Request:
    """A search that a person asks for."""

    config: RunConfig
    asked: frozenset[str]  # settings that the person gave, which stay as they are
    words: list[str]  # that `regard train` needs for the same run
    data_root: Path | None
    budget: float = DEFAULT_TIME
    trials: int = DEFAULT_TRIALS
    device: str = "cpu"


# --- Begin


def begin(request: Request, folder: Path, emit: Show, clock: Clock, asked_at: float) -> Search:
    """Let the rules choose for the last and longest run, then plan the trials around their choice."""
    data_root = find_data_root(request.config, request.data_root)
    config, preparing, validating = _by_rules(request, folder, data_root, emit, clock)
    left = request.budget - (clock() - asked_at) - ENDING
    around = preparing + validating
    least = max(around + LEAST, around / AROUND)
    space = dimensions(config, TASKS[config.task].sizes, request.asked)
    settings = draw(space, request.trials, config.train.seed)
    trials = fitting_trials(left, len(settings), least)
    if trials < 2:
        raise _too_short(request.budget, clock() - asked_at, least) if len(settings) > 1 else _nothing_to_vary()
    notes = []
    if trials < request.trials:
        why = (
            f"only {trials} have {duration(least)} or more at first" if trials < len(settings) else "there are no more"
        )
        notes.append(f"{trials} trials instead of {request.trials}: {why}")
    return Search(
        config.dump(),
        request.words,
        str(data_root),
        request.budget,
        config.train.seed,
        round(preparing, 3),
        round(validating, 3),
        space,
        rungs(left, trials),
        [Trial(place, each) for place, each in enumerate(settings[:trials])],
        spent=clock() - asked_at,
        notes=notes,
    )


def _by_rules(
    request: Request, folder: Path, data_root: Path, emit: Show, clock: Clock
) -> tuple[RunConfig, float, float]:
    """The configuration that the rules choose for a run of the last rung; the seconds that it takes to prepare and validate."""
    place, began = folder / CHOOSING, clock()
    ended: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, Working) and event.what.startswith("measuring"):
            ended.append(clock())
        emit(event)

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    chooser = Chooser(request.asked, request.budget / 2, began, clock)
    try:
        prepared = prepare(
            request.config,
            place,
            data_root=data_root,
            resume=False,
            device=request.device,
            emit=listen,
            chooser=chooser,
        )
        ended.append(clock())
        values = read_run(place)["config"] if (place / CONFIG).exists() else request.config.dump()
        validating = _warm_up(prepared.measured(), emit, clock)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    timed = merge(values, {"train": {"schedule": "wsd", "budget": request.budget / 2}})
    return check_run(timed, "the search"), ended[0] - began, validating


def _warm_up(job: Job, emit: Show, clock: Clock) -> float:
    """Pay for what only the first run of a process pays: imports, first updates; the seconds that a validation takes."""
    import regard.look.figures.curves  # noqa: F401

    emit(Working("validating"))
    began = clock()
    with contextlib.suppress(RegardError, RuntimeError):  # such a model fails as a trial, and is told there
        seconds_of_an_update(job.model, job.batches, job.config, WARMING)
        if job.probe is not None:
            job.model.eval()
            job.probe(job.model, 0)
        began = clock()
        job.model.eval()
        with torch.no_grad():
            job.validate(job.model)
    return clock() - began


def _too_short(budget: float, spent: float, least: float) -> RegardError:
    needed = 10 * round((4 * least + spent + ENDING) / 10 + 0.5)
    return RegardError(
        f"{budget:.0f} s are too short: two trials of {duration(least)} and a run of twice that do not fit",
        Advice("give ", Option("budget", f"{needed}s"), " or more"),
    )


def _nothing_to_vary() -> UsageError:
    return UsageError("nothing is left to vary: all that a search tries was set", "leave out train.lr or model.dropout")


# --- Search


class Interrupted(Exception):
    """The person stopped the search; all that was learned is kept."""


class Searcher:
    """Does what the plan of a search says, from wherever it is."""

    def __init__(
        self,
        folder: Path,
        search: Search,
        train: TrainTrial,
        *,
        clock: Clock,
        asked_at: float,
        before: float = 0.0,
        say: Say = lambda text: None,
    ) -> None:
        self.folder, self.search, self.train, self.clock, self.say = folder, search, train, clock, say
        self.asked_at, self.before = asked_at, before  # when this part of the search began, and seconds of earlier ones

    def spent(self) -> float:
        return self.before + self.clock() - self.asked_at

    def run(self) -> None:
        """Go through the rungs; what is done is not done again."""
        search = self.search
        for rung in range(len(search.plan)):
            entrants = search.entrants(rung)
            if not entrants:
                break
            for trial in entrants:
                if trial.run_in(rung) is None:
                    self.one(trial, rung, len(entrants))

    def one(self, trial: Trial, rung: int, entrants: int) -> None:
        """Train a trial for its time in a rung; a failure is a result as well."""
        search, earlier = self.search, self._earlier(trial, rung)
        seconds = self._seconds(rung, entrants)
        place = f"trial-{trial.number:02d}/rung-{rung}"
        self._tell(trial, rung, entrants, seconds)
        search.running = {"trial": trial.number, "rung": rung, "seconds": earlier}
        self.write()
        began = self.clock()
        outcome, error = None, ""
        try:
            outcome = self.train(self._config(trial, seconds), self.folder / place, began)
        except KeyboardInterrupt:
            self._stop(earlier + self.clock() - began)
        except (RegardError, RuntimeError, MemoryError) as failure:
            if isinstance(failure.__cause__, OSError):
                raise  # a full disk fails every trial
            error = _one_line(failure)
        took = earlier + self.clock() - began
        if outcome is not None and outcome.reason == "interrupted":
            self._stop(took)
        trial.runs.append(_result(rung, place, seconds, took, outcome, error))
        search.running = None
        self.write()
        self._forget_parts(rung, place)
        self.say(f"  {self._how_it_did(trial.runs[-1])}")

    def write(self) -> None:
        self.search.spent = self.spent()
        self.search.write(self.folder)

    def _earlier(self, trial: Trial, rung: int) -> float:
        """Seconds that this run had before it was stopped."""
        running = self.search.running
        same = running is not None and (running["trial"], running["rung"]) == (trial.number, rung)
        return float(running["seconds"]) if same and running is not None else 0.0

    def _seconds(self, rung: int, entrants: int) -> float:
        """Seconds of each run of a rung, by the time that is left when it begins."""
        search = self.search
        if len(search.seconds) <= rung:
            left = search.budget - self.spent() - ENDING
            search.seconds.append(round(max(1.0, rung_seconds(search.plan, rung, entrants, left)), 3))
        return search.seconds[rung]

    def _config(self, trial: Trial, seconds: float) -> RunConfig:
        values: Tables = {"train": {"budget": seconds}}
        for name, value in trial.settings.items():
            values = merge(values, nested(name, value))
        return with_values(check_run(self.search.config, "the search"), values)

    def _stop(self, seconds: float) -> None:
        assert self.search.running is not None
        self.search.running["seconds"] = seconds
        self.write()
        raise Interrupted

    def _forget_parts(self, rung: int, place: str) -> None:
        if rung < len(self.search.plan) - 1:
            for name in NOT_KEPT:
                shutil.rmtree(self.folder / place / name, ignore_errors=True)

    def _tell(self, trial: Trial, rung: int, entrants: int, seconds: float) -> None:
        search, best = self.search, best_run(self.search.trials, self.search.select)
        done = sum(each.run_in(rung) is not None for each in search.trials)
        told = [f"rung {rung + 1} of {len(search.plan)}, {done + 1} of {entrants}, {duration(seconds)} each"]
        told.append(f"trial {trial.number}: {search.in_words(trial.settings)}")
        if best is not None:
            value = number(search.select, best[1].metrics[search.select])
            told.append(f"best so far {search.select} {value} (trial {best[0].number})")
        self.say(" · ".join([*told, f"{duration(search.budget - self.spent())} left"]))

    def _how_it_did(self, run: TrialRun) -> str:
        if run.error:
            return f"failed: {run.error}"
        names = dict.fromkeys((self.search.select, "loss"))
        told = " ".join(f"{name} {number(name, run.metrics[name])}" for name in names if name in run.metrics)
        return f"{told} in {duration(run.seconds)}, {run.steps:,} steps"


def _one_line(failure: BaseException) -> str:
    text = " ".join(str(failure).split()) or type(failure).__name__
    return text if len(text) <= 300 else f"{text[:299]}…"


def _result(rung: int, place: str, budget: float, seconds: float, outcome: Outcome | None, error: str) -> TrialRun:
    if outcome is None:
        return TrialRun(rung, place, budget, round(seconds, 3), error=error)
    progress = outcome.progress
    prepared = round(progress.prepared, 3)
    return TrialRun(rung, place, budget, round(seconds, 3), prepared, progress.step, dict(outcome.metrics))


# --- The whole


def tune(request: Request, folder: Path, show: Show, *, clock: Clock = time.monotonic, asked_at: float) -> TuneResult:
    """Search in a folder that `make_place` gave, where only examples are kept so far, until the time is used."""
    with alone_in(folder):
        try:
            with show:
                search = begin(request, folder, show, clock, asked_at)
        except BaseException:
            leave_nothing(folder)
            raise
        search.write(folder)
        for note in search.notes:
            show.note(note)
        return _go(folder, search, request.device, show, clock, asked_at)


def go_on(folder: Path, device: str, show: Show, *, clock: Clock = time.monotonic, asked_at: float) -> TuneResult:
    """Go on with a search that was stopped, from the last checkpoint of the run that was going on."""
    search = Search.read(folder)
    if search.best:
        return TuneResult(folder, search)
    with alone_in(folder):
        _count_running(folder, search)
        return _go(folder, search, device, show, clock, asked_at, search.spent)


def make_place(folder: str | Path | None) -> Path:
    """The folder of a new search: the next free `runs/tune/<number>`, or that which was asked for, if nothing is in it."""
    if folder is None:
        return new_run("tune")
    place = Path(folder)
    shutil.rmtree(place / CHOOSING, ignore_errors=True)  # of a search that was killed before its first trial
    if (place / STATE).exists():
        raise UsageError(f"{place} is a search", Advice("go on with: ", Verb("tune", f"--resume {place}")))
    check_free(place)
    place.mkdir(parents=True, exist_ok=True)
    return place


def _count_running(folder: Path, search: Search) -> None:
    """Count the time of the run that was going on when the search was killed, which could not be written down."""
    running = search.running
    if running is None:
        return
    checkpoints = folder / f"trial-{running['trial']:02d}" / f"rung-{running['rung']}" / "checkpoints"
    if has_checkpoint(checkpoints):
        progress = progress_in(checkpoints)
        more = progress.prepared + progress.seconds - running["seconds"]
        search.spent += max(0.0, more)
        running["seconds"] += max(0.0, more)


def _go(
    folder: Path, search: Search, device: str, show: Show, clock: Clock, asked_at: float, before: float = 0.0
) -> TuneResult:
    trains = _trainer(search, device, show)
    searcher = Searcher(folder, search, trains, clock=clock, asked_at=asked_at, before=before, say=show.note)
    try:
        searcher.run()
    except (Interrupted, KeyboardInterrupt):
        return TuneResult(folder, search)
    keep_best(folder, search)
    searcher.write()
    TuneResult(folder, search).draw()
    searcher.write()
    return TuneResult(folder, search)


def _trainer(search: Search, device: str, show: Show) -> TrainTrial:
    """Train trials as ordinary runs, whose time is counted from when they were asked for."""
    data_root = None if search.data_root is None else Path(search.data_root)

    def train(config: RunConfig, folder: Path, asked_at: float) -> Outcome:
        if isinstance(show, TrialShow):
            show.trial = f"trial {int(folder.parent.name.removeprefix('trial-'))}"
        if has_checkpoint(folder / "checkpoints"):
            return resume_run(folder, device=device, show=show).outcome
        shutil.rmtree(folder, ignore_errors=True)  # of one that was killed before its first update
        assert config.train.budget is not None
        chooser = Chooser(frozenset(["preset", *_names(config.dump())]), config.train.budget, asked_at)
        run = start_run(config, data_root=data_root, folder=folder, device=device, show=show, chooser=chooser)
        return run.outcome

    return train


def _names(values: Tables, before: str = "") -> Iterator[str]:
    """All settings of a configuration: a chooser to whom all were given chooses nothing."""
    for name, value in values.items():
        yield before + name
        if isinstance(value, dict):
            yield from _names(value, f"{before}{name}.")
