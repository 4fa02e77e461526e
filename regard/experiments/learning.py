"""Training inside experiments: a run of a task in a folder that is thrown away, or a small model on made batches.

Both go through the project's own loop; curves and bundles of such runs are not kept, only what was measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.config import Tables, merge
from regard.data.pairs import read_pairs
from regard.errors import RegardError
from regard.evaluate.translation import exact_match
from regard.experiments.study import Report, Row
from regard.models.loss import Loss
from regard.models.loss import Part as LossPart
from regard.tasks.configure import run_config
from regard.tasks.recipe import prepare
from regard.tasks.trained import load_model
from regard.training.config import TrainConfig
from regard.training.events import Event, Progress
from regard.training.job import Job, Outcome
from regard.training.show import BothListeners, Show
from regard.training.timed import train
from regard.training.validation import Validation

LEARNING = 0.9  # share of a part that is spent learning; the rest is the test


def train_run(task: str, values: Tables, seed: int, test: Callable[[Any], Row], report: Report) -> Row:
    """Train a model of a task and give what `test` says of it, with its validation loss, size and time.

    One that diverges gives `failed`, the reason, instead.
    """
    config = run_config(task, merge(values, {"train": {"seed": seed}}))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepared = prepare(config, folder, data_root=None, resume=False)
        started = time.process_time()
        try:
            outcome = _run(prepared.job, report)
        except RegardError as error:
            return {"failed": str(error)}
        spent = time.process_time() - started
        predictor = load_model(folder / "best", "cpu")
        return {
            **test(predictor),
            "validation_loss": outcome.metrics["loss"],
            "parameters": sum(each.numel() for each in predictor.model.parameters()),
            "training_seconds": round(spent, 2),
            "milliseconds_a_step": round(1000 * spent / outcome.progress.step, 2),
        }


def test_pairs(name: str, count: int, translator: Any) -> Row:
    """Exactly right answers, in percent, and the negative log-likelihood of a token, on unseen pairs."""
    pairs = _read(name)[:count]
    scores = translator.score(pairs)
    outputs = [each.text for each in translator.translate([source for source, _ in pairs])]
    return {
        "exact": exact_match(outputs, [target for _, target in pairs]),
        "nll": -sum(each.log_probability for each in scores) / sum(each.tokens for each in scores),
    }


@cache
def _read(name: str) -> list[tuple[str, str]]:
    """The pairs of a built-in test set, made once for all models of an experiment."""
    return read_pairs([name], ("source", "target"))


def _run(job: Job, report: Report) -> Outcome:
    def listen(event: Event) -> None:
        if isinstance(event, Progress):
            report(LEARNING * event.done)

    outcome = train(job, BothListeners(Show(), listen))
    if outcome.reason == "interrupted":  # the loop keeps what was learned when a person stops it; here nothing is kept
        raise KeyboardInterrupt
    return outcome


@dataclass(frozen=True)
class Examples:
    """Inputs with one right class each, or one at each of several places; -1 is asked of nobody."""

    inputs: Tensor  # (B, T) ids or (B, T, D) vectors
    wanted: Tensor  # (B,) or (B, T)

    @property
    def counts(self) -> dict[str, int]:
        asked = int((self.wanted >= 0).sum())
        return {"loss": asked, "nll": asked, "correct": asked}

    def to(self, device: torch.device | str) -> Examples:
        return Examples(self.inputs.to(device), self.wanted.to(device))


Draw = Callable[[torch.Generator], Examples]  # fresh examples


@dataclass(frozen=True)
class MadeBatches:
    """A source of batches without end: batch i is a pure function of (seed, i)."""

    draw: Draw
    seed: int

    def count(self, epoch: int) -> int:
        return 2**31

    def get(self, epoch: int, index: int) -> Examples:
        return self.draw(torch.Generator().manual_seed(1_000_003 * self.seed + index))

    def padding_share(self) -> float:
        return 0.0


class Answering(nn.Module):
    """A network that gives logits, as a model that the loop trains: cross-entropy and correct answers."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Examples) -> Loss:
        logits = self.network(batch.inputs)
        asked = batch.wanted >= 0
        logits, wanted = logits[asked], batch.wanted[asked]
        loss = cross_entropy(logits, wanted, reduction="sum")
        correct = (logits.argmax(dim=-1) == wanted).sum()
        count = len(wanted)
        return Loss(
            {
                "loss": LossPart(loss, count),
                "nll": LossPart(loss.detach(), count, 0.0),
                "correct": LossPart(correct, count, 0.0),
            }
        )


TESTED = 8  # batches of a test
TEST_SEED = 10_000  # far from those of training


def train_network(
    make: Callable[[], nn.Module], draw: Draw, train_config: Tables, seed: int, report: Report
) -> tuple[nn.Module, Row]:
    """Train a network on fresh examples; the network, and its accuracy (in percent) on others."""
    torch.manual_seed(seed)
    model = Answering(make())
    steps = int(train_config["steps"])
    config = TrainConfig.model_validate(
        {
            "smoothing": 0.0,
            "average": 0,
            "patience": 0,
            "validate_every": steps,
            "schedule": "linear",
            **train_config,
            "seed": seed,
        }
    )
    validate = partial(_validate, draw)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), config, model, 1, MadeBatches(draw, seed), validate, save=lambda *_: None)
        outcome = _run(job, report)
    about = {
        "accuracy": outcome.metrics["accuracy"],
        "loss": outcome.metrics["loss"],
        "parameters": sum(each.numel() for each in model.parameters()),
        "training_seconds": round(time.process_time() - started, 2),
    }
    return model.network, about


def _validate(draw: Draw, model: nn.Module) -> Validation:
    sums = {"nll": 0.0, "correct": 0.0, "count": 0.0}
    for batch in range(TESTED):
        parts = model(draw(torch.Generator().manual_seed(TEST_SEED + batch))).parts
        sums["nll"] += float(parts["nll"].sum)
        sums["correct"] += float(parts["correct"].sum)
        sums["count"] += parts["nll"].count
    return Validation({"loss": sums["nll"] / sums["count"], "accuracy": 100 * sums["correct"] / sums["count"]})


@torch.no_grad()
def accuracy_on(network: nn.Module, draw: Draw) -> float:
    """Percent of right answers on unseen examples."""
    network.eval()
    return _validate(draw, Answering(network)).metrics["accuracy"]
