"""torch.compile: gradients of compiled blocks are those of the modules, names stay, and who looks into a model sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import record
from regard.errors import UsageError
from regard.noise import noise
from regard.tensors import read_tensors, weights_of
from regard.training.compiled import compile_as_asked
from regard.training.config import TrainConfig
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.world import ALONE, World
from tests.drivers.many import Case, job
from tests.test_kinds import fresh, whatever

CPU = torch.device("cpu")


def gradients(model: torch.nn.Module, batch: Any) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    with noise(1, 2, 3):
        model(batch).objective(batch.counts).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_compiled_blocks_learn_as_the_modules_do(tmp_path: Path) -> None:
    """Without dropout, on batches of two shapes. A checkpoint has the names of a run that is not compiled."""
    torch._dynamo.reset()
    plain, model = (fresh("fill", "bert", layers=1, dropout=0.0).train() for _ in range(2))
    config = TrainConfig(steps=9, warmup=3, precision="float32", compile=True)
    trainer = Trainer(job(Case("fill", "bert"), tmp_path, ALONE, model, config), Show())
    counted = torch._dynamo.utils.counters
    counted.clear()
    batches = [whatever("fill", rows, seed) for rows, seed in ((5, 0), (7, 3))]
    for batch in batches:
        expected, found = gradients(plain, batch), gradients(model, batch)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            assert torch.allclose(found[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max())), name
    assert (
        counted["stats"]["unique_graphs"] >= 1 and not counted["graph_break"]
    )  # the mask of lengths once cut it in two
    model.zero_grad()
    trainer.learn()
    trainer.checkpoint()
    names = read_tensors(tmp_path / "checkpoints/step-1/model.safetensors").keys()
    assert names == weights_of(plain).keys() and list(model.state_dict()) == list(plain.state_dict())

    made = counted["stats"]["calls_captured"]
    with (
        torch.no_grad(),
        record(model) as recorded,
    ):  # as the probe of a run does: by the modules, which compile nothing
        model(batches[0])
    assert len(recorded.calls) == 1 and counted["stats"]["calls_captured"] == made


@pytest.mark.parametrize(
    ("task", "kind", "model", "world", "train", "told"),
    [
        ("classify-pictures", "convnet", {}, ALONE, {}, "no stack of blocks"),
        ("generate", "gpt2", {"reversible": True}, ALONE, {}, "computed again are not compiled"),
        ("generate", "gpt2", {}, World(1, 2), {}, "the same in all parts of a batch"),
        ("generate", "gpt2", {}, World(1, 2), {"shard": True}, "never tried with train.shard"),
        ("generate", "gpt2", {}, ALONE, {"compile": "reduce-overhead"}, "CUDA graphs, and this is a cpu"),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    task: str, kind: str, model: dict[str, Any], world: World, train: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        compile_as_asked(fresh(task, kind, **model), TrainConfig(**{"compile": True, **train}), world, CPU)


def test_without_a_compiler_it_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.config as inductor

    monkeypatch.setattr(inductor.cpp, "cxx", ("no-such-compiler",))
    with pytest.raises(UsageError, match=r"needs a C\+\+ compiler, and there is none"):
        compile_as_asked(fresh("generate", "gpt2"), TrainConfig(compile=True), ALONE, CPU)
