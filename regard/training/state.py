"""All a run needs to go on as if it had never stopped, in one folder that is whole or absent.

Noise and data order are pure functions of (seed, epoch, index, step), so the place in the data is all there is to keep
of either. A checkpoint is written as `step-N.tmp`, synced, renamed, and only then pointed to by `latest.json`.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.files import new_folder, write_json
from regard.tensors import read_tensors, weights_of, write_tensors
from regard.training.averages import MovingAverage, set_weights
from regard.training.optimiser import load_optimiser, optimiser_tensors
from regard.training.summary import value_of

FORMAT = 1
STATE, LATEST = "state.json", "latest.json"


@dataclass
class Progress:
    """Where the run is. Everything here is saved; nothing else is needed besides tensors."""

    step: int = 0  # updates done
    epoch: int = 0
    index: int = 0  # next batch of the epoch
    tokens: int = 0  # learned from: target tokens, texts, whatever the loss is a mean over
    seconds: float = 0.0  # time spent training, over all resumes
    rate_factor: float = 1.0  # halved when the run went back after a divergence
    went_back: int = 0
    first_loss: float | None = None
    best: dict[str, float] = field(default_factory=dict)  # metrics of the best weights so far
    best_step: int = 0
    chosen: str = ""  # which weights those are: "step 800", "average of steps 400..800"
    waited: int = 0  # validations since the best
    snapshots: list[int] = field(default_factory=list)  # steps whose weights are kept for averaging
    interval: dict[str, float] = field(default_factory=dict)  # sums and counts since the last row of the log
    validated: int = 0  # step of the last validation
    log_sizes: dict[str, int] = field(default_factory=dict)
    finished: str = ""  # why the run ended


@dataclass
class Learner:
    """What changes while learning."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    ema: MovingAverage | None
    progress: Progress


def save_checkpoint(folder: Path, learner: Learner, fingerprint: dict[str, Any]) -> Path:
    """Write the checkpoint of this step and point to it; older ones go only after that."""
    name = f"step-{learner.progress.step}"
    with new_folder(folder / name) as inside:
        write_tensors(inside / "model.safetensors", weights_of(learner.model))
        write_tensors(inside / "optimiser.safetensors", optimiser_tensors(learner.optimiser, learner.model))
        if learner.ema is not None:
            write_tensors(inside / "ema.safetensors", learner.ema.tensors)
        state = {"format": FORMAT, "progress": asdict(learner.progress), "fingerprint": fingerprint}
        write_json(inside / STATE, state)
    write_json(folder / LATEST, {"checkpoint": name})
    _drop_others(folder, name)
    return folder / name


def has_checkpoint(folder: Path) -> bool:
    return (folder / LATEST).exists()


def load_checkpoint(folder: Path, learner: Learner, fingerprint: dict[str, Any]) -> None:
    """Put the latest checkpoint back into `learner`, bit for bit."""
    if not has_checkpoint(folder):
        raise RegardError(f"{folder} holds no checkpoint; the run was stopped before its first one, start it again")
    name = value_of(folder / LATEST, "checkpoint")
    inside = folder / str(name)
    state = {key: value_of(inside / STATE, key) for key in ("format", "progress", "fingerprint")}
    if state["format"] > FORMAT:
        raise RegardError(f"{inside} has format {state['format']}, this Regard reads up to {FORMAT}; upgrade Regard")
    before = state["fingerprint"]  # an older Regard wrote down less of the data
    changed = [name for name, value in fingerprint.items() if name in before and before[name] != value]
    if changed:
        raise RegardError(f"cannot resume: {', '.join(changed)} changed since the run started; start a new run instead")
    set_weights(learner.model, read_tensors(inside / "model.safetensors"))
    load_optimiser(learner.optimiser, learner.model, read_tensors(inside / "optimiser.safetensors"))
    if learner.ema is not None:
        ema: dict[str, Tensor] = read_tensors(inside / "ema.safetensors")
        learner.ema.tensors = {name: ema[name].to(old.device) for name, old in learner.ema.tensors.items()}
    learner.progress = Progress(**state["progress"])
    _drop_others(folder, inside.name)


def _drop_others(folder: Path, name: str) -> None:
    for other in folder.glob("step-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)
