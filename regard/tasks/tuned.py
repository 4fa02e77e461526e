"""The record of a search for settings, as it stands in its folder: its plan, its trials, the best run, what to type for it."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from regard.brief import brief
from regard.config import Tables
from regard.errors import Advice, RegardError, UsageError, Verb
from regard.files import finite, read_json, write_bytes, write_json
from regard.look.comparison import SettingPanel, TrialPoint
from regard.tasks.halving import Dimension, Rung, Trial, TrialRun, best_run, better_first, ranked
from regard.tasks.run import RunResult
from regard.training.job import Outcome
from regard.training.state import progress_in
from regard.training.stopwatch import duration

STATE, PICTURE, BEST = "tune.json", "tune.png", "best"
FORMAT = 1


@dataclass
class Search:
    """Where a search is. Everything here is in tune.json."""

    config: Tables  # as the rules chose it for the last rung
    words: list[str]
    data_root: str | None
    budget: float
    seed: int
    preparing: float  # seconds in which the data was prepared
    validating: float  # seconds of a validation
    space: list[Dimension]
    plan: list[Rung]
    trials: list[Trial]
    seconds: list[float] = field(default_factory=list)  # of the runs of each rung that has begun
    spent: float = 0.0  # by the clock, without the times between a stop and a resume
    running: Tables | None = (
        None  # {"trial", "rung", "seconds"}: which run was going on, for how long as far as was written
    )
    best: str = ""  # folder of the best run, once the search has ended
    notes: list[str] = field(default_factory=list)

    @property
    def task(self) -> str:
        return str(self.config["task"])

    @property
    def select(self) -> str:
        return str(self.config["train"]["select"])

    def entrants(self, rung: int) -> list[Trial]:
        """The trials of a rung, the best of the one before first; all of them in the first."""
        if rung == 0:
            return self.trials
        return better_first(self.trials, rung - 1, self.select)[: self.plan[rung].trials]

    def in_words(self, settings: Tables) -> str:
        told = ", ".join(f"{each.name} {each.label(settings)}" for each in self.space)
        return told or "as the rules choose"

    @classmethod
    def read(cls, folder: Path) -> Search:
        """The search in a folder."""
        if not (folder / STATE).exists():
            hint = Advice(
                "if it was stopped before its first trial, start it again: ", Verb("tune", f"... -o {folder}")
            )
            raise UsageError(f"{folder} is not a search: it has no {STATE}", hint)
        values = read_json(folder / STATE)["search"]
        space = [Dimension(each["name"], tuple(each["options"]), each["own"]) for each in values["space"]]
        plan = [Rung(**each) for each in values["plan"]]
        trials = [
            Trial(each["number"], each["settings"], [TrialRun(**r) for r in each["runs"]]) for each in values["trials"]
        ]
        return cls(**{**values, "space": space, "plan": plan, "trials": trials})

    def write(self, folder: Path) -> None:
        result = finite(TuneResult(folder, self).data())
        write_json(folder / STATE, {"format": FORMAT, "result": result, "search": asdict(self)})


@dataclass(frozen=True)
class TuneResult:
    """A search that ended, or was stopped: its trials, the best run, what it cost."""

    folder: Path
    search: Search

    def __repr__(self) -> str:
        run = best_run(self.search.trials, self.search.select)
        told = {} if run is None else {self.search.select: run[1].metrics[self.search.select]}
        return brief(self, repr(str(self.folder)), f"{len(self.search.trials)} trials", **told)

    def __fspath__(self) -> str:
        """Its folder, so that `regard.load(result)` gives the best model."""
        return str(self.folder)

    @property
    def finished(self) -> bool:
        return bool(self.search.best)

    @property
    def trials(self) -> list[Trial]:
        """All trials, the best first."""
        return ranked(self.search.trials, self.search.select)

    @property
    def best_trial(self) -> Trial | None:
        """The trial of the best run; None if none has ended."""
        found = best_run(self.search.trials, self.search.select)
        return None if found is None else found[0]

    @property
    def best(self) -> RunResult | None:
        """The best run; None if none has ended."""
        found = best_run(self.search.trials, self.search.select)
        if found is None:
            return None
        folder = self.folder / self._place(found[1])
        progress = progress_in(folder / "checkpoints")
        outcome = Outcome(progress.finished, progress, progress.chosen, progress.best)
        return RunResult(folder, outcome, self.search.task)

    @property
    def picture(self) -> Path:
        return self.folder / PICTURE

    def draw(self) -> None:
        """Draw the scores against the settings, as tune.png."""
        from regard.look.figures.comparison import draw_trials  # Matplotlib takes a second that the start does not have
        from regard.look.figures.sheet import render

        if self.search.space:
            figure = draw_trials(panels(self.search), self.search.select, rung_names(self.search))
            write_bytes(self.picture, render(figure, "png"))

    def command(self) -> str:
        """The command that trains the best again."""
        found = best_run(self.search.trials, self.search.select)
        if found is None:
            return ""
        settings = [word for each in found[0].settings.items() for word in ("--set", assignment(*each))]
        budget = ["--budget", f"{round(found[1].budget)}s"]
        return shlex.join(["regard", "train", *self.search.words, *budget, *settings])

    def against_rules(self) -> dict[str, object] | None:
        """The best trial beside the choice of the rules, in the last rung in which both were."""
        found = best_run(self.search.trials, self.search.select)
        if found is None or found[0].number == 0:
            return None
        for rung in range(len(self.search.plan) - 1, -1, -1):
            best, rules = found[0].run_in(rung), self.search.trials[0].run_in(rung)
            if best and rules and best.metrics and rules.metrics:
                select = self.search.select
                scores = {"best": best.metrics[select], "rules": rules.metrics[select]}
                losses = {"best_loss": best.metrics["loss"], "rules_loss": rules.metrics["loss"]}
                steps = {"best_steps": best.steps, "rules_steps": rules.steps}
                return {"rung": rung, "budget": best.budget, "metric": select, **scores, **losses, **steps}
        return None

    def data(self) -> dict[str, object]:
        search, found = self.search, best_run(self.search.trials, self.search.select)
        return {
            "search": str(self.folder),
            "task": search.task,
            "finished": self.finished,
            "metric": search.select,
            "budget": search.budget,
            "seconds": round(search.spent, 3),
            "rungs": [
                {"trials": rung.trials, "budget": seconds}
                for rung, seconds in zip(search.plan, search.seconds, strict=False)
            ],
            "trials": [self._row(rank, trial) for rank, trial in enumerate(self.trials, start=1)],
            "best": None
            if found is None
            else {"trial": found[0].number, "run": str(self.folder / self._place(found[1]))},
            "against_rules": self.against_rules(),
            "command": self.command(),
            "notes": search.notes,
        }

    def _row(self, rank: int, trial: Trial) -> dict[str, object]:
        runs = [{**run.data(), "folder": self._place(run)} for run in trial.runs]
        return {"rank": rank, "trial": trial.number, "settings": trial.settings, "runs": runs}

    def _place(self, run: TrialRun) -> str:
        return BEST if self.search.best == run.folder else run.folder


def assignment(name: str, value: object) -> str:
    """A setting as `--set` takes it."""
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def keep_best(folder: Path, search: Search) -> None:
    """Keep the best run as `best`."""
    found = best_run(search.trials, search.select)
    if found is None:
        errors = [run.error for trial in search.trials for run in trial.runs if run.error]
        raise RegardError(f"no trial came to its end: {errors[0] if errors else 'none was trained'}")
    place = folder / BEST
    if not place.exists():  # else it was killed behind this line
        (folder / found[1].folder).rename(place)
    with contextlib.suppress(OSError):
        (folder / found[1].folder).parent.rmdir()  # if nothing else of the trial is left
    search.best = found[1].folder


def panels(search: Search) -> list[SettingPanel]:
    """The score of each run against each setting, as data to draw."""
    best = best_run(search.trials, search.select)
    found = []
    for dimension in search.space:
        labels = [dimension.label(option) for option in dimension.options]
        points = [
            TrialPoint(
                labels.index(dimension.label(trial.settings)),
                run.metrics.get(search.select, math.nan),
                run.rung,
                best is not None and run is best[1],
            )
            for trial in search.trials
            for run in trial.runs
        ]
        found.append(SettingPanel(dimension.name, labels, dimension.own, points))
    return found


def rung_names(search: Search) -> list[str]:
    return [f"{duration(seconds)} each" for seconds in search.seconds]


def train_words(what: str, over: Tables, assignments: Sequence[str] = ()) -> list[str]:
    """The words behind `regard train` that mean the same: the task, the data, and what else was set."""
    words, options = [what], {"model.kind": "--model", "train.seed": "--seed", "preset": "--preset", "start": "--from"}
    for name, value in _leaves(over):
        if name in ("data.train", "data.valid"):
            option = "--data" if name == "data.train" else "--valid"
            files = value if isinstance(value, list | tuple) else [value]
            words += [word for file in files for word in (option, str(file))]
        elif name in options:
            words += [options[name], str(value)]
        elif name != "task":
            words += ["--set", assignment(name, value)]
    return [*words, *(word for each in assignments for word in ("--set", each))]


def _leaves(values: Tables, before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield before + name, value
