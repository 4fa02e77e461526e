"""A rehearsal of a run: the data is read, settings are chosen and the speed is measured, and nothing stays on disk."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.models.operations import operations_of
from regard.tasks.choose import Chooser
from regard.tasks.config import RunConfig
from regard.tasks.expected import Expectation, expected
from regard.tasks.recipe import PreparedRun, prepare, some_batches
from regard.tasks.rules import Rule
from regard.tasks.run import find_data_root
from regard.training.energy import Bill, bill
from regard.training.events import Choice, Working
from regard.training.job import Job
from regard.training.pace import Pace, measure
from regard.training.show import Show
from regard.training.timetable import COSTLY, ENDING, LOOKS

MEASURED = 20.0  # seconds of the run's time of which a share is measured, where nobody says how long it shall be
LONGEST = 240.0  # of a longer run no more is measured: who asks beforehand does not wait for its second digit
COUNTED = 3  # batches whose operations are counted
FEW = 100  # updates, below which nothing is learned that a table could tell


@dataclass
class AttentiveChooser(Chooser):
    """A chooser that keeps the facts it chose by: examples, characters."""

    facts: dict[str, float] = field(default_factory=dict)

    def by_rules(self, config: RunConfig, rules: Sequence[Rule], facts: Mapping[str, float]) -> RunConfig:
        self.facts = dict(facts)
        return super().by_rules(config, rules, facts)


@dataclass(frozen=True)
class Rehearsal:
    """A run as it would be."""

    task: str
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]  # what the data is like
    parameters: int
    seconds: float  # of the whole run
    update: float  # seconds of one
    validation: float
    steps: int
    passes: float  # over the training data
    operations: float  # floating-point operations of all updates
    bill: Bill  # energy, money and CO2, by the rated power
    expectation: Expectation | None

    def data(self) -> dict[str, Any]:
        found = None if self.expectation is None else {**asdict(self.expectation), "text": str(self.expectation)}
        choices = [asdict(choice) for choice in self.choices]
        return {**asdict(self), "choices": choices, "bill": self.bill.data(), "expectation": found}


def rehearse(
    config: RunConfig,
    data_root: Path | None,
    device: str,
    span: float | None,
    asked: frozenset[str],
    show: Show,
    began: float,
) -> Rehearsal:
    """Prepare as a run would that was asked for when the clock said `began`, and measure; `span` is its time by the clock."""
    timed = span is not None and "train.schedule" not in asked
    chooser = AttentiveChooser(asked, span, began) if timed and span is not None else None
    with tempfile.TemporaryDirectory(prefix="regard-") as place, show:
        root = find_data_root(config, data_root)
        prepared = prepare(config, Path(place), data_root=root, resume=False, device=device, emit=show, chooser=chooser)
        ready = time.monotonic() - began
        show(Working("measuring the speed of updates"))
        pace = measure(prepared.measured(), min(span or MEASURED, LONGEST), by_clock=timed)
    return _rehearsal(config.task, prepared, pace, span, ready, chooser)


def _rehearsal(
    task: str, prepared: PreparedRun, pace: Pace, span: float | None, ready: float, chooser: AttentiveChooser | None
) -> Rehearsal:
    job, most = prepared.job, most_updates(prepared.job)
    limit = span or job.config.max_time
    steps = most if limit is None else min(most, updates_in(limit - (ready if span else 0.0), pace))
    seconds = ready + steps * pace.update + validations(steps, pace, job) * pace.validation
    lasts = seconds if span is None else min(span, seconds)
    facts = {} if chooser is None else chooser.facts
    amount = facts.get("examples") or facts.get("characters")
    return Rehearsal(
        task,
        () if chooser is None else tuple(chooser.choices),
        tuple(map(str, prepared.notes)),
        sum(parameter.numel() for parameter in job.model.parameters()),
        lasts,
        pace.update,
        pace.validation,
        steps,
        steps * job.config.accumulate / max(1, job.batches.count(0)),
        steps * operations_of_update(job),
        bill(lasts, torch.get_num_threads()),
        expected(task, amount, core_minutes(seconds)) if amount and steps >= FEW else None,
    )


def operations_of_update(job: Job) -> float:
    """Floating-point operations of one update, the mean of a few."""
    batches = [batch.to(job.device) for batch in some_batches(job.batches, COUNTED)]
    rows = operations_of(job.model, batches)
    return sum(row.training for row in rows) / len(batches) * job.config.accumulate


def core_minutes(seconds: float) -> float:
    """As many minutes of one core as so many seconds of all of torch's threads are worth: 1.6 for two, as was measured."""
    return float(seconds / 60 * torch.get_num_threads() ** 0.7)


def most_updates(job: Job) -> int:
    """The most updates that a job may do, by steps or by passes over the data."""
    config = job.config
    epoch = max(1, job.batches.count(0) // config.accumulate)
    return config.steps if config.epochs is None else min(config.steps, max(1, int(config.epochs * epoch)))


def updates_in(seconds: float, pace: Pace) -> int:
    """How many updates fit into so many seconds, as a run by the clock validates."""
    often = max(seconds / LOOKS, COSTLY * pace.validation)
    left = seconds - ENDING - (seconds / often) * pace.validation
    return max(0, int(left / pace.update))


def validations(steps: int, pace: Pace, job: Job) -> float:
    """How often a run of so many updates validates."""
    if job.config.validate_every:
        return steps / job.config.validate_every
    return min(float(LOOKS), steps * pace.update / max(1e-9, COSTLY * pace.validation))
