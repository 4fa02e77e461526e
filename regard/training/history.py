"""What a run learned, and when: read from its files, without its model (or torch)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.runs import CONFIG, read_run
from regard.training.log import CLOCK, LOG
from regard.training.summary import read_progress


@dataclass(frozen=True)
class Look:
    """One validation."""

    step: int
    seconds: float  # of training before it
    metrics: dict[str, float]


@dataclass(frozen=True)
class History:
    """How a run went."""

    steps: int
    planned: int  # steps of its schedule
    seconds: float  # of training, validations included
    tokens: int  # target tokens learned from
    reason: str  # why it ended: "steps", "time", "patience"; empty if it has not
    weights: str  # which of its weights are kept as the best
    validation: dict[str, float]  # their metrics
    looks: tuple[Look, ...]

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(1e-9, self.seconds)


def read_history(folder: Path) -> History | None:
    """The history of a run's folder; None for a bundle alone, which does not tell."""
    if not (folder / CONFIG).exists():
        return None
    progress = read_progress(folder)
    config: Any = read_run(folder)["config"]
    return History(
        int(progress.get("step", 0)),
        int(config["train"]["steps"]),
        float(progress.get("seconds", 0.0)),
        int(progress.get("tokens", 0)),
        str(progress.get("finished", "")),
        str(progress.get("chosen", "")),
        dict(progress.get("best", {})),
        tuple(_looks(folder)),
    )


def _looks(folder: Path) -> list[Look]:
    """The validations of the log; the clock has a row for each of their steps, but for the last."""
    clock = [(0, 0.0), *((row["step"], row["seconds"]) for row in _rows(folder / CLOCK))]
    found = []
    for row in _rows(folder / LOG):
        if row.get("kind") == "valid":
            metrics = {name: value for name, value in row.items() if isinstance(value, float)}
            found.append(Look(row["step"], _seconds(row["step"], clock), metrics))
    return found


def _seconds(step: int, clock: Sequence[tuple[int, float]]) -> float:
    """When a step was done: between two rows of the clock in proportion, after the last one at the mean speed so far."""
    steps, seconds = zip(*clock, strict=True)
    if step > steps[-1] > 0:
        return float(seconds[-1] / steps[-1] * step)
    return float(np.interp(step, steps, seconds))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
