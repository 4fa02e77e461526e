"""What the files of a run tell about it, without loading its model (or torch)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import is_taken, read_json
from regard.runs import Run, read_run

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
    """What is known of a run; a damaged one is said to be so."""
    folder, task, age = str(run.folder), run.folder.parent.name, time.time() - run.modified()
    try:
        config: Any = read_run(run.folder)["config"]
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


def read_progress(folder: Path) -> dict[str, Any]:
    """Where the last checkpoint of a run was; empty if there is none yet."""
    checkpoints = folder / "checkpoints"
    if not (checkpoints / "latest.json").exists():
        return {}
    name = value_of(checkpoints / "latest.json", "checkpoint")
    progress = value_of(checkpoints / str(name) / "state.json", "progress")
    if not isinstance(progress, dict):
        raise RegardError(f"{checkpoints / str(name) / 'state.json'} does not say how far the run came; {RESTORE}")
    return progress


def value_of(file: Path, key: str) -> Any:
    """Read a key of a checkpoint's file; an error a person can act on if it is not there."""
    values = read_json(file)
    if not isinstance(values, dict) or key not in values:
        raise RegardError(f"{file} has no {key}; {RESTORE}")
    return values[key]


def _state(folder: Path, progress: dict[str, Any]) -> str:
    if is_taken(folder):  # whoever trains in it holds its lock
        return "running"
    return "finished" if progress.get("finished") else "can be resumed"


def _metrics(bundle: Path) -> dict[str, Any]:
    path = bundle / "metrics.json"
    metrics: dict[str, Any] = read_json(path) if path.exists() else {}
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
