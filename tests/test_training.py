"""The training loop against plain loops written here: schedules, optimiser, accumulation, averages, stopping, guards."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from rich.cells import cell_len
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor, nn
from toy_run import CONFIG, ToyBatch, ToyBatches, ToyModel, toy_job

import regard.training.job
import regard.training.stopwatch
from regard.errors import RegardError, UsageError
from regard.evaluate.classification import f1_error, score_labels
from regard.look.figures.curves import draw
from regard.models.loss import Loss, Part
from regard.noise import dropout
from regard.tasks.configure import run_config
from regard.tasks.run import start_run
from regard.tensors import weights_of
from regard.training.config import TrainConfig
from regard.training.events import Checkpoint, End, Event, Forecast, Note, Progress, Validated, Working
from regard.training.guard import check_update
from regard.training.history import RunLog
from regard.training.optimiser import learning_rate, load_optimiser, make_optimiser, optimiser_tensors, set_rate
from regard.training.show import LiveTable, PlainLines, Show, forecast_line, progress_line, wrapped
from regard.training.show import number as in_digits
from regard.training.state import MovingAverage, mean_of, set_weights, weights_in_place
from regard.training.stopwatch import duration, roughly
from regard.training.timed import train
from regard.training.validation import Selection, Validation, choose, interval_error, share_error


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in RunLog(folder).rows() if row["kind"] == kind]


# -- schedules ---------------------------------------------------------------------------------------------------------


def rate(step: int, schedule: str, *, lr: float = 0.7, warmup: int = 13, steps: int = 101, width: int = 29) -> float:
    config = TrainConfig(schedule=schedule, lr=lr, warmup=warmup, steps=steps)  # type: ignore[arg-type]
    return learning_rate(step, config, width)


def test_noam_is_equation_3_of_the_paper() -> None:
    for step in range(1, 200):
        wanted = 29**-0.5 * min(step**-0.5, step * 13**-1.5)
        assert rate(step, "noam", lr=1.0) == pytest.approx(wanted, rel=1e-14)
        assert rate(step, "noam", lr=2.0) == pytest.approx(2 * wanted, rel=1e-14)
    assert rate(4000, "noam", lr=1.0, warmup=4000, width=512) == pytest.approx(6.987712429686844e-4)  # base model, peak


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "cosine", "linear", "constant"])
def test_a_linear_warm_up_to_the_peak(schedule: str) -> None:
    rates = [rate(step, schedule) for step in range(1, 102)]
    assert max(rates) == rates[12]  # the 13th update
    assert rates[:13] == pytest.approx([rates[12] * step / 13 for step in range(1, 14)])
    assert all(after <= before for before, after in itertools.pairwise(rates[12:]))


def test_after_the_peak() -> None:
    assert rate(13, "inverse_sqrt") == 0.7 and rate(52, "inverse_sqrt") == pytest.approx(0.35)  # 4 times the steps
    assert rate(57, "linear") == pytest.approx(0.35) and rate(101, "linear") == 0.0  # 57 is half way from 13 to 101
    assert rate(57, "cosine") == pytest.approx(0.35) and rate(101, "cosine") == pytest.approx(0.0, abs=1e-16)
    assert rate(35, "cosine") == pytest.approx(0.7 * (1 + math.cos(math.pi / 4)) / 2)
    assert rate(101, "constant") == 0.7


def test_a_last_rate_above_zero() -> None:
    def last(step: int, schedule: str) -> float:
        config = TrainConfig(schedule=schedule, lr=0.7, warmup=13, steps=101, last=0.1)  # type: ignore[arg-type]
        return learning_rate(step, config, 29)

    assert last(13, "cosine") == last(13, "linear") == pytest.approx(0.7)
    assert last(101, "cosine") == last(101, "linear") == pytest.approx(0.07)
    assert last(57, "cosine") == last(57, "linear") == pytest.approx(0.385)  # half way: the mean of both ends
    assert last(35, "cosine") == pytest.approx(0.07 + 0.63 * (1 + math.cos(math.pi / 4)) / 2)
    assert last(5, "cosine") == rate(5, "cosine")  # the warm-up is as ever
    assert last(52, "inverse_sqrt") == rate(52, "inverse_sqrt") and last(101, "constant") == 0.7


def test_no_warm_up() -> None:
    assert rate(1, "constant", warmup=0) == rate(1, "inverse_sqrt", warmup=0) == 0.7
    assert rate(1, "noam", warmup=0) == pytest.approx(0.7 * 29**-0.5)


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup 101 is not shorter than steps 101"):
        TrainConfig(schedule="linear", warmup=101, steps=101)


# -- optimiser ---------------------------------------------------------------------------------------------------------


def adamw_by_hand(
    tensor: Tensor, gradients: list[Tensor], rates: list[float], decay: float, config: TrainConfig
) -> Tensor:
    """Loshchilov & Hutter 2019, algorithm 2, line by line."""
    (b1, b2), m, v = config.betas, torch.zeros_like(tensor), torch.zeros_like(tensor)
    for step, (gradient, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = b1 * m + (1 - b1) * gradient
        v = b2 * v + (1 - b2) * gradient**2
        tensor = tensor - lr * decay * tensor
        tensor = tensor - lr * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + config.epsilon)
    return tensor


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_optimiser_is_adamw_and_only_matrices_decay(decay: float) -> None:
    config = CONFIG.model_copy(update={"weight_decay": decay, "betas": (0.7, 0.9)})
    model = ToyModel().double()
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    optimiser, rates = make_optimiser(model, config), [0.1, 0.03, 0.2, 0.07]
    gradients: dict[str, list[Tensor]] = {name: [] for name in before}
    for lr in rates:
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, dtype=torch.float64)
            gradients[name].append(parameter.grad.clone())
        set_rate(optimiser, lr)
        optimiser.step()
    for name, parameter in model.named_parameters():
        own = decay if parameter.dim() > 1 else 0.0
        wanted = adamw_by_hand(before[name], gradients[name], rates, own, config)
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-12, atol=1e-12)


def test_the_optimisers_memory_comes_back() -> None:
    def steps(model: nn.Module, optimiser: torch.optim.Optimizer, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for _ in range(count):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draw)
            set_rate(optimiser, 0.01)
            optimiser.step()

    first, second = ToyModel(), ToyModel()
    one, two = make_optimiser(first, CONFIG), make_optimiser(second, CONFIG)
    assert optimiser_tensors(one, first) == {}  # it has not stepped yet
    steps(first, one, 3, seed=5)
    kept = {name: tensor.clone() for name, tensor in optimiser_tensors(one, first).items()}
    assert set(kept) == {f"{name}.{kind}" for name in weights_of(first) for kind in ("exp_avg", "exp_avg_sq", "step")}
    set_weights(second, weights_of(first))
    load_optimiser(two, second, kept)
    steps(first, one, 2, seed=6)
    steps(second, two, 2, seed=6)
    assert all(torch.equal(tensor, weights_of(second)[name]) for name, tensor in weights_of(first).items())


# -- the loop against a plain loop -------------------------------------------------------------------------------------


class ExactBatches(ToyBatches):
    """In float64, where only rounding is left between one large batch and two small ones."""

    def get(self, epoch: int, index: int) -> ToyBatch:
        batch = super().get(epoch, index)
        return ToyBatch(batch.x.double(), batch.y.double())


def places() -> Iterator[tuple[int, int]]:
    return ((epoch, index) for epoch in itertools.count() for index in range(5))


@dataclass
class PlainLoop:
    """What the loop should do, with one batch where the loop has two, and torch's own Adam."""

    config: TrainConfig
    model: ToyModel = field(default_factory=lambda: ToyModel(rate=0.0).double())
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    history: list[dict[str, Tensor]] = field(default_factory=list)  # weights after each update

    def run(self) -> PlainLoop:
        where, batches = places(), ExactBatches()
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        groups = [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        adam = torch.optim.AdamW(groups, betas=self.config.betas, eps=self.config.epsilon)
        for step in range(1, self.config.steps + 1):
            parts = [batches.get(*place) for place in itertools.islice(where, self.config.accumulate)]
            x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
            outputs = self.model.outer(torch.tanh(self.model.inner(x))).squeeze(1)
            loss = (outputs - y).pow(2).mean()
            adam.zero_grad()
            loss.backward()
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
            for gradient in gradients:
                gradient.mul_(min(1.0, self.config.clip / norm))
            for group in adam.param_groups:
                group["lr"] = self.config.lr * min(step / self.config.warmup, math.sqrt(self.config.warmup / step))
            adam.step()
            self.losses.append(float(loss.detach()))
            self.norms.append(norm)
            self.history.append({name: p.detach().clone() for name, p in self.model.named_parameters()})
        return self


def exact_validate(model: nn.Module) -> Validation:
    part = model(ExactBatches().get(77, 3)).parts["nll"]
    return Validation({"loss": float(part.sum) / part.count})


EXACT = CONFIG.model_copy(update={"log_every": 1, "clip": 0.5})


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PlainLoop]:
    folder = tmp_path_factory.mktemp("exact")
    model = ToyModel(rate=0.0).double()
    train(toy_job(folder, EXACT, model, exact_validate, batches=ExactBatches()), Show())
    return folder, PlainLoop(EXACT).run()


def assert_equal_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-6, atol=1e-12)  # clipping adds 1e-6 to the norm


def test_two_batches_added_up_are_one_large_batch(exact: tuple[Path, PlainLoop]) -> None:
    folder, plain = exact
    assert_equal_tensors(load_file(folder / "checkpoints" / "step-5" / "model.safetensors"), plain.history[-1])
    assert_equal_tensors(load_file(folder / "last" / "model.safetensors"), plain.history[-1])


def test_the_log_has_loss_norm_and_rate_of_every_step(exact: tuple[Path, PlainLoop]) -> None:
    folder, plain = exact
    found = rows(folder, "train")
    assert [row["step"] for row in found] == [1, 2, 3, 4, 5]
    assert [row["loss"] for row in found] == pytest.approx(plain.losses, rel=1e-6)
    assert [row["gradient_norm"] for row in found] == pytest.approx(plain.norms, rel=1e-6)
    assert [row["learning_rate"] for row in found] == pytest.approx([learning_rate(s, EXACT, 5) for s in range(1, 6)])
    assert [row["tokens"] for row in found] == [5, 14, 22, 29, 40]  # batches of 2, 3, 4, 5, 6 items, two at a time
    assert [row["epoch"] for row in found] == [0, 0, 1, 1, 1]


def test_a_row_is_the_mean_since_the_last_one(tmp_path: Path) -> None:
    config = EXACT.model_copy(update={"log_every": 3})
    train(toy_job(tmp_path, config, ToyModel(rate=0.0).double(), exact_validate, batches=ExactBatches()), Show())
    losses, sizes = PlainLoop(EXACT).run().losses, [5, 9, 8, 7, 11]
    totals = [loss * size for loss, size in zip(losses, sizes, strict=True)]
    found = {row["step"]: row["loss"] for row in rows(tmp_path, "train")}  # rows at validations too: 2 and 4
    assert found == pytest.approx({2: sum(totals[:2]) / 14, 3: losses[2], 4: losses[3]}, rel=1e-6)


@dataclass(frozen=True)
class UnevenBatch(ToyBatch):
    """The second part counts only every other item, and in a batch of three none at all."""

    @property
    def odd(self) -> int:
        return 0 if len(self.y) == 3 else len(self.y) // 2

    @property
    def counts(self) -> dict[str, int]:
        return {"loss": len(self.y), "odd": self.odd}


class UnevenBatches(ToyBatches):
    def get(self, epoch: int, index: int) -> ToyBatch:
        batch = super().get(epoch, index)
        return UnevenBatch(batch.x, batch.y)


class Uneven(ToyModel):
    """A loss over all items, another over the first few, and a count of those that are positive."""

    def forward(self, batch: Any) -> Loss:
        errors = self.outer(torch.tanh(self.inner(batch.x))).squeeze(1) - batch.y
        few, right = errors[: batch.odd].abs().sum(), (batch.y > 0).sum()
        parts = {"loss": Part(errors.pow(2).sum(), len(errors)), "odd": Part(few, batch.odd)}
        return Loss({**parts, "correct": Part(right, len(errors), weight=0.0)})


def test_every_part_is_divided_by_its_own_count(tmp_path: Path) -> None:
    """The bug: every sum was divided by the count of the loss. At a rate of zero, nothing moves between the rows."""
    config = CONFIG.model_copy(update={"log_every": 5, "validate_every": 99, "lr": 1e-30, "ema": 0.0})
    train(toy_job(tmp_path, config, Uneven(0.0), scripted([{"loss": 1.0}] * 9), batches=UnevenBatches()), Show())
    model = Uneven(0.0)
    losses, few, right = [], [], []
    for epoch in (0, 1):  # ten batches: five updates of two
        for index in range(5):
            batch = ToyBatches().get(epoch, index)
            errors = (model.outer(torch.tanh(model.inner(batch.x))).squeeze(1) - batch.y).tolist()
            losses += [error**2 for error in errors]
            few += [abs(error) for error in errors[: 0 if len(errors) == 3 else len(errors) // 2]]
            right += [float(y > 0) for y in batch.y]
    (row,) = rows(tmp_path, "train")
    assert (len(losses), len(few)) == (40, 16)
    assert row["loss"] == pytest.approx(sum(losses) / 40, rel=1e-5)
    assert row["odd"] == pytest.approx(sum(few) / 16, rel=1e-5)
    assert row["correct"] == pytest.approx(sum(right) / 40)
    assert row["tokens"] == 40 and not any("count" in name for name in row)


def test_a_part_that_counted_nothing_has_no_mean(tmp_path: Path) -> None:
    """Batches of three have no odd items; a part that is only reported may be absent from an update, and from its row."""

    class Threes(UnevenBatches):
        def get(self, epoch: int, index: int) -> ToyBatch:
            return super().get(epoch, 1)

    class Reported(Uneven):
        def forward(self, batch: Any) -> Loss:
            parts = super().forward(batch).parts
            return Loss({**parts, "odd": replace(parts["odd"], weight=0.0)})

    train(toy_job(tmp_path, EXACT, Reported(0.0), scripted([{"loss": 1.0}] * 9), batches=Threes()), Show())
    assert all("odd" not in row and row["loss"] > 0 for row in rows(tmp_path, "train"))


def test_the_moving_average_by_a_loop(exact: tuple[Path, PlainLoop]) -> None:
    folder, plain = exact
    ema = dict(ToyModel(rate=0.0).double().named_parameters())
    average = {name: tensor.detach().clone() for name, tensor in ema.items()}
    for step, weights in enumerate(plain.history, start=1):
        decay = min(0.9, step / (step + 9))
        average = {name: decay * average[name] + (1 - decay) * weights[name] for name in weights}
    assert_equal_tensors(load_file(folder / "checkpoints" / "step-5" / "ema.safetensors"), average)
    assert_equal_tensors(
        load_file(folder / "snapshots" / "step-5.safetensors"), average
    )  # validated, and so kept, is the average


def test_the_final_average_is_the_mean_of_the_last_snapshots(exact: tuple[Path, PlainLoop], tmp_path: Path) -> None:
    folder, _ = exact
    files = sorted((folder / "snapshots").iterdir())
    assert [file.name for file in files] == ["step-4.safetensors", "step-5.safetensors"]
    snapshots = [load_file(file) for file in files]
    mean = mean_of(files)
    for name in mean:
        torch.testing.assert_close(mean[name], (snapshots[0][name] + snapshots[1][name]) / 2)
    model = ToyModel(rate=0.0).double()
    set_weights(model, mean)
    (row,) = rows(folder, "average")
    assert row["loss"] == pytest.approx(exact_validate(model).metrics["loss"], rel=1e-12)


def test_the_mean_of_float32_files_is_summed_in_float64(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    for number, value in enumerate([1.0, 2.0**-25, 2.0**-25]):  # the small ones vanish beside 1 in float32
        save_file({"x": torch.tensor([value])}, tmp_path / str(number))
    mean = mean_of([tmp_path / str(number) for number in range(3)])["x"]
    assert mean.dtype == torch.float32 and float(mean) == float(torch.tensor((1 + 2.0**-24) / 3))


def test_weights_in_place_come_back_bit_for_bit() -> None:
    model = ToyModel()
    before = {name: tensor.detach().clone() for name, tensor in weights_of(model).items()}
    other = {name: torch.full_like(tensor, 7.0) for name, tensor in before.items()}
    with pytest.raises(RuntimeError), weights_in_place(model, other):
        assert all(bool((tensor == 7).all()) for tensor in weights_of(model).values())
        raise RuntimeError
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights_of(model).items())


def test_a_moving_average_starts_at_the_weights() -> None:
    model = ToyModel()
    average = MovingAverage(model, 0.9)
    assert all(torch.equal(tensor, average.tensors[name]) for name, tensor in weights_of(model).items())
    average.update(model, 1)
    assert all(torch.allclose(tensor, average.tensors[name]) for name, tensor in weights_of(model).items())


def test_equal_seeds_give_equal_runs_and_others_do_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(toy_job(tmp_path / name, CONFIG.model_copy(update={"seed": seed})), Show())
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in "abc"]
    assert logs[0] == logs[1] != logs[2]  # dropout is the only noise here


def test_every_batch_of_every_update_has_noise_of_its_own(tmp_path: Path) -> None:
    masks: list[tuple[bool, ...]] = []

    class Listens(ToyModel):
        def forward(self, batch: ToyBatch) -> Loss:
            if self.training:
                masks.append(tuple((dropout(torch.ones(64), 0.5) == 0).tolist()))
            return super().forward(batch)

    train(toy_job(tmp_path, model=Listens()), Show())
    assert len(masks) == 2 * 5 == len(set(masks))  # two for each of five updates


# -- stopping ----------------------------------------------------------------------------------------------------------


def scripted(metrics: list[dict[str, float]]) -> Callable[[nn.Module], Validation]:
    found = iter(metrics)
    return lambda model: Validation(next(found))


def test_patience_ends_a_run_and_the_best_is_kept(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"steps": 99, "patience": 2, "average": 0, "ema": 0.0})
    losses = [5.0, 4.0, 4.5, 4.25, 1.0]  # the last is never asked for
    outcome = train(toy_job(tmp_path, config, validate=scripted([{"loss": loss} for loss in losses])), Show())
    assert (outcome.reason, outcome.progress.step, outcome.progress.best_step) == ("patience", 8, 4)
    assert outcome.chosen == "step 4" and outcome.metrics == {"loss": 4.0}
    assert json.loads((tmp_path / "best" / "metrics.json").read_text()) == {"weights": "step 4", "loss": 4.0}
    assert [row["best"] for row in rows(tmp_path, "valid")] == [True, True, False, False]
    shorter = train(toy_job(tmp_path / "4", config.model_copy(update={"steps": 4})), Show())
    best, at_4 = (load_file(place / "model.safetensors") for place in (tmp_path / "best", tmp_path / "4" / "last"))
    assert shorter.progress.step == 4 and all(torch.equal(best[name], at_4[name]) for name in best)


def test_more_is_better_for_scores(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"select": "bleu", "average": 0})
    metrics = [{"loss": 3.0, "bleu": 10.0}, {"loss": 2.0, "bleu": 30.0}, {"loss": 1.0, "bleu": 20.0}]
    outcome = train(toy_job(tmp_path, config, validate=scripted(metrics)), Show())
    assert outcome.metrics == {"loss": 2.0, "bleu": 30.0}


def better(found: dict[str, float], best: dict[str, float], select: str, **errors: float) -> tuple[bool, str]:
    choice = choose(Validation(found, errors=errors), best, select)
    return choice.better, choice.by


def test_equal_scores_are_told_apart_by_the_loss() -> None:
    """The bug: while BLEU was still 0.0, the first validation stayed the best, and patience ran out."""
    assert better({"loss": 2.0, "bleu": 0.0}, {"loss": 3.0, "bleu": 0.0}, "bleu") == (True, "loss")
    assert better({"loss": 3.0, "bleu": 0.0}, {"loss": 3.0, "bleu": 0.0}, "bleu") == (False, "loss")
    assert better({"loss": 2.0, "ter": 50.0}, {"loss": 1.0, "ter": 60.0}, "ter") == (True, "ter")
    assert better({"loss": 2.0, "bits_per_byte": 1.5}, {"loss": 1.0, "bits_per_byte": 1.6}, "bits_per_byte")[0]
    assert better({"loss": 2.0, "accuracy": 81.0}, {"loss": 1.0, "accuracy": 80.0}, "accuracy") == (True, "accuracy")


def test_a_score_decides_only_where_it_says_something(tmp_path: Path) -> None:
    """The bug: a BLEU of 0.9 at step 2 stayed the best over 0.4 at step 4, whose loss was better."""
    early, later = {"loss": 6.0, "bleu": 0.9}, {"loss": 5.0, "bleu": 0.4}
    assert better(later, early, "bleu", bleu=0.1) == (True, "loss")
    assert better({"loss": 9.0, "bleu": 6.1}, early, "bleu", bleu=1.0) == (
        True,
        "bleu",
    )  # 1.1 above the least that counts
    assert better({"loss": 5.0, "bleu": 5.9}, early, "bleu", bleu=1.0) == (True, "loss")
    clear, close = {"loss": 2.0, "bleu": 30.0}, {"loss": 1.9, "bleu": 29.5}
    assert better(close, clear, "bleu", bleu=0.6) == (True, "loss")
    assert better(close, clear, "bleu", bleu=0.4) == (False, "bleu")
    assert (
        better({"loss": 0.5, "accuracy": 95.0}, {"loss": 0.4, "accuracy": 90.0}, "accuracy", accuracy=6.0)[0] is False
    )
    config = CONFIG.model_copy(update={"select": "bleu", "average": 0})
    last = {"loss": 5.5, "bleu": 2.0}  # patience counts by the same rule
    outcome = train(toy_job(tmp_path, config, validate=scripted([early, later, last])), Show())
    assert outcome.chosen == "step 4" and outcome.progress.waited == 1
    found = [(row["best"], row["by"], row.get("why", "")) for row in rows(tmp_path, "valid")]
    why = "bleu counts from 5 on"
    assert found == [(True, "bleu", ""), (True, "loss", why), (False, "loss", why)]
    out = io.StringIO()
    train(
        toy_job(tmp_path / "2", config, validate=scripted([early, later, last])),
        PlainLines(Console(file=out, width=160)),
    )
    assert "best so far  (by loss: bleu counts from 5 on)" in out.getvalue()


def test_what_is_not_a_number_is_never_the_best() -> None:
    """The bug: a first validation whose loss was NaN stayed the best for good."""
    assert choose(Validation({"loss": 3.0}), {"loss": math.nan}, "loss") == Selection(True, "loss")
    assert choose(Validation({"loss": math.nan}), {"loss": 3.0}, "loss") == Selection(False, "loss")
    assert better({"loss": 3.0, "bleu": 0.0}, {"loss": math.nan, "bleu": 0.0}, "bleu")[0]


def test_standard_errors_of_scores() -> None:
    """Of a share against the binomial's own, of macro F1 against drawing the examples themselves."""
    draw = np.random.default_rng(3)
    assert share_error(70.0, 400) == pytest.approx(draw.binomial(400, 0.7, size=20_000).std() / 4, rel=0.03)
    assert share_error(100.0, 20) > 4  # twenty of twenty is not certainty
    assert interval_error((10.0, 13.92)) == pytest.approx(1.0)
    wanted = draw.integers(3, size=90)
    predicted = np.where(draw.random(90) < 0.6, wanted, draw.integers(3, size=90))
    f1 = []
    for _ in range(400):
        some = draw.integers(90, size=90)
        f1.append(score_labels(predicted[some].tolist(), wanted[some].tolist(), "abc").macro_f1)
    error = f1_error(score_labels(predicted.tolist(), wanted.tolist(), "abc").confusion)
    assert error == pytest.approx(np.std(f1), rel=0.2)


def test_a_metric_that_no_validation_gives(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"train\.select is bleu, but a validation gives loss"):
        train(toy_job(tmp_path, CONFIG.model_copy(update={"select": "bleu"})), Show())


class Clock:
    """A second passes whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_the_time_limit_counts_all_resumes_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.training.job, "time", Clock())
    config = CONFIG.model_copy(update={"steps": 10_000, "max_time": 40.0})
    first = train(toy_job(tmp_path, config), Show())
    assert first.reason == "time" and 0 < first.progress.step < 40
    assert first.progress.validated == first.progress.step and first.progress.seconds >= 40
    again = train(toy_job(tmp_path, config), Show(), resume=True)
    assert (again.reason, again.progress.step) == ("time", first.progress.step)
    longer = train(toy_job(tmp_path, config.model_copy(update={"max_time": 80.0})), Show(), resume=True)
    assert longer.reason == "time" and longer.progress.step > first.progress.step


def test_no_time_at_all_still_leaves_a_bundle(tmp_path: Path) -> None:
    """The bug: a run that ended before its first update had no best weights."""
    outcome = train(toy_job(tmp_path, CONFIG.model_copy(update={"max_time": 1e-9})), Show())
    assert (outcome.reason, outcome.progress.step, outcome.chosen) == ("time", 0, "step 0")
    assert (tmp_path / "best" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("text", "wanted"), [("90", 90), ("45s", 45), ("30m", 1800), ("1h30m", 5400), ("1.5h", 5400), ("1d", 86400), (7, 7)]
)
def test_durations_as_people_write_them(text: object, wanted: float) -> None:
    assert TrainConfig(max_time=text).max_time == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["soon", "3 weeks", "", "-5m"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"train\.max_time: .*is not a duration; write 45s, 30m or 1h30m"):
        run_config("translate", {"train": {"max_time": text}})


# -- divergence --------------------------------------------------------------------------------------------------------


@dataclass
class Notes(Show):
    said: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.said.append(text)


class OnceNaN(ToyModel):
    """Its inner layer gives NaN in the training passes whose numbers are listed ."""

    def __init__(self, *passes: int) -> None:
        super().__init__()
        self.left, self.count = set(passes), 0
        self.inner.register_forward_hook(self.spoil)

    def spoil(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * float("nan") if self.broken else output

    def forward(self, batch: ToyBatch) -> Loss:
        self.count += self.training and torch.is_grad_enabled()
        self.broken = self.count in self.left  # the pass that looks for the place sees the same
        return super().forward(batch)


class SpoiltBatches(ToyBatches):
    """The fourth batch of the first epoch holds an infinity: the second of update 2."""

    def get(self, epoch: int, index: int) -> ToyBatch:
        batch = super().get(epoch, index)
        return replace(batch, x=batch.x * math.inf) if (epoch, index) == (0, 3) else batch


def test_once_not_a_number_goes_back_with_half_the_rate(tmp_path: Path) -> None:
    show = Notes()
    config = CONFIG.model_copy(update={"log_every": 1})
    outcome = train(toy_job(tmp_path, config, OnceNaN(8)), show)  # two passes an update: update 4
    assert outcome.reason == "steps" and outcome.progress.went_back == 1
    why = "the loss is nan at step 4, first seen in the output of inner"
    assert f"{why}; going back to step 2 with half the learning rate" in show.said
    (row,) = rows(tmp_path, "went back")
    assert (row["step"], row["why"]) == (2, why)
    usual = [learning_rate(step, config, 5) for step in range(1, 6)]
    found = {row["step"]: row["learning_rate"] for row in rows(tmp_path, "train")}
    assert found == pytest.approx({1: usual[0], 2: usual[1], 3: usual[2] / 2, 4: usual[3] / 2, 5: usual[4] / 2})


def test_going_back_validates_nothing_twice(tmp_path: Path) -> None:
    """The bug: a run that went back to step 2 validated there again, and kept its weights twice for the average."""
    outcome = train(toy_job(tmp_path, CONFIG, OnceNaN(5)), Show())
    assert [row["step"] for row in rows(tmp_path, "valid")] == [2, 4, 5]
    assert outcome.progress.snapshots == [4, 5]


def test_going_back_to_the_start(tmp_path: Path) -> None:
    outcome = train(toy_job(tmp_path, CONFIG, OnceNaN(1)), Show())
    assert outcome.progress.went_back == 1 and [row["step"] for row in rows(tmp_path, "valid")] == [2, 4, 5]


def test_again_not_a_number_stops_with_advice(tmp_path: Path) -> None:
    """The place is found although only the second batch of the update is spoilt (the bug: the first was looked at)."""
    with pytest.raises(RegardError) as caught:
        train(toy_job(tmp_path, CONFIG, batches=SpoiltBatches()), Show())
    message = str(caught.value)
    assert message.startswith("the loss is nan at step 2, first seen in the output of inner; it happened before")
    assert "the run stops at step 0. Now lower train.lr" in message and "lengthen train.warmup" in message
    assert (tmp_path / "last" / "model.safetensors").exists()


def test_a_loss_that_explodes(tmp_path: Path) -> None:
    class Explodes(OnceNaN):
        def spoil(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            return output

        def forward(self, batch: ToyBatch) -> Loss:
            parts = super().forward(batch).parts
            factor = 1000.0 if self.broken else 1.0
            return Loss({name: Part(part.sum * factor, part.count, part.weight) for name, part in parts.items()})

    show = Notes()
    outcome = train(toy_job(tmp_path, CONFIG, Explodes(6)), show)
    assert outcome.progress.went_back == 1
    assert any("times the first" in said and "at step 3" in said for said in show.said)


@pytest.mark.parametrize(("loss", "count", "wrong"), [(8.1, 1, False), (8.1, 4000, True), (80.0, 1, True)])
def test_one_hard_example_alone_in_a_batch_is_no_explosion(loss: float, count: int, wrong: bool) -> None:
    assert bool(check_update(loss, 1.0, 2.3, count)) == wrong


def test_a_gradient_that_is_not_finite(tmp_path: Path) -> None:
    """√|x| at 0 has a finite value and an infinite slope."""

    class Cusp(ToyModel):
        def forward(self, batch: ToyBatch) -> Loss:
            errors = (self.outer(torch.tanh(self.inner(batch.x))) * 0).abs().sqrt().sum() + 1.0
            return Loss({"loss": Part(errors, len(batch.y))})

    with pytest.raises(
        RegardError, match=r"the gradient's norm is nan at step 1, first seen in the gradient of inner\.weight"
    ):
        train(toy_job(tmp_path, CONFIG, Cusp(), scripted([{"loss": 1.0}] * 9)), Show())


def test_time_spent_before_going_back_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.training.job, "time", Clock())
    usual = train(toy_job(tmp_path / "usual"), Show()).progress.seconds
    longer = train(toy_job(tmp_path / "longer", CONFIG, OnceNaN(7)), Show()).progress.seconds
    assert longer > usual


# -- precision, forecast -----------------------------------------------------------------------------------------------


def test_bf16_trains_and_its_loss_is_close(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    losses = {}
    for precision in ("float32", "bf16"):
        tiny_settings["train"] |= {"precision": precision, "log_every": 1, "steps": 2}
        start_run(run_config("translate", tiny_settings), folder=tmp_path / precision)
        losses[precision] = [row["loss"] for row in rows(tmp_path / precision, "train")]
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.01)
    assert losses["bf16"] != losses["float32"]
    best = load_file(tmp_path / "bf16" / "best" / "model.safetensors")
    assert {tensor.dtype for tensor in best.values()} == {torch.float32}  # only products are rounded


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45 s"), (89, "89 s"), (720, "12 min"), (5400, "1 h 30 min"), (190_800, "2 days 5 h")]
)
def test_spans_of_time(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_guess_has_no_minutes_after_many_hours() -> None:
    assert [roughly(seconds) for seconds in (45, 5400, 32_760, 32_400)] == ["45 s", "1 h 30 min", "9 h", "9 h"]


# -- what a person sees ------------------------------------------------------------------------------------------------


def test_a_line_tells_what_the_row_has() -> None:
    values = {"loss": 1.25, "nll": math.log(7.5)}
    event = Progress(40, 80, 1, values, "tokens", 6000, 300.0, 20.0, 20.0, 0.5)
    assert progress_line(event) == "step 40  epoch 2  loss 1.250  perplexity 7.50  300 tokens/s  20 s left"
    other = replace(event, unit="target tokens")
    assert progress_line(other) == "step 40  epoch 2  loss 1.250  perplexity 7.50  300 target tokens/s  20 s left"
    texts = replace(event, unit="texts", values={**values, "correct": 0.875})
    assert progress_line(texts) == "step 40  epoch 2  loss 1.250  accuracy 87.5%  300 texts/s  20 s left"
    bare = replace(event, values={"loss": 1.25})
    assert progress_line(bare) == "step 40  epoch 2  loss 1.250  300 tokens/s  20 s left"


def test_a_forecast_says_how_long_and_until_what() -> None:
    found = Forecast(20_000, 32_760.0, None, True, 622.4, "tokens", 0.07, 2**29)
    line = "about 9 h for 20,000 steps, less if validations stop getting better · 622 tokens/s · 7.0% padding · 0.5 GiB"
    assert forecast_line(found) == f"{line} of memory"
    assert forecast_line(replace(found, padding_share=0.0)).endswith(" · 622 tokens/s · 0.5 GiB of memory")  # pictures
    assert forecast_line(replace(found, stops_early=False)).startswith("about 9 h for 20,000 steps · ")
    limited = "50 s (the time limit), 20,000 steps would take 9 h · "
    assert forecast_line(replace(found, limit=50.0)).startswith(limited)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("loss", 2.34567, "2.346"), ("bits_per_byte", 1.23456, "1.235"), ("perplexity", 9.876, "9.88"),
        ("perplexity", 12.345, "12.3"), ("perplexity", 1234.5, "1,234.5"), ("accuracy", 87.46, "87.5"),
        ("f1", 8.25, "8.2"), ("bleu", 31.04, "31.0"),
    ],
)  # fmt: skip
def test_numbers_have_as_many_digits_as_matter(name: str, value: float, shown: str) -> None:
    assert in_digits(name, value) == shown


@pytest.mark.parametrize("kind", [PlainLines, LiveTable])
def test_the_unit_of_a_job_is_shown(tmp_path: Path, kind: type[PlainLines]) -> None:
    for name, settings in (("texts", {"unit": "texts"}), ("tokens", {})):
        out = io.StringIO()
        config = CONFIG.model_copy(update={"log_every": 1})
        train(toy_job(tmp_path / name, config, **settings), kind(Console(file=out, width=160)))
        assert f" {name}/s" in out.getvalue()
        assert ("tokens/s" in out.getvalue()) == ("perplexity" in out.getvalue()) == (name == "tokens")


@pytest.mark.parametrize("width", [40, 80])
def test_samples_are_wrapped_and_cut(width: int) -> None:
    """The bug: a validation text of a thousand characters was one line of the log."""
    words = " ".join(f"word{number}" for number in range(300))
    for text in ("short", words, "日本語" * 100, "x" * 999, "one\ntwo\n\nfour"):
        lines = wrapped(text, width)
        assert len(lines) <= 4 and all(cell_len(line) <= width for line in lines)
        whole = "".join(lines).replace(" ", "")
        shown = whole.removesuffix("…")
        assert "".join(text.split()).startswith(shown) and (whole == shown) == (
            len(shown) == len("".join(text.split()))
        )


@pytest.mark.parametrize("kind", [PlainLines, LiveTable])
def test_long_samples_do_not_fill_the_log(tmp_path: Path, kind: type[PlainLines]) -> None:
    words = " ".join(f"word{number}" for number in range(300))
    shown = [(words, f"out {words}", f"right {words}")]
    out, sampled = io.StringIO(), lambda model: Validation({"loss": 1.0}, shown)
    train(toy_job(tmp_path / "run", validate=sampled), kind(Console(file=out, width=60)))
    lines = [line for line in out.getvalue().splitlines() if "word" in line]
    assert lines and all(len(line) <= 60 for line in lines)
    assert "word9" in out.getvalue() and "word99" not in out.getvalue() and "…" in out.getvalue()


@dataclass
class Keeps(Show):
    """Every event; at step `stop` the person types Ctrl-C."""

    stop: int = -1
    events: list[Any] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Progress) and event.step == self.stop:
            os.kill(os.getpid(), signal.SIGINT)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class SlowBatches(ToyBatches):
    """Their own clock, on which each batch takes 0.35 seconds."""

    now = 0.0

    def get(self, epoch: int, index: int) -> ToyBatch:
        self.now += 0.35
        return super().get(epoch, index)

    def monotonic(self) -> float:
        return self.now


def test_the_first_loss_and_the_expected_time_come_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: nothing was shown before a hundred updates (45 s) were done, and on a resume no expected time at all."""
    slow = SlowBatches()
    monkeypatch.setattr(regard.training.job, "time", slow)
    monkeypatch.setattr(regard.training.stopwatch, "time", slow)
    config = CONFIG.model_copy(update={"steps": 300, "validate_every": 200, "log_every": 100, "average": 0})
    show, again = Keeps(stop=100), Keeps()
    train(toy_job(tmp_path, config, batches=slow), show)
    assert [event.step for event in show.of(Progress)[:3]] == [1, 3, 5]  # two batches an update: 0.7 s
    (found,) = show.of(Forecast)
    assert show.events.index(found) < show.events.index(show.of(Progress)[2])
    assert found.seconds == pytest.approx(300 * 0.7) and 0.7 * found.speed < 20 < 40 * 0.7 * found.speed
    assert max(np.diff([event.seconds for event in show.of(Progress)])) < 5
    train(toy_job(tmp_path, config, batches=slow), again, resume=True)
    assert again.of(Note)[0].text == "going on at step 100" and again.of(Progress)[0].step == 101
    (found,) = again.of(Forecast)
    assert found.seconds == pytest.approx(300 * 0.7) and again.of(Progress)[0].left == pytest.approx(199 * 0.7)
    kinds = [type(event) for event in again.events if not isinstance(event, (Note, Progress, Working))]
    assert kinds == [Forecast, Validated, Checkpoint, Validated, Checkpoint, End]


def test_lines_are_five_seconds_apart_at_most_also_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[float]()
    monkeypatch.setattr("regard.training.show.time.monotonic", lambda: now[0])
    show = PlainLines(Console(file=io.StringIO(), width=160))
    monkeypatch.setattr(show.console, "print", lambda *_, **__: said.append(now[0]))
    for second in range(3600):
        now[0] = float(second)
        show(Progress(second, 9999, 0, {"loss": 1.0}, "tokens", 7, 7.0, float(second), 9.0, 0.1))
    assert said[0] <= 5 and said[-1] >= 3594 and 3 <= max(np.diff(said)) <= 5


def test_long_work_is_never_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe: named after a second, then again and again, with its rate and the time left where they are known."""
    monkeypatch.setattr("regard.training.show.SOON", 0.02)
    monkeypatch.setattr("regard.training.show.LATE", 0.04)
    out = io.StringIO()
    with PlainLines(Console(file=out, width=160)) as show:
        show(Working("encoding", 10, 40))
        time.sleep(0.3)
        show(Working("reading"))
        time.sleep(0.3)
    said = out.getvalue().splitlines()
    assert [line for line in said if line.startswith("encoding: 10 of 40 · ") and line.endswith(" left")]
    assert len([line for line in said if line.startswith("reading …")]) >= 2


# -- the picture of a run ----------------------------------------------------------------------------------------------


def picture(*metrics: dict[str, float | None]) -> Figure:
    train_row = {"kind": "train", "step": 1, "loss": 3.0, "learning_rate": 0.1}
    valid = [{"kind": "valid", "step": n, "loss": 3.0 / n, **found, "best": True} for n, found in enumerate(metrics, 1)]
    return draw([train_row, *valid])


def test_the_picture_of_a_language_model() -> None:
    figure = picture({"perplexity": 20.0, "bits_per_byte": 2.5}, {"perplexity": 4.5, "bits_per_byte": 1.25})
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "bits per byte", "learning rate"]
    assert list(figure.axes[1].get_lines()[0].get_ydata()) == [2.5, 1.25]
    assert [text.get_text() for text in figure.axes[1].texts] == ["1.250"]  # the least is best


def test_the_picture_of_a_classifier() -> None:
    figure = picture({"accuracy": 80.0, "f1": 70.0}, {"accuracy": 75.0, "f1": 74.0})
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "score", "learning rate"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["75.0", "74.0"]  # of the weights that were chosen
    above, below = figure.axes[1].texts
    assert above.get_va() == "bottom" and below.get_va() == "top"  # lines that lie close do not hide their numbers


def test_a_measure_that_nobody_knew_has_a_panel() -> None:
    figure = picture({"bleu": 3.0, "new_thing": 0.5, "gone": None}, {"bleu": 4.0, "new_thing": math.nan})
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "BLEU", "new thing", "learning rate"]
    assert not figure.axes[2].texts  # whether more of it is better is not known


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_is_cut_back_and_never_lengthened(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.write({"kind": "train", "step": 1, "why": "a line separator \u2028 ends no row"})
    sizes = log.sizes()
    log.write({"kind": "train", "step": 2})
    log.cut_back(sizes)
    assert [row["step"] for row in log.rows()] == [1] and log.rows()[0]["why"].count("\u2028") == 1
    log.cut_back({"log.jsonl": 10_000, "clock.jsonl": 0})
    assert (tmp_path / "log.jsonl").stat().st_size == sizes["log.jsonl"]
    log.cut_back({})
    assert log.rows() == []
