"""The plan of a search for settings: which are tried, for how long, and who goes on. No torch here, and no clock.

Successive halving (Jamieson & Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization"; Li
et al. 2018, "Hyperband"): all trials get a little time, the better third of them three times as much, and so on; whoever is
left is trained for half of the whole time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product

from regard.config import Tables
from regard.models.config import ModelConfig
from regard.models.presets import PRESETS
from regard.tasks.config import RunConfig
from regard.tasks.rules import Sizes
from regard.training.validation import FLOORS, LOWER_IS_BETTER

FACTOR = 3  # of a rung, one trial in so many goes on, for so many times the time
FINAL = 0.5  # share of the time that the last one has alone
RATES = (1 / 3, 1 / 2, 1.0, 2.0, 3.0)  # learning rates, as shares of the one that the rules choose
DROPOUTS = (0.0, 0.1, 0.2, 0.3, 0.5)
NEAR = 2  # places on the list of dropouts that a trial may be away from the rules
CROPS = (0.0, 1.0, 2.0)  # pixels by which pictures are moved, as shares of those that the rules choose
LADDER = ("demo", "tiny", "small")  # presets, for kinds of models whose sizes the rules do not choose
SIZE = "size"


# --- Rungs


@dataclass(frozen=True)
class Rung:
    """So many trials, each for so many seconds."""

    trials: int
    seconds: float


def rungs(budget: float, trials: int) -> list[Rung]:
    """The rungs of a search: all but the last cost alike, the last has half of the time."""
    counts = [trials]
    while counts[-1] > 1:
        counts.append(counts[-1] // FACTOR or 1)
    if len(counts) == 1:
        return [Rung(1, budget)]
    *before, _ = counts
    unit = (1 - FINAL) * budget / sum(count * FACTOR**rung for rung, count in enumerate(before))
    return [*(Rung(count, unit * FACTOR**rung) for rung, count in enumerate(before)), Rung(1, FINAL * budget)]


def fitting_trials(budget: float, wanted: int, least: float) -> int:
    """As many trials as wanted, or as many as have `least` seconds each at first; 0 if not even two have."""
    return next((count for count in range(wanted, 1, -1) if rungs(budget, count)[0].seconds >= least), 0)


def rung_seconds(plan: Sequence[Rung], rung: int, trials: int, left: float) -> float:
    """Seconds of each of the `trials` of a rung, when `left` seconds are left for it and all that come after it."""
    own = plan[rung].seconds
    later = sum(each.trials * each.seconds for each in plan[rung + 1 :])
    return left * own / (trials * own + later)


# --- Settings


@dataclass(frozen=True)
class Dimension:
    """One thing that trials vary: a setting, or the size of the model, which is several."""

    name: str  # train.lr, model.dropout, size
    options: tuple[Tables, ...]  # the settings of each, as {"train.lr": 0.001}
    own: int  # which of them the rules chose

    def label(self, settings: Tables) -> str:
        """An option as a table shows it: 0.002, or width 96, layers 2."""
        own = {name: settings[name] for name in self.options[0]}
        if len(own) == 1:
            return shown(next(iter(own.values())))
        varied = [name for name in own if len({str(each[name]) for each in self.options}) > 1]
        return ", ".join(f"{name.rpartition('.')[2]} {shown(own[name])}" for name in varied)


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def dimensions(config: RunConfig, sizes: Mapping[str, Sizes], asked: frozenset[str]) -> list[Dimension]:
    """Dimensions that a search varies around the rules' configuration, but for what the person set."""
    values = config.dump()
    found = [_rates(config), _dropouts(values["model"]), _sizes(config, sizes, asked), _crops(values["data"])]
    return [each for each in found if each is not None and len(each.options) > 1 and not asked & {*each.options[0]}]


def _rates(config: RunConfig) -> Dimension:
    rates = [float(f"{share * config.train.lr:.3g}") for share in RATES]
    rates[RATES.index(1.0)] = config.train.lr
    return Dimension("train.lr", tuple({"train.lr": rate} for rate in rates), RATES.index(1.0))


def _dropouts(model: Tables) -> Dimension | None:
    own = model.get("dropout")
    if own is None:
        return None
    known = sorted({*DROPOUTS, own})
    place = known.index(own)
    near = known[max(0, place - NEAR) : place + NEAR + 1]
    return Dimension("model.dropout", tuple({"model.dropout": each} for each in near), near.index(own))


def _sizes(config: RunConfig, sizes: Mapping[str, Sizes], asked: frozenset[str]) -> Dimension | None:
    """The size that the rules chose, one smaller and one larger; None where the person or a model to start from says it."""
    kind, model = config.model.kind, config.dump()["model"]
    rows = [_plain_row(size.settings) for size in sizes[kind].rows] if kind in sizes else preset_sizes(config.model)
    place = next((at for at, row in enumerate(rows) if all(model.get(name) == row[name] for name in row)), None)
    fixed = (
        config.start is not None or "preset" in asked or any(f"model.{name}" in asked for row in rows for name in row)
    )
    if place is None or fixed:
        return None
    near = rows[max(0, place - 1) : place + 2]
    options = tuple({f"model.{name}": value for name, value in row.items()} for row in near)
    return Dimension(SIZE, options, min(place, 1))


def preset_sizes(model: ModelConfig) -> list[Tables]:
    """The sizes of a kind of model by its presets, smallest first, each with all the settings in which they differ."""
    known = [PRESETS[name][model.kind] for name in LADDER if model.kind in PRESETS[name]]
    names = dict.fromkeys(name for each in known for name in each if name != "dropout")
    usual = {name: type(model).model_fields[name].default for name in names}
    return [_plain_row({name: each.get(name, usual[name]) for name in names}) for each in known] if names else []


def _plain_row(row: Tables) -> Tables:
    """A size as a dumped configuration has it: with lists in the place of tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


def _crops(data: Tables) -> Dimension | None:
    own = (data.get("augment") or {}).get("crop")
    if own is None:
        return None
    crops = sorted({round(share * own) for share in CROPS} if own else {0, 1, 2})
    return Dimension("data.augment.crop", tuple({"data.augment.crop": each} for each in crops), crops.index(own))


def draw(space: Sequence[Dimension], trials: int, seed: int) -> list[Tables]:
    """The settings of each trial: first those of the rules, then others at random, none of them twice.

    A pure function of the seed; of fewer trials, the same ones come first.
    """
    own = tuple(each.own for each in space)
    others = [each for each in product(*(range(len(dimension.options)) for dimension in space)) if each != own]
    random.Random(f"trials {seed}").shuffle(others)
    return [_settings(space, places) for places in [own, *others][:trials]]


def _settings(space: Sequence[Dimension], places: Sequence[int]) -> Tables:
    chosen = (dimension.options[place] for dimension, place in zip(space, places, strict=True))
    return {name: value for option in chosen for name, value in option.items()}


def nested(name: str, value: object) -> Tables:
    """{"train": {"lr": 0.001}} of train.lr and 0.001."""
    *tables, key = name.split(".")
    found: Tables = {key: value}
    for table in reversed(tables):
        found = {table: found}
    return found


# --- Who goes on


@dataclass(frozen=True)
class TrialRun:
    """A run of a trial that ended, or failed."""

    rung: int
    folder: str  # in that of the search
    budget: float  # seconds that it had
    seconds: float  # that it took, by the clock
    prepared: float = 0.0  # of these, before its first update
    steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict)  # of its best weights
    error: str = ""  # why it failed

    def data(self) -> dict[str, object]:
        return asdict(self)


@dataclass
class Trial:
    """Settings that are tried, and how they did in each rung."""

    number: int
    settings: Tables
    runs: list[TrialRun] = field(default_factory=list)

    def run_in(self, rung: int) -> TrialRun | None:
        return next((run for run in self.runs if run.rung == rung), None)

    @property
    def ended(self) -> TrialRun | None:
        """Its last run that did not fail."""
        return next((run for run in reversed(self.runs) if not run.error), None)

    @property
    def error(self) -> str:
        """Why its last run failed; empty if it did not."""
        return self.runs[-1].error if self.runs else ""


def merit(metrics: Mapping[str, float], select: str) -> tuple[float, float]:
    """A score and a loss as numbers of which the larger is better; what is not a number is worse than any."""
    value, loss = metrics.get(select, math.nan), metrics.get("loss", math.nan)
    score = max(value, FLOORS.get(select, -math.inf)) * (-1 if select in LOWER_IS_BETTER else 1)
    return (score if math.isfinite(value) else -math.inf, -loss if math.isfinite(loss) else -math.inf)


def better_first(trials: Sequence[Trial], rung: int, select: str) -> list[Trial]:
    """The trials whose run in a rung did not fail, the best first, equal ones in their order."""
    found = [(trial, run) for trial in trials if (run := trial.run_in(rung)) is not None and not run.error]
    return [trial for trial, _ in sorted(found, key=lambda pair: merit(pair[1].metrics, select), reverse=True)]


def ranked(trials: Sequence[Trial], select: str) -> list[Trial]:
    """All trials, those that came further first, then by their score there; those that only failed come last."""

    def key(trial: Trial) -> tuple[float, ...]:
        run = trial.ended
        return (-1.0, len(trial.runs)) if run is None else (run.rung, *merit(run.metrics, select))

    return sorted(trials, key=key, reverse=True)


def best_run(trials: Sequence[Trial], select: str) -> tuple[Trial, TrialRun] | None:
    """The best of all runs by its validation, of equal ones the longest."""
    found = [(trial, run) for trial in trials for run in trial.runs if not run.error and run.metrics]
    return max(found, key=lambda pair: (*merit(pair[1].metrics, select), pair[1].rung), default=None)
