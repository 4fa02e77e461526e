"""What `tests/test_world.py` does in several processes: ten updates of many kinds of models, by the real loop.

`python -m tests.drivers.many FOLDER SIZE`: starts SIZE processes, which leave the weights of each case in FOLDER.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.tensors import weights_of, write_tensors
from regard.training.config import TrainConfig
from regard.training.loop import Job, Trainer
from regard.training.show import Show
from regard.training.validation import Validation
from regard.world import World, joined
from tests.test_kinds import fresh, whatever
from tests.test_parts import exact

UPDATES = 10


@dataclass(frozen=True)
class Case:
    """A kind of model and how it learns."""

    task: str
    kind: str
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    rows: int = 5

    @property
    def name(self) -> str:
        told = [self.task, self.kind, *map(str, [*self.model.values(), *self.train.values()]), str(self.rows)]
        return "-".join(told).replace(" ", "").replace("/", "")


class Batches:
    """Batches of a task in float64, the same in every process."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def count(self, epoch: int) -> int:
        return 7

    def get(self, epoch: int, index: int) -> Any:
        return exact(whatever(self.case.task, self.case.rows, seed=10 * epoch + index))

    def padding_share(self) -> float:
        return 0.0


def trainer(case: Case, folder: Path, world: World) -> Trainer:
    model = fresh(case.task, case.kind, **case.model).double()
    config = TrainConfig(**{"steps": 1000, "warmup": 3, "lr": 1e-2, "precision": "float32", **case.train})
    return Trainer(job(case, folder, world, model, config), Show())


def job(case: Case, folder: Path, world: World, model: nn.Module, config: TrainConfig) -> Job:
    def validate(_: nn.Module) -> Validation:
        return Validation({"loss": 1.0})

    return Job(folder, config, model, 16, Batches(case), validate, lambda *_: None, world=world)


def learn(case: Case, folder: Path, world: World) -> dict[str, torch.Tensor]:
    """The weights after ten updates, the same in every process."""
    found = trainer(case, folder, world)
    for _ in range(UPDATES):
        found.learn()
    assert found.progress.step == UPDATES
    return weights_of(found.model)


def start(module: str, size: int, *words: str, **more: str) -> list[subprocess.Popen[str]]:
    """So many processes of a module as one world."""
    with __import__("socket").socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), **more}
    common |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    places = ({**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size))
    command = [sys.executable, "-m", module, *words]
    return [subprocess.Popen(command, env=place, text=True, stderr=subprocess.PIPE) for place in places]


def main(folder: Path) -> None:
    from tests.test_world import CASES

    torch.set_num_threads(1)
    with joined() as world:
        for case in CASES:
            try:
                found = learn(case, folder, world)
            except Exception as error:
                raise RuntimeError(f"{case.name}: {error}") from error
            if world.rank in (0, world.size - 1):
                write_tensors(folder / f"{case.name}-{world.rank and 'last'}of{world.size}.safetensors", found)
        world.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
