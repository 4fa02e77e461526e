"""What the training loop is handed, and how it says that a run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from regard.training.config import TrainConfig
from regard.training.feed import Source
from regard.training.finetune import (
    FineTuning,
)
from regard.training.shares import Batch
from regard.training.state import (
    Fingerprint,
    TrainingProgress,
)
from regard.training.validation import Validation
from regard.world import World, world


@dataclass(frozen=True)
class Job:
    """Everything the loop is handed."""

    folder: Path
    config: TrainConfig
    model: nn.Module
    width: int  # of the model, for the paper's schedule
    batches: Source
    validate: Callable[[nn.Module], Validation]
    save: Callable[[nn.Module, str, dict[str, object]], None]  # write the bundle `name` with these metrics
    fingerprint: Fingerprint = field(default_factory=dict)  # what must not change between a stop and a resume
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    held_out: Callable[[], Iterable[Batch]] | None = None  # the validation examples as batches, the same each time
    probe: Callable[[nn.Module, int], None] | None = None  # keep where the model looks, at this step
    unit: str = "tokens"  # what the loss is a mean over, as a person calls it: "tokens", "texts"
    clock: Callable[[], float] = field(default=lambda: time.monotonic())
    tuning: FineTuning | None = None  # of a run that goes on from another model
    asked: float | None = None  # what the clock said when the run was asked for; None: when the loop begins
    world: World = field(default_factory=world)  # the processes that train together


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str  # "steps", "time", "patience", "interrupted"
    progress: TrainingProgress
    chosen: str = ""  # which weights the best bundle holds
    metrics: dict[str, float] = field(default_factory=dict)
