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
    name = read_json(checkpoints / "latest.json")["checkpoint"]
    progress: dict[str, Any] = read_json(checkpoints / name / "state.json")["progress"]
    return progress


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
