"""How fast a job learns, measured on real updates, and how many of them fit into a given time.

A learning rate that falls to zero must do so when the time ends, not before and not after: the number of updates has to be
known before the first one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import mean

from regard.errors import RegardError
from regard.training.config import TrainConfig
from regard.training.events import silent
from regard.training.job import Job
from regard.training.loop import Trainer
from regard.training.stopwatch import duration
from regard.trials import fastest_threads

AIM = 0.95  # of the time that is planned for; the rest is for a machine that is slower later than now
MOST_VALIDATIONS, LEAST_VALIDATIONS = 12, 3  # where the configuration leaves their number open
VALIDATING = 0.15  # most of the time that these validations may take
WARM, LEAST, MOST = 3, 10, 300  # updates before the clock starts, and fewest and most that are timed
SHARE, MOST_SHARE = 0.02, 0.25  # of the budget, on top of it, for timed updates; and where the fewest take longer


@dataclass(frozen=True)
class Pace:
    """Seconds of one update of the weights, and of one validation with the saving that goes with it."""

    update: float
    validation: float


@dataclass(frozen=True)
class Plan:
    """How a time is spent."""

    steps: int
    validate_every: int


def measure(job: Job, budget: float, by_clock: bool = False) -> Pace:
    """Train for a share of the budget and validate once. The job's weights and folder change: give it a throw-away one.

    Where updates are slow, fewer are timed, at least one: that says that a budget is too short before it has passed. A run
    `by_clock` takes as many threads as are fastest, and so does this.
    """
    trainer = Trainer(job, silent)
    trainer.checkpoint()  # an update that fails goes back to it
    end = time.monotonic() + MOST_SHARE * budget
    for _ in range(WARM):
        trainer.learn()
        if time.monotonic() > end:
            break
    with fastest_threads(trainer.learn) if by_clock and time.monotonic() < end else nullcontext():
        enough, updates = time.monotonic() + SHARE * budget, [_seconds(trainer.learn)]
        while _goes_on(len(updates), enough, end):
            updates.append(_seconds(trainer.learn))
        validation = _seconds(partial(_validate, trainer))
        if time.monotonic() + validation < end:  # the first one sets up what the others find ready
            validation = min(validation, _seconds(partial(_validate, trainer)))
    return Pace(_typical(updates), validation)


def _validate(trainer: Trainer) -> None:
    trainer.validate()
    trainer.checkpoint()


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _typical(updates: list[float]) -> float:
    """The mean without the slowest tenth: those in which another program was served."""
    return mean(sorted(updates)[: max(1, math.ceil(0.9 * len(updates)))])


def _goes_on(updates: int, enough: float, end: float) -> bool:
    """Whether another update is timed: the fewest until the end, more while there is not enough of them."""
    now = time.monotonic()
    return now < end and (updates < LEAST or (updates < MOST and now < enough))


def plan(pace: Pace, seconds: float, config: TrainConfig) -> Plan:
    """The most updates that end in time, validations included; how often to look, if the configuration leaves it open."""
    room = AIM * seconds - WARM * pace.update  # the first updates are slower: they warm up
    if config.validate_every:
        steps = _most_steps(pace, room, config)
        every = config.validate_every
    else:
        looks = min(MOST_VALIDATIONS, max(LEAST_VALIDATIONS, int(VALIDATING * seconds / max(1e-9, pace.validation))))
        steps = int((room - (looks + _extra(config)) * pace.validation) / pace.update)
        every = max(1, math.ceil(steps / looks))
    if steps < 1:
        needed = 20 * (pace.update + pace.validation)
        raise RegardError(
            f"{duration(seconds)} is too short: an update of the weights takes {pace.update:.2g} s and a validation "
            f"{pace.validation:.2g} s",
            f"give {math.ceil(needed)}s or more",
        )
    return Plan(steps, every)


def _most_steps(pace: Pace, room: float, config: TrainConfig) -> int:
    """The largest number whose updates and validations fit: their time only grows with it, so halve the interval."""
    low, high = 0, max(0, int(room / pace.update)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        looks = math.ceil(middle / config.validate_every) + _extra(config)
        low, high = (middle, high) if middle * pace.update + looks * pace.validation <= room else (low, middle)
    return low


def _extra(config: TrainConfig) -> int:
    """Validations after the last step: one of the averaged weights."""
    return 1 if config.average > 1 else 0
