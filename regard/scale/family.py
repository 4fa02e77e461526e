"""A family of sizes in training: each size on several amounts of data, in runs of their own that a stop does not lose.

Every loss is that of a run whose learning rate has fallen to zero: a loss on the way of a longer run, at a rate that is still
high, is higher than what the same data are worth (Hoffmann et al. 2022, section 3; Hägele et al. 2024). A folder has
`scale.json` (the plan, and what came) and the runs: `size-NAME/amount-N`. Whatever the clock decides is in scale.json before
it is followed.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

import torch

from regard.config import Tables
from regard.errors import Advice, Option, RegardError, UsageError, Verb
from regard.files import alone_in, finite, read_json, write_json
from regard.models.operations import operations_of
from regard.models.table import build
from regard.runs import check_free, new_run, read_run
from regard.scale.sizes import Size, largest_family, settings_of, size_of
from regard.tasks.choose import Chooser, seconds_of_an_update, with_values
from regard.tasks.config import RunConfig
from regard.tasks.configure import check_run
from regard.tasks.recipe import TOKENS, PreparedRun, prepare, some_batches
from regard.tasks.run import find_data_root, leave_nothing, resume_run, start_run
from regard.tasks.tuning_show import TrialShow
from regard.tokens import TokenizerPair
from regard.training.events import Working
from regard.training.feed import Source
from regard.training.job import Outcome
from regard.training.show import Show
from regard.training.state import has_checkpoint, progress_in
from regard.training.stopwatch import duration

STATE, CHOOSING, FORMAT = "scale.json", "choosing", 1
COUNTED = 2  # batches whose operations are counted
MEASURED_AT, MEASURED = (16, 64), 5.0  # widths whose updates are timed; seconds of an update that is timed only once
LEAST_UPDATES = 20  # of the smallest amount
AROUND = 0.5  # seconds of a run before its first update and after its last, until that is known
GROWTH = 1.25  # times the tokens of the amount before, at least
NOT_KEPT = ("last", "snapshots")  # of runs that ended
# What runs have in common: the rate of wsd falls over the updates that are planned, and nothing else ends a run.
BY_STEPS: Tables = {"budget": None, "schedule": "wsd", "average": 0, "patience": 0, "ema": 0.0}
SILENT: Tables = {"samples": 0, "probes": 0}
# Unless asked for: few pieces, so that sizes differ by their layers, and no dropout, whose best share depends on the size.
LEAN: Tables = {"tokens": {"size": 512}, "model": {"dropout": 0.0}, "validate": {"tokens": 65_536}}

Clock = Callable[[], float]


@dataclass(frozen=True)
class Point:
    """One run: a size that learned from so many tokens."""

    size: str
    amount: int  # number of the amount of data, the smallest first
    tokens: int  # learned from
    loss: float  # nats for each token of the validation text; NaN if it failed
    seconds: float  # of the whole run
    learning: float  # of these, from its first update on
    folder: str
    error: str = ""


@dataclass
class Family:
    """A family of sizes and how far it has come. Everything here is in scale.json."""

    config: Tables  # of all runs, but for the size and the number of updates
    data_root: str | None
    device: str
    budget: float
    amounts: int
    rows: int  # tokens of an update
    text: int  # tokens of the training text
    sizes: list[Size]  # the smallest first
    operations: dict[str, float]  # floating-point operations to learn from one token, by size
    paces: dict[str, float]  # seconds of an update, by size, as measured before the first run
    spent: float  # seconds of planning
    steps: list[int] = field(default_factory=list)  # updates of each amount that has begun
    points: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return len(self.points) == len(self.sizes) * self.amounts

    def size(self, name: str) -> Size:
        return next(each for each in self.sizes if each.name == name)

    def write(self, folder: Path) -> None:
        write_json(folder / STATE, finite({"format": FORMAT, **asdict(self)}))

    @classmethod
    def read(cls, folder: Path) -> Family:
        if not (folder / STATE).exists():
            again = Advice(
                "if it was stopped before its first run, start it again: ", Verb("scale", f"... --runs {folder}")
            )
            raise UsageError(f"{folder} is no family of sizes: it has no {STATE}", again)
        values = read_json(folder / STATE)
        if values.pop("format") > FORMAT:
            raise RegardError(f"{folder / STATE} is of a later version of Regard", "upgrade Regard")
        sizes = [Size(**each) for each in values.pop("sizes")]
        points = [Point(**{**each, "loss": _number(each["loss"])}) for each in values.pop("points")]
        return cls(**values, sizes=sizes, points=points)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True)
class Request:
    """A family that a person asks for: so many sizes, or those that are named."""

    config: RunConfig
    asked: frozenset[str]  # settings that the person gave
    data_root: Path | None
    budget: float
    sizes: int | dict[str, Tables] = 5
    amounts: int = 4
    device: str = "cpu"


# --- Plan


def begin(request: Request, folder: Path, emit: Show, clock: Clock, asked_at: float) -> Family:
    """Let the rules choose what all runs share, measure how fast models learn here, and choose the sizes."""
    place, data_root = folder / CHOOSING, find_data_root(request.config, request.data_root)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    lean = {
        table: {n: v for n, v in each.items() if f"{table}.{n}" not in request.asked} for table, each in LEAN.items()
    }
    known = {f"{table}.{name}" for table, each in LEAN.items() for name in each} | {"model.width"}  # no size is chosen
    chooser = Chooser(request.asked | known, request.budget, asked_at, clock)
    try:
        prepared = prepare(
            with_values(request.config, lean), place, data_root=data_root, resume=False, device=request.device, emit=emit,
            chooser=chooser,
        )  # fmt: skip
        shared = with_values(check_run(read_run(place)["config"], "the family"), {"train": BY_STEPS, **SILENT})
        vocabulary = TokenizerPair.load(place / TOKENS).target.size
        emit(Working("measuring the speed of updates"))
        return _planned(
            request, _Speed(shared, prepared.job.batches, vocabulary), str(data_root), prepared, clock, asked_at
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


class _Speed:
    """How long an update of each size takes, and how many operations it is."""

    def __init__(self, config: RunConfig, batches: Source, vocabulary: int) -> None:
        self.config, self.batches, self.vocabulary = config, batches, vocabulary
        self.some = list(some_batches(batches, COUNTED))
        self.tokens = sum(int(batch.counts["loss"]) for batch in self.some) // len(self.some)
        self.of_width = cache(lambda width: self.size(str(width), settings_of(config.model.kind, width)))

    def size(self, name: str, settings: Tables) -> Size:
        return size_of(name, settings, self.config, self.vocabulary)

    def _model(self, size: Size) -> torch.nn.Module:
        torch.manual_seed(self.config.train.seed)
        config = with_values(self.config, {"model": size.settings})
        return build("generate", config.model, (self.vocabulary,), smoothing=config.train.smoothing)

    def operations(self, size: Size) -> float:
        """Floating-point operations to learn from one token, as `regard cost` counts them."""
        rows = operations_of(self._model(size), self.some)
        return sum(each.training for each in rows) / (self.tokens * len(self.some))

    def pace(self, size: Size) -> float:
        """Seconds of an update, measured."""
        return seconds_of_an_update(self._model(size), self.batches, self.config.train, MEASURED)

    def line(self) -> Callable[[Size], float]:
        """Seconds of an update of any size, about: two are measured, and they grow with the parameters."""
        small, large = (self.of_width(width) for width in MEASURED_AT)
        first, last = self.pace(small), self.pace(large)
        each = max(0.0, last - first) / (large.parameters - small.parameters)
        return lambda size: first + each * (size.parameters - small.parameters)


def _planned(
    request: Request, speed: _Speed, data_root: str, prepared: PreparedRun, clock: Clock, asked_at: float
) -> Family:
    if isinstance(request.sizes, int):
        pace, left = speed.line(), request.budget - (clock() - asked_at)

        def tokens(sizes: Sequence[Size]) -> float:
            """Tokens of the largest amount, if each is twice the one before."""
            return speed.tokens * left / ((2 - 0.5 ** (request.amounts - 1)) * sum(map(pace, sizes)))

        sizes = largest_family(request.sizes, speed.of_width, tokens)
    else:
        sizes = sorted((speed.size(*each) for each in request.sizes.items()), key=lambda each: each.parameters)
    text = prepared.job.batches.count(0) * speed.tokens
    operations = {each.name: speed.operations(each) for each in sizes}
    paces = {each.name: speed.pace(each) for each in sizes}
    notes = [str(note) for note in prepared.notes]
    return Family(
        speed.config.dump(), data_root, request.device, request.budget, request.amounts, speed.tokens, text, sizes,
        operations, paces, clock() - asked_at, notes=notes,
    )  # fmt: skip


# --- Train


class Interrupted(Exception):
    """The person stopped the family; all that was learned is kept."""


class Trainer:
    """Trains what is left of a family: all sizes on the smallest amount of data, then on the next one."""

    def __init__(self, folder: Path, family: Family, show: Show, clock: Clock = time.monotonic) -> None:
        self.folder, self.family, self.show, self.clock = folder, family, show, clock

    def run(self) -> None:
        family = self.family
        for amount in range(family.amounts):
            if len(family.steps) <= amount:
                self.plan_next()
            done = {point.size for point in family.points if point.amount == amount}
            for size in family.sizes:
                if size.name not in done:
                    self._one(size, amount)

    def plan_next(self) -> None:
        """Decide how many updates the next amount of data is, and write it down before it is followed."""
        self.family.steps.append(self._steps(len(self.family.steps)))
        self.family.write(self.folder)

    def _spent(self) -> float:
        return self.family.spent + sum(point.seconds for point in self.family.points)

    def _steps(self, amount: int) -> int:
        """Updates of an amount, so that it and those after it, each twice the one before, use the time that is left."""
        family, left = self.family, self.family.budget - self._spent()
        runs = (family.amounts - amount) * len(family.sizes)
        around = [point.seconds - point.learning for point in family.points if not point.error]
        left -= runs * (sum(around) / len(around) if around else AROUND)
        paces = [self._pace(size.name) for size in family.sizes]
        found = int(left / (sum(paces) * (2 ** (family.amounts - amount) - 1)))
        if amount == 0 and found < LEAST_UPDATES:
            whole = LEAST_UPDATES * sum(paces) * (2**family.amounts - 1) + runs * AROUND + family.spent
            raise RegardError(
                f"{family.budget:.0f} s are too short for {len(family.sizes)} sizes and {family.amounts} amounts of data",
                Advice("give ", Option("budget", f"{10 * math.ceil(whole / 10)}s"), ", or fewer"),
            )
        return found if amount == 0 else max(found, math.ceil(GROWTH * family.steps[-1]))

    def _pace(self, size: str) -> float:
        """Seconds of an update: of the longest run of this size so far, or as was measured."""
        runs = [point for point in self.family.points if point.size == size and not point.error]
        if not runs:
            return self.family.paces[size]
        return runs[-1].learning / self.family.steps[runs[-1].amount]

    def _one(self, size: Size, amount: int) -> None:
        """Train one size on one amount, or go on with it; a failure is a result as well."""
        family, place = self.family, f"size-{size.name}/amount-{amount + 1}"
        folder, began = self.folder / place, self.clock()
        before = progress_in(folder / "checkpoints").seconds if has_checkpoint(folder / "checkpoints") else 0.0
        tokens = family.steps[amount] * family.rows
        if isinstance(self.show, TrialShow):
            self.show.trial = f"size {size.name}"
        told = f"run {len(family.points) + 1} of {len(family.sizes) * family.amounts}: size {size.name}"
        left = duration(max(0.0, family.budget - self._spent()))
        self.show.note(f"{told}, {size.parameters:,} parameters, {tokens:,} tokens; {left} left")
        try:
            outcome = self._train(size, amount, folder)
        except KeyboardInterrupt:
            raise Interrupted from None
        except (RegardError, RuntimeError, MemoryError) as failure:
            if isinstance(failure.__cause__, OSError):
                raise  # a full disk fails every run
            took = self.clock() - began
            why = " ".join(str(failure).split()) or type(failure).__name__
            point = Point(size.name, amount, 0, math.nan, took, 0.0, place, why)
        else:
            if outcome.reason == "interrupted":
                raise Interrupted
            took, progress = before + self.clock() - began, outcome.progress
            point = Point(size.name, amount, progress.tokens, outcome.metrics["loss"], took, progress.seconds, place)
        family.points.append(replace(point, seconds=round(point.seconds, 3)))
        family.write(self.folder)
        for name in NOT_KEPT:
            shutil.rmtree(folder / name, ignore_errors=True)

    def _train(self, size: Size, amount: int, folder: Path) -> Outcome:
        if has_checkpoint(folder / "checkpoints"):
            return resume_run(folder, device=self.family.device, show=self.show).outcome
        shutil.rmtree(folder, ignore_errors=True)  # of one that was killed before its first update
        root = None if self.family.data_root is None else Path(self.family.data_root)
        return start_run(
            self._config(size, amount), data_root=root, folder=folder, device=self.family.device, show=self.show
        ).outcome

    def _config(self, size: Size, amount: int) -> RunConfig:
        steps, config = self.family.steps[amount], check_run(self.family.config, "the family")
        warmup = min(config.train.warmup, steps // 10)
        train = {"steps": steps, "warmup": warmup, "validate_every": steps}
        return with_values(config, {"model": size.settings, "train": train})


# --- Begin and go on


def make_place(folder: Path | None) -> Path:
    """The folder of a new family: the next free `runs/scale/<number>`, or that which was asked for, if nothing is in it."""
    if folder is None:
        return new_run("scale")
    shutil.rmtree(folder / CHOOSING, ignore_errors=True)  # of one that was killed before its first run
    if (folder / STATE).exists():
        raise UsageError(f"{folder} is a family of sizes", Advice("go on with: ", Verb("scale", f"--resume {folder}")))
    check_free(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def scale(request: Request, folder: Path, show: Show, *, clock: Clock = time.monotonic, asked_at: float) -> Family:
    """Plan and train a family in a folder that `make_place` gave."""
    with alone_in(folder):
        try:
            with show:
                family = begin(request, folder, show, clock, asked_at)
            trainer = Trainer(folder, family, show, clock)
            trainer.plan_next()
        except BaseException:
            leave_nothing(folder)
            raise
        for note in family.notes:
            show.note(note)
        return _go(trainer)


def go_on(folder: Path, show: Show, *, clock: Clock = time.monotonic) -> Family:
    """Go on with a family that was stopped, from the last checkpoint of the run that was going on."""
    family = Family.read(folder)
    if family.finished:
        return family
    with alone_in(folder):
        return _go(Trainer(folder, family, show, clock))


def _go(trainer: Trainer) -> Family:
    with contextlib.suppress(Interrupted):
        trainer.run()
    return trainer.family
