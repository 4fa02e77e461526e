"""What the training of a run cost: operations by layer, seconds, energy, money and CO2.

Operations are counted on some of the run's own training batches, where its data are still there, and are taken for all
that it learned from, in proportion to tokens (or texts, pictures). Validations are in its seconds and energy, and not in
its operations. Of a bundle alone, or a run whose data are gone, random inputs of its task stand for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError
from regard.models.operations import LayerOperations, by_layer, operations_of
from regard.runs import CONFIG, bundle_folder, read_run
from regard.tasks.recipe import some_batches
from regard.tasks.run import prepare_again
from regard.tasks.table import TASKS
from regard.tasks.trained import load_model
from regard.training.energy import Bill, Prices, bill
from regard.training.history import CLOCK, read_progress, rows_of

BATCHES = 8  # whose operations are counted


@dataclass(frozen=True)
class RunCost:
    """What a model costs to learn. Operations of a layer are of one unit: a token, a text, a picture."""

    run: str
    task: str
    kind: str
    parameters: int
    unit: str  # what is counted: "tokens", "texts"
    counted_on: str  # which batches
    layers: tuple[LayerOperations, ...]  # on `units`
    units: int
    learned: int  # units that the run learned from, in all passes; 0: a bundle does not tell
    steps: int
    bill: Bill | None  # None: a bundle does not tell how long it learned

    @property
    def forward(self) -> float:
        """Operations to predict one unit."""
        return sum(layer.forward for layer in self.layers) / self.units

    @property
    def training(self) -> float:
        """Operations to learn from one unit."""
        return sum(layer.training for layer in self.layers) / self.units

    @property
    def operations(self) -> float:
        """Operations of the whole training."""
        return self.training * self.learned

    def blocks(self) -> list[LayerOperations]:
        """The operations of each block on one unit, rounded."""
        found = by_layer(self.layers)
        return [
            LayerOperations(each.path, each.kind, round(each.forward / self.units), round(each.training / self.units))
            for each in found
        ]

    def data(self) -> dict[str, object]:
        """For JSON."""
        found = {name: value for name, value in asdict(self).items() if name not in ("layers", "bill")}
        return {
            **found,
            "forward": self.forward,
            "training": self.training,
            "operations": self.operations,
            "rate": None if self.bill is None else self.operations / max(1e-9, self.bill.seconds),
            "layers": [{**asdict(each), "share": _share(each, self.layers)} for each in self.layers],
            "bill": None if self.bill is None else self.bill.data(),
        }


def _share(layer: LayerOperations, layers: Sequence[LayerOperations]) -> float:
    return layer.training / max(1, sum(each.training for each in layers))


def cost_of(run: str | Path, prices: Prices | None = None, device: str = "cpu") -> RunCost:
    """What a run or a bundle costs; nothing of it is written."""
    folder = Path(run)
    is_run = (folder / CONFIG).exists()
    model = load_model(bundle_folder(run), device)
    batches, unit, counted_on = _own_batches(folder, device) if is_run else ([], "", "")
    if not batches:
        subject = TASKS[model.config.task].make_subject.of(model.bundle)
        if not subject.learns:
            raise RegardError(f"{run} gives vectors: there is no loss to learn from, and nothing to count")
        batches, unit, counted_on = [subject.batch(model.model)], "units of the loss", "random inputs of its task"
    layers = operations_of(model.model, [batch.to(torch.device(device)) for batch in batches])
    progress = read_progress(folder) if is_run else {}
    seconds = float(progress.get("seconds", 0.0))
    return RunCost(
        str(run), model.config.task, model.config.model.kind,
        sum(parameter.numel() for parameter in model.model.parameters()), unit, counted_on, tuple(layers),
        sum(int(dict(batch.counts)["loss"]) for batch in batches), int(progress.get("tokens", 0)),
        int(progress.get("step", 0)),
        bill(seconds, _threads(folder), prices, measured_joules(folder, seconds)) if seconds else None,
    )  # fmt: skip


def _own_batches(folder: Path, device: str) -> tuple[list[Any], str, str]:
    """Some of the training batches of a run, what its loss counts, and where they come from; none if its data are gone."""
    try:
        job = prepare_again(folder, device).job
    except (RegardError, OSError):
        return [], "", ""
    batches = list(some_batches(job.batches, BATCHES))
    return batches, job.unit, f"{len(batches)} of its own training batches"


def _threads(folder: Path) -> int:
    """The threads that a run was trained with; those of torch where it does not say."""
    made = read_run(folder).get("made") or {}
    return int(made.get("threads") or torch.get_num_threads())


def measured_joules(folder: Path, seconds: float) -> float | None:
    """The joules that a run's clock noted, with what came after its last row in proportion; None where some are missing."""
    rows = rows_of(folder / CLOCK)
    noted = [row.get("joules") for row in rows]
    if not rows or any(each is None for each in noted) or not rows[-1].get("seconds"):
        return None
    return math.fsum(map(float, noted)) * seconds / float(rows[-1]["seconds"])  # type: ignore[arg-type]
