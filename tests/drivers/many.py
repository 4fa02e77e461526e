"""Ten updates of many kinds of models, by the real loop, in one of several processes (`drivers/killed.py` starts them)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.tensors import weights_of, write_tensors
from regard.training.config import TrainConfig
from regard.training.cut import whole
from regard.training.job import Job
from regard.training.loop import Trainer
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


DROPS: dict[str, Any] = {"dropout": 0.25}
CASES = [
    Case("translate", "transformer", {**DROPS, "activation_dropout": 0.2, "token_dropout": 0.1}, {"accumulate": 2}),
    Case("translate", "bytenet", DROPS),
    Case("generate", "gpt2", {"reversible": True, **DROPS}),
    Case("generate", "gpt2", {"attention": "performer", **DROPS}, {"optimiser": "muon"}),
    Case("generate", "llama", {"experts": 3, "groups": 2, "balance": 0.0, **DROPS}, {"weight_decay": 0.1}),
    Case("generate", "lstm", {"layers": 2, **DROPS}),
    Case("fill", "bert", DROPS, {"optimiser": "muon"}),
    Case("classify", "additive", DROPS, {}, 2),  # fewer rows than processes
    Case("classify-pictures", "vit", DROPS),
    Case("classify-pictures", "resnet", {}, {"accumulate": 4}),
    Case("caption", "show-attend-tell", DROPS, {"accumulate": 4}),
    Case("answer", "answerer", DROPS, {"accumulate": 4}),
    Case("ask", "memory-network", {"noise": 0.5}),
    Case("remember", "turing-machine"),
    Case("compute", "programmer"),
    Case("classify-sounds", "conformer", DROPS),
    Case("classify-graphs", "gat"),
    Case("translate", "transformer", DROPS, {"shard": True, "accumulate": 3, "ema": 0.9, "weight_decay": 0.1}),
    Case("generate", "gpt2", DROPS, {"shard": True, "clip": 0.1}),
    Case("classify", "bert", DROPS, {"shard": True, "recompute": True}, 2),
]

CASES_OF = {4: CASES[::3], 2: CASES[1::3] + CASES[2::3]}  # by the number of processes (`equal.py`: each kind by both)
HALVES = [("bf16", True), ("fp16", False), ("fp16", True)]  # precisions, and whether weights are cut
LARGE = 2.0**40  # a scale of the loss with which every gradient overflows at first


class Batches:
    """Batches of a task, the same in every process; in float64 where the model is."""

    def __init__(self, case: Case, made: Callable[[Any], Any]) -> None:
        self.case, self.made = case, made

    def count(self, epoch: int) -> int:
        return 7

    def get(self, epoch: int, index: int) -> Any:
        return self.made(whatever(self.case.task, self.case.rows, seed=10 * epoch + index))

    def padding_share(self) -> float:
        return 0.0


def trainer(case: Case, folder: Path, world: World) -> Trainer:
    model = fresh(case.task, case.kind, **case.model).double()
    config = TrainConfig(**{"steps": 1000, "warmup": 3, "lr": 1e-2, "precision": "float32", **case.train})
    return Trainer(job(case, folder, world, model, config), Show())


def job(case: Case, folder: Path, world: World, model: nn.Module, config: TrainConfig) -> Job:
    def validate(_: nn.Module) -> Validation:
        return Validation({"loss": 1.0})

    made = exact if next(model.parameters()).dtype is torch.float64 else _as_it_is
    return Job(folder, config, model, 16, Batches(case, made), validate, lambda *_: None, world=world)


def _as_it_is(batch: Any) -> Any:
    return batch


def learn(case: Case, folder: Path, world: World) -> dict[str, torch.Tensor]:
    """The weights after ten updates, the same in every process."""
    found = trainer(case, folder, world)
    for _ in range(UPDATES):
        found.learn()
    assert found.progress.step == UPDATES
    return {name: whole(tensor) for name, tensor in weights_of(found.model).items()}


def learn_all(folder: Path, cases: Sequence[Case]) -> None:
    """One process of those that learn all cases; the first and the last leave what they have learned."""
    torch.set_num_threads(1)
    with joined(timeout=120) as world:
        for case in cases:
            try:
                found = learn(case, folder, world)
            except Exception as error:
                raise RuntimeError(f"{case.name}: {error}") from error
            if world.rank in (0, world.size - 1):
                write_tensors(folder / f"{case.name}.{'first' if world.is_first else 'last'}.safetensors", found)
        if world.size == min(CASES_OF):
            halves = world.gather([learn_in_half(*each, folder, world) for each in HALVES])
            if world.is_first:
                (folder / "halves.json").write_text(json.dumps(halves))
        world.wait()


def learn_in_half(precision: str, cut: bool, folder: Path, world: World) -> dict[str, Any]:
    """Ten updates of a model in float32 whose products are in half precision, and what was seen of it on the way."""
    model = fresh("generate", "gpt2", **DROPS, layers=1)
    config = TrainConfig(steps=1000, warmup=3, lr=1e-3, precision=precision, shard=cut)  # type: ignore[arg-type]
    case, seen = Case("generate", "gpt2"), list[str]()
    found = Trainer(job(case, folder, world, model, config), Show())
    if found.scaling.is_enabled():
        found.scaling.load_state_dict({**found.scaling.state_dict(), "scale": LARGE})
    linear = next(each for name, each in model.named_modules() if "blocks.0" in name and isinstance(each, nn.Linear))
    linear.register_forward_pre_hook(lambda module, _: seen.append(str(module.weight.dtype)))
    while found.progress.step < UPDATES:
        found.learn()
    kept = {name: whole(tensor).clone() for name, tensor in weights_of(model).items()}
    with found.together.whole():
        exact = all(torch.equal(tensor, kept[name]) for name, tensor in weights_of(model).items())
    weights = [tensor.flatten().tolist() for tensor in kept.values()]
    return {
        "weights": [each for tensor in weights for each in tensor], "skipped": found.progress.skipped,
        "scale": found.scaling.get_scale(), "products": sorted(set(seen)), "exact": exact,
    }  # fmt: skip
