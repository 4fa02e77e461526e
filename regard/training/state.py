"""The state of a run: weights, their averages and progress, kept in checkpoints from which it resumes bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from regard.config import StrictConfig
from regard.errors import RegardError
from regard.files import JSON, new_folder, write_json
from regard.tensors import read_tensors, weights_of, write_tensors
from regard.training.cut import like, ours
from regard.training.history import value_of
from regard.training.optimiser import load_optimiser, optimiser_tensors
from regard.training.sharded import Pieces, write_part
from regard.world import ALONE, World


class MovingAverage:
    """ema ← decay · ema + (1 - decay) · weights after every update; younger than 1/(1 - decay) updates it warms up."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, step / (step + 9))  # early on the start is forgotten faster
        for name, tensor in weights_of(model).items():
            if tensor.is_floating_point():
                self.tensors[name].lerp_(tensor.to(self.tensors[name].dtype), 1 - decay)
            else:  # a count, such as which random features are in use, has no mean
                self.tensors[name].copy_(tensor)


@contextmanager
def weights_in_place(model: nn.Module, tensors: dict[str, Tensor] | None) -> Iterator[None]:
    """Inside this block the model has these weights (None: its own); afterwards its own again, bit for bit."""
    if tensors is None:
        yield
        return
    own = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}
    set_weights(model, tensors)
    try:
        yield
    finally:
        set_weights(model, own)


@torch.no_grad()
def set_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, tensor in weights_of(model).items():
        tensor.copy_(tensors[name])


@torch.no_grad()
def _load_weights(model: nn.Module, pieces: Pieces) -> None:
    for name, tensor in weights_of(model).items():
        ours(tensor).copy_(pieces.for_(name, tensor))


def mean_of(files: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors in several files, summed in float64."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for file in files:
        for name, tensor in read_tensors(file).items():
            kinds[name] = tensor.dtype
            adds = name in total and tensor.is_floating_point()  # of counts the last one holds
            total[name] = total[name] + tensor.double() if adds else tensor.double()
    counts = {name: len(files) if kind.is_floating_point else 1 for name, kind in kinds.items()}
    return {name: (tensor / counts[name]).to(kinds[name]) for name, tensor in total.items()}


FORMAT = 1
STATE, LATEST = "state.json", "latest.json"


@dataclass
class TrainingProgress:
    """Where the run is. Everything here is saved; nothing else is needed besides tensors."""

    step: int = 0  # updates done
    epoch: int = 0
    index: int = 0  # next batch of the epoch
    tokens: int = 0  # learned from: target tokens, texts, whatever the loss is a mean over
    seconds: float = 0.0  # time spent training, over all resumes
    prepared: float = 0.0  # seconds from when the run was asked for to its first update
    rate_factor: float = 1.0  # halved when the run went back after a divergence
    went_back: int = 0
    skipped: int = 0  # updates left out, as a gradient in fp16 overflowed
    scaling: dict[str, float] = field(default_factory=dict)  # of the loss in fp16
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


@runtime_checkable
class MadeWhileLearning(Protocol):
    """A source of batches that depend on the weights of the moment they were made: these batches belong to a checkpoint."""

    def tensors(self) -> dict[str, Tensor]:
        """All that it needs to go on from here."""

    def restore(self, tensors: dict[str, Tensor], /) -> None:
        """Put back what `tensors` gave."""


@dataclass
class Learner:
    """The parts of a run that change while it learns."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    ema: MovingAverage | None
    progress: TrainingProgress
    batches: MadeWhileLearning | None = None


# What must not change between a stop and a resume, by the words that a person calls it: digests, counts, configurations.
Fingerprint: TypeAlias = dict[str, "JSON | StrictConfig"]


def save_checkpoint(folder: Path, learner: Learner, fingerprint: Fingerprint, world: World = ALONE) -> Path:
    """Write the checkpoint of this step and point to it; older ones go only after that.

    Of tensors that are cut each process of `world` writes its part; the first commits them when all are there.
    """
    name = f"step-{learner.progress.step}"
    if not world.is_first:
        world.wait()  # for the folder
        _write_parts(folder / f"{name}.tmp", learner, world)
        world.wait()
        return folder / name
    with new_folder(folder / name) as inside:
        world.wait()
        _write_parts(inside, learner, world)
        world.wait()
        if learner.batches is not None:
            write_tensors(inside / "batches.safetensors", learner.batches.tensors())
        state = {"format": FORMAT, "progress": asdict(learner.progress), "fingerprint": _as_json(fingerprint)}
        write_json(inside / STATE, state)
    write_json(folder / LATEST, {"checkpoint": name})
    _drop_others(folder, name)
    return folder / name


def _write_parts(inside: Path, learner: Learner, world: World) -> None:
    parts = {"model": weights_of(learner.model), "optimiser": optimiser_tensors(learner.optimiser, learner.model)}
    if learner.ema is not None:
        parts["ema"] = learner.ema.tensors
    for name, tensors in parts.items():
        if world.is_alone:
            write_tensors(inside / f"{name}.safetensors", tensors)
        else:
            write_part(inside, name, tensors, world)


def has_checkpoint(folder: Path) -> bool:
    return (folder / LATEST).exists()


def progress_in(folder: Path) -> TrainingProgress:
    """Where a run was at its latest checkpoint in this folder."""
    name = value_of(folder / LATEST, "checkpoint")
    return TrainingProgress(**value_of(folder / str(name) / STATE, "progress"))


def load_checkpoint(folder: Path, learner: Learner, fingerprint: Fingerprint, *, tidy: bool = True) -> None:
    """Put the latest checkpoint back into `learner`, bit for bit. `tidy`: older ones, which a crash left, go."""
    if not has_checkpoint(folder):
        raise RegardError(f"{folder} holds no checkpoint", "the run was stopped before its first one, start it again")
    name = value_of(folder / LATEST, "checkpoint")
    inside = folder / str(name)
    state = {key: value_of(inside / STATE, key) for key in ("format", "progress", "fingerprint")}
    if state["format"] > FORMAT:
        raise RegardError(f"{inside} has format {state['format']}, this Regard reads up to {FORMAT}", "upgrade Regard")
    before = state["fingerprint"]  # an older Regard wrote down less of the data
    changed = [name for name, value in fingerprint.items() if name in before and not _is_same(before[name], value)]
    if changed:
        raise RegardError(
            f"cannot resume: {', '.join(changed)} changed since the run started", "start a new run instead"
        )
    with Pieces(inside, "model") as pieces:
        _load_weights(learner.model, pieces)
    with Pieces(inside, "optimiser") as pieces:
        load_optimiser(learner.optimiser, learner.model, pieces)
    if learner.ema is not None:
        with Pieces(inside, "ema") as pieces:
            before = learner.ema.tensors
            read = {name: pieces.for_(name, old).to(old.device) for name, old in before.items()}
            learner.ema.tensors = {name: like(before[name], part) for name, part in read.items()}
    if learner.batches is not None:
        learner.batches.restore(read_tensors(inside / "batches.safetensors"))
    learner.progress = TrainingProgress(**state["progress"])
    if tidy:
        _drop_others(folder, inside.name)


def _as_json(fingerprint: Fingerprint) -> dict[str, JSON]:
    return {
        name: value.model_dump(mode="json") if isinstance(value, StrictConfig) else value
        for name, value in fingerprint.items()
    }


def _is_same(before: JSON, now: JSON | StrictConfig) -> bool:
    """Whether a part of a fingerprint is unchanged. A key that an older Regard did not know has its default there."""
    if not isinstance(now, StrictConfig):
        return before == now
    if before == now.model_dump(mode="json"):
        return True
    try:
        return type(now).model_validate(before) == now
    except ValidationError:  # another kind of model, or a key that is no more
        return False


def _drop_others(folder: Path, name: str) -> None:
    for other in folder.glob("step-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)
