"""A budget of time: as many steps as end within it, from the measured speed of real updates."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from regard.config import check
from regard.errors import Advice, Option, RegardError
from regard.tasks.config import RunConfig
from regard.tasks.recipe import prepare
from regard.training.events import Working
from regard.training.pace import Plan, measure, plan
from regard.training.show import Show
from regard.training.stopwatch import duration

MEASURING = ".measuring"  # a folder for the updates that only tell the speed

Say = Callable[[str], None]


def fit(
    name: str,
    config: RunConfig,
    data_root: Path | None,
    budget: float,
    place: Path,
    device: str,
    say: Say = lambda text: None,
    show: Show | None = None,
) -> RunConfig:
    """The configuration with as many steps as end within the budget, from the speed of real updates."""
    say(f"{name}: measuring its speed …")
    shutil.rmtree(place, ignore_errors=True)  # of a contest that was killed here
    try:
        place.mkdir(parents=True)
        with show or Show() as emit:
            prepared = prepare(config, place, data_root=data_root, resume=False, device=device, emit=emit)
            emit(Working("measuring the speed of updates"))
            pace = measure(prepared.measured(), budget)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    try:
        planned = plan(pace, budget, config.train)
    except RegardError as error:
        raise RegardError(Advice(f"{name}: ", Option("budget"), f" {error}")) from error
    say(
        f"{name}: {pace.update:.3g} s an update, {pace.validation:.2g} s a validation: "
        f"{planned.steps:,} steps in {duration(budget)}"
    )
    fitted = under_budget(config, planned, budget)
    if fitted.train.warmup < config.train.warmup:
        say(f"{name}: train.warmup {config.train.warmup} is shortened to {fitted.train.warmup}")
    return fitted


def under_budget(config: RunConfig, planned: Plan, budget: float) -> RunConfig:
    """The configuration as it is trained under the budget: all of it is used, and the schedule ends with it."""
    over = {
        "steps": planned.steps,
        "max_time": budget,
        "validate_every": planned.validate_every,
        "warmup": min(config.train.warmup, planned.steps // 2),
        "patience": 0,
    }
    train = check(type(config.train), {**config.train.model_dump(), **over}, "train")
    return config.model_copy(update={"train": train})
