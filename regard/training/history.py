"""Two JSONL files of a run: `log.jsonl`, what was learned (equal for equal seeds), and `clock.jsonl`, how fast."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import Tables
from regard.errors import RegardError
from regard.files import is_taken, read_json
from regard.runs import CONFIG, Run, read_run

LOG, CLOCK = "log.jsonl", "clock.jsonl"


class RunLog:
    """Rows are appended; on resume both files are cut back to what the checkpoint had seen.

    `writes`: whether this process is the one of several that does.
    """

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self._paths, self._writes = {name: folder / name for name in (LOG, CLOCK)}, writes

    def write(self, row: Mapping[str, object], name: str = LOG) -> None:
        if not self._writes:
            return
        try:
            with open(self._paths[name], "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        except OSError as error:
            raise RegardError(f"cannot write {self._paths[name]}: {error.strerror or error}") from error

    def sizes(self) -> dict[str, int]:
        """How long the files are, once they are safely on disk."""
        if not self._writes:
            return {}
        try:
            for path in self._paths.values():
                with open(path, "ab") as file:
                    os.fsync(file.fileno())
        except OSError as error:
            raise RegardError(f"cannot write {path}: {error.strerror or error}") from error
        return {name: path.stat().st_size for name, path in self._paths.items()}

    def cut_back(self, sizes: dict[str, int]) -> None:
        for name, path in self._paths.items():
            if path.exists() and self._writes:
                os.truncate(path, min(sizes.get(name, 0), path.stat().st_size))  # truncating never lengthens

    def rows(self) -> list[Tables]:
        return rows_of(self._paths[LOG])


@dataclass(frozen=True)
class ValidationPoint:
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
    looks: tuple[ValidationPoint, ...]

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(1e-9, self.seconds)


def read_history(folder: Path) -> History | None:
    """The history of a run's folder; None for a bundle alone, which does not tell."""
    if not (folder / CONFIG).exists():
        return None
    progress = read_progress(folder)
    config = read_run(folder)["config"]
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


def _looks(folder: Path) -> list[ValidationPoint]:
    """The validations of the log; the clock has a row for each of their steps, but for the last."""
    clock = [(0, 0.0), *((row["step"], row["seconds"]) for row in rows_of(folder / CLOCK))]
    found = []
    for row in rows_of(folder / LOG):
        if row.get("kind") == "valid":
            metrics = {name: value for name, value in row.items() if isinstance(value, float)}
            found.append(ValidationPoint(row["step"], _seconds(row["step"], clock), metrics))
    return found


def _seconds(step: int, clock: Sequence[tuple[int, float]]) -> float:
    """When a step was done: between two rows of the clock in proportion, after the last one at the mean speed so far."""
    steps, seconds = zip(*clock, strict=True)
    if step > steps[-1] > 0:
        return float(seconds[-1] / steps[-1] * step)
    return float(np.interp(step, steps, seconds))


def rows_of(path: Path) -> list[Tables]:
    """The rows of a log or a clock; none where there is no such file."""
    lines = path.read_bytes().splitlines() if path.exists() else []  # bytes: only a line feed ends a row
    return [json.loads(line) for line in lines]


RESTORE = "the checkpoint is not whole, restore it from where you copied it"


@dataclass(frozen=True)
class RunSummary:
    """One run, as a list of runs shows it."""

    folder: str
    task: str
    data: tuple[str, ...] = ()  # names of the training files
    languages: tuple[str, str] | None = None
    parameters: int | None = None
    steps: int = 0
    seconds: float = 0.0  # of training
    state: str = ""  # "running", "can be resumed", "finished" or "damaged"
    reason: str = ""  # why it finished ("steps", "time", "patience"), or what is damaged
    metric: str = ""  # the one by which the best weights are chosen
    best: float | None = None
    age: float = 0.0  # seconds since it last did something


def summarise(run: Run) -> RunSummary:
    """Summarise a run for a list; a damaged one is said to be so."""
    folder, task, age = str(run.folder), run.folder.parent.name, time.time() - run.modified()
    try:
        config = read_run(run.folder)["config"]
        progress, metrics = read_progress(run.folder), _metrics(run.best)
        metric = str(config["train"]["select"])
        languages = config["data"].get("languages")
        return RunSummary(
            folder,
            str(config["task"]),
            tuple(config["data"]["train"]),
            (str(languages[0]), str(languages[1])) if languages else None,
            _parameters(run.best / "model.safetensors"),
            progress.get("step", 0),
            progress.get("seconds", 0.0),
            _state(run.folder, progress),
            progress.get("finished", ""),
            metric,
            metrics.get(metric),
            age,
        )
    except RegardError as error:
        return RunSummary(folder, task, state="damaged", reason=str(error), age=age)
    except (KeyError, TypeError, AttributeError) as error:
        return RunSummary(folder, task, state="damaged", reason=f"run.json or state.json lacks {error}", age=age)


def read_progress(folder: Path) -> Tables:
    """Where the last checkpoint of a run was; empty if there is none yet."""
    checkpoints = folder / "checkpoints"
    if not (checkpoints / "latest.json").exists():
        return {}
    name = value_of(checkpoints / "latest.json", "checkpoint")
    progress = value_of(checkpoints / str(name) / "state.json", "progress")
    if not isinstance(progress, dict):
        raise RegardError(f"{checkpoints / str(name) / 'state.json'} does not say how far the run came", RESTORE)
    return progress


def value_of(file: Path, key: str) -> Any:
    """Read a key of a checkpoint's file; an error a person can act on if it is not there."""
    values = read_json(file)
    if not isinstance(values, dict) or key not in values:
        raise RegardError(f"{file} has no {key}", RESTORE)
    return values[key]


def _state(folder: Path, progress: Tables) -> str:
    if is_taken(folder):  # whoever trains in it holds its lock
        return "running"
    return "finished" if progress.get("finished") else "can be resumed"


def _metrics(bundle: Path) -> Tables:
    path = bundle / "metrics.json"
    metrics: Tables = read_json(path) if path.exists() else {}
    return metrics


def _parameters(path: Path) -> int | None:
    """Counted from the header of the weights; they themselves are not read."""
    if not path.exists():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise RegardError(f"{path} is not whole ({error})") from error
