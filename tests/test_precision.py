"""fp16 with a loss that is scaled, held against a plain loop with torch's own scaler; TF32 and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import RegardError
from regard.noise import noise
from regard.tensors import read_tensors, weights_of
from regard.training.config import TrainConfig
from regard.training.history import RunLog
from regard.training.loop import Trainer
from regard.training.optimiser import learning_rate, make_optimiser
from regard.training.precision import Scaling, half_of, precision_here, products_in
from regard.training.show import Show
from regard.training.state import TrainingProgress
from regard.training.timed import train
from regard.world import ALONE
from tests.toy_run import CONFIG, Contents, ToyBatches, ToyModel, toy_job

CPU = torch.device("cpu")
HALF = {"precision": "fp16", "ema": 0.0, "validate_every": 1000, "average": 0}


def plain(config: TrainConfig, updates: int) -> tuple[dict[str, Tensor], int, float]:
    """A loop as torch's documentation writes it: the weights, how many updates were left out, and the scale."""
    model, source, scaler = ToyModel(), ToyBatches(), torch.amp.GradScaler("cpu")
    optimiser = make_optimiser(model, config)
    places = [(epoch, index) for epoch in range(100) for index in range(source.count(epoch))]
    step = skipped = 0
    while step < updates:
        batches = [source.get(*places.pop(0)) for _ in range(config.accumulate)]
        total = sum(len(batch.y) for batch in batches)
        for number, batch in enumerate(batches):
            with noise(config.seed, step, number), torch.autocast("cpu", torch.float16):
                loss = model(batch).parts["loss"].sum / total
            scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step + 1, config, 5)
        before = scaler.get_scale()
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
        fell = scaler.get_scale() < before
        skipped, step = skipped + fell, step + (not fell)
    return weights_of(model), skipped, scaler.get_scale()


@pytest.mark.parametrize(("accumulate", "clip"), [(1, 1.0), (2, 0.1), (3, 1e9)])
def test_fp16_is_a_plain_loop_with_torchs_scaler(accumulate: int, clip: float, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={**HALF, "steps": 17, "accumulate": accumulate, "clip": clip})
    expected, skipped, scale = plain(config, 17)
    trainer = Trainer(toy_job(tmp_path, config), Show())
    while trainer.progress.step < 17:
        trainer.learn()
    assert skipped > 0 and (trainer.progress.skipped, trainer.scaling.get_scale()) == (skipped, scale)
    for name, tensor in weights_of(trainer.model).items():
        assert torch.allclose(tensor, expected[name], rtol=1e-6, atol=1e-7), (
            name
        )  # fused steps know of the scale, ours do not


def test_a_run_in_fp16_goes_on_with_its_scale(tmp_path: Path) -> None:
    """Stopped at some steps and resumed: the same bits, and the log says how many updates were left out by then."""
    config = CONFIG.model_copy(update={"precision": "fp16", "steps": 17, "log_every": 1, "patience": 0})
    train(toy_job(tmp_path / "whole", config), Show())
    whole = Contents.of(tmp_path / "whole")
    rows = [row for row in RunLog(tmp_path / "whole").rows() if row["kind"] == "train"]
    assert 0 == rows[0]["skipped"] < rows[-1]["skipped"]
    assert all(row["scale"] == 2.0 ** (16 - row["skipped"]) for row in rows)
    for step in (1, *(row["step"] - 1 for row in rows[1:] if row["skipped"] > rows[row["step"] - 2]["skipped"]), 16):
        folder = tmp_path / str(step)
        train(toy_job(folder, config.model_copy(update={"steps": step, "validate_every": 2})), Show())
        state = trainer_at(folder, config)
        assert state.scaling["scale"] == 2.0 ** (16 - state.skipped)
        train(toy_job(folder, config), Show(), resume=True)
        ends = [read_tensors(tmp_path / name / "last/model.safetensors") for name in ("whole", str(step))]
        assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
    train(toy_job(tmp_path / "again", config), Show())
    assert whole.unlike(Contents.of(tmp_path / "again")) == []


def trainer_at(folder: Path, config: TrainConfig) -> TrainingProgress:
    trainer = Trainer(toy_job(folder, config), Show())
    trainer.restore()
    assert trainer.scaling.get_scale() == trainer.progress.scaling["scale"]
    return trainer.progress


class Steep(ToyModel):
    """Its loss is finite and its gradient never is."""

    def forward(self, batch: Any) -> Any:
        found = super().forward(batch)
        corner = (self.inner.weight.sum() * 0.0).abs().sqrt()
        part = found.parts["loss"]
        return type(found)({**found.parts, "loss": type(part)(part.sum + corner, part.count)})


def test_a_gradient_that_no_scale_helps_is_a_divergence(tmp_path: Path) -> None:
    """The scale is halved until it is 1; then it is told as in float32."""
    config = CONFIG.model_copy(update={**HALF, "steps": 50})
    with pytest.raises(RegardError, match=r"the gradient's norm is (nan|inf) at step 1"):
        train(toy_job(tmp_path, config, Steep()), Show())


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "auto"])
def test_elsewhere_nothing_is_scaled(precision: str) -> None:
    scaling, loss = Scaling(precision, CPU, ALONE), torch.tensor(3.0)
    assert scaling.scale(loss) is loss and scaling.state_dict() == {}
    assert not scaling.overflows(torch.optim.SGD(ToyModel().parameters()))


def test_half_precision_by_its_name() -> None:
    halves: Sequence[tuple[str, torch.dtype | None]] = (
        ("bf16", torch.bfloat16), ("fp16", torch.float16), ("float32", None), ("tf32", None),
    )  # fmt: skip
    assert all(half_of(name, CPU) is half for name, half in halves)
    assert [precision_here(name, CPU) for name, _ in halves] == ["bf16", "fp16", "float32", "float32"]
    assert precision_here("tf32", torch.device("cuda")) == "tf32"


def test_tf32_is_asked_of_a_gpu_and_is_float32_elsewhere(tmp_path: Path) -> None:
    """The setting holds inside the pass and is put back; a processor computes the same bits."""
    before = torch.backends.cuda.matmul.fp32_precision
    with products_in("float32"):
        assert torch.backends.cuda.matmul.fp32_precision == before
    with pytest.raises(ValueError, match="ends"), products_in("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        raise ValueError("ends")
    assert torch.backends.cuda.matmul.fp32_precision == before
    for precision in ("float32", "tf32"):
        train(toy_job(tmp_path / precision, CONFIG.model_copy(update={"precision": precision})), Show())
    ends = [Contents.of(tmp_path / precision) for precision in ("float32", "tf32")]
    assert ends[0].unlike(ends[1]) == []
