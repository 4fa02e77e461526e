"""A run of the real training loop on a model of 26 numbers: milliseconds from start to end, for tests of the loop."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import ByRows
from regard.files import new_folder, write_json
from regard.models.loss import Loss, Part
from regard.noise import dropout
from regard.tensors import write_tensors
from regard.training.config import TrainConfig
from regard.training.job import Job
from regard.training.state import weights_of
from regard.training.validation import Validation

CONFIG = TrainConfig(
    steps=5, accumulate=2, batch_tokens=16, lr=0.03, schedule="inverse_sqrt", warmup=3, ema=0.9, average=2,
    validate_every=2, patience=0, log_every=3, weight_decay=0.01, precision="float32",
)  # fmt: skip


@dataclass(frozen=True)
class ToyBatch(ByRows):
    x: Tensor  # (B, 3)
    y: Tensor  # (B,)

    @property
    def counts(self) -> dict[str, int]:
        return {"loss": len(self.y), "nll": len(self.y)}

    def to(self, device: torch.device | str) -> ToyBatch:
        return self


class ToyModel(nn.Module):
    def __init__(self, rate: float = 0.25) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.inner, self.outer, self.rate = nn.Linear(3, 5), nn.Linear(5, 1), rate
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw))

    def forward(self, batch: ToyBatch) -> Loss:
        inner = torch.tanh(self.inner(batch.x))
        inner = dropout(inner, self.rate) if self.training else inner
        errors = self.outer(inner).squeeze(1) - batch.y
        total = errors.pow(2).sum()
        return Loss({"loss": Part(total, len(batch.y)), "nll": Part(total.detach(), len(batch.y), weight=0.0)})


class ToyBatches:
    """Five batches of unequal size an epoch, a pure function of (epoch, index)."""

    def count(self, epoch: int) -> int:
        return 5

    def get(self, epoch: int, index: int) -> ToyBatch:
        draw = torch.Generator().manual_seed(1000 * epoch + index)
        x = torch.randn(2 + index, 3, generator=draw)
        return ToyBatch(x, x.sin().sum(dim=1))

    def padding_share(self) -> float:
        return 0.0


def validate(model: nn.Module) -> Validation:
    part = model(ToyBatches().get(77, 3)).parts["nll"]
    return Validation({"loss": float(part.sum) / part.count})


def toy_job(
    folder: Path,
    config: TrainConfig = CONFIG,
    model: nn.Module | None = None,
    validate: Callable[[nn.Module], Validation] = validate,
    **more: Any,
) -> Job:
    def save(model: nn.Module, name: str, metrics: dict[str, Any]) -> None:
        with new_folder(folder / name) as inside:
            write_tensors(inside / "model.safetensors", weights_of(model))
            write_json(inside / "metrics.json", metrics)

    return Job(
        folder=folder,
        config=config,
        model=model or ToyModel(),
        width=5,
        batches=more.pop("batches", ToyBatches()),
        validate=validate,
        save=save,
        fingerprint={"the training data": "toy"},
        **more,
    )


@dataclass
class Contents:
    """Every file of a run's folder by its digest. Only times may differ between equal runs, and they are left out."""

    digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Contents:
        files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "clock.jsonl")
        return cls({str(file.relative_to(folder)): hashlib.sha256(timeless(file)).hexdigest() for file in files})

    def unlike(self, other: Contents) -> list[str]:
        """Names of the files that only one has, or that differ."""
        names = sorted(self.digests.keys() | other.digests.keys())
        return [name for name in names if self.digests.get(name) != other.digests.get(name)]


def timeless(file: Path) -> bytes:
    """A file's bytes; of a checkpoint's state without the seconds spent and the length of the file of times."""
    if file.name != "state.json":
        return file.read_bytes()
    state = json.loads(file.read_text(encoding="utf-8"))
    del state["progress"]["seconds"], state["progress"]["log_sizes"]["clock.jsonl"]
    return json.dumps(state).encode()
