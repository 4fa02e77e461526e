"""Fine-tuning: how much of the weights that a run started from stays in them, and what it gained and lost.

Averaging the weights before and after fine-tuning often keeps most of what was gained and of what was there before
(Wortsman et al. 2022, WiSE-FT): weights = (1 - b) new + b old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.files import JSON, read_json, write_json
from regard.training.state import weights_in_place
from regard.training.validation import Validation

TABLE = "finetune.json"  # file of a run: what was gained and lost
START = "start.safetensors"  # file of a run: the weights that it started from
TUNED = "tuned"  # bundle of a run: its best weights before they were blended with the old ones
BLEND = "blend of "  # begins the name of blended weights
NEW, OLD = "new", "old"  # names of sides
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)  # of the old weights, from which one is chosen
FORGOTTEN = 0.05  # of the perplexity on old data, by which it may rise: 0.9 BLEU of Multi30k (docs/results.md)
NORMAL = 1.96  # standard errors on each side of a 95% interval


@dataclass(frozen=True, eq=False)
class Side:
    """Unseen data of one sort, new or old: how it is validated, and small batches for the error of its loss."""

    name: str  # NEW or OLD
    validate: Callable[[nn.Module], Validation]
    batches: Callable[[], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class FineTuning:
    """The model that a run started from, and the data on which both are compared."""

    start: str
    weights: Callable[[], dict[str, Tensor]]
    sides: tuple[Side, ...]


def blended(new: Mapping[str, Tensor], old: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1 - share) new + share old, computed in float64 as new + share (old - new): equal weights stay equal to the bit."""
    found = {}
    for name, tensor in new.items():
        if tensor.is_floating_point():
            wide = tensor.double()
            found[name] = (wide + share * (old[name].double() - wide)).to(tensor.dtype)
        else:  # a count has no mean
            found[name] = tensor
    return found


def choose_share(model: nn.Module, new: Mapping[str, Tensor], tuning: FineTuning) -> float:
    """The smallest share of the old weights with which little of the old is forgotten (`FORGOTTEN`).

    If there is none, or no old data to tell by, the share with the lowest loss on unseen data, the mean over new and old.
    """
    old = tuning.weights()
    known = next((side for side in tuning.sides if side.name == OLD), None)
    most = math.inf if known is None else _mean_loss(model, old, known) + math.log1p(FORGOTTEN)
    losses = {}
    for share in SHARES:
        weights = blended(new, old, share)
        found = {side.name: _mean_loss(model, weights, side) for side in tuning.sides}
        if known is not None and found[OLD] <= most:
            return share
        losses[share] = float(np.mean(list(found.values())))
    return min(SHARES, key=lambda share: losses[share])


def _mean_loss(model: nn.Module, weights: dict[str, Tensor], side: Side) -> float:
    with weights_in_place(model, weights):
        total, count = batch_losses(model, side.batches()).sum(axis=0)
    return float(total / count)


def batch_losses(model: nn.Module, batches: Iterable[Any]) -> np.ndarray:
    """The summed loss of each batch, and over how many tokens: (n, 2)."""
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        parts = [model(batch.to(device)).parts["nll"] for batch in batches]
    return np.array([(float(part.sum), float(part.count)) for part in parts])


# --- What was gained and lost


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95% interval; without one where a single batch cannot tell."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, value: float, error: float) -> Estimate:
        if not math.isfinite(error):
            return cls(value)
        return cls(value, value - NORMAL * error, value + NORMAL * error)


@dataclass(frozen=True)
class Change:
    """One metric on one sort of data: before fine-tuning, after it, and the difference."""

    data: str
    metric: str
    before: Estimate
    after: Estimate
    change: Estimate


def compare(
    model: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor], sides: Sequence[Side]
) -> list[Change]:
    """Every metric of every side, with the old weights and with the new ones.

    The change of the loss is measured batch by batch on the same data; that of a score adds both errors, and is wider than
    it need be.
    """
    rows = []
    for side in sides:
        seen = [_measured(model, dict(weights), side) for weights in (before, after)]
        (first, losses), (second, others) = seen
        rows.append(Change(side.name, "loss", _loss(losses), _loss(others), _loss_change(losses, others)))
        for metric in first.errors:
            errors = [first.errors[metric], second.errors.get(metric, math.nan)]
            values = [first.metrics[metric], second.metrics[metric]]
            then, now = (Estimate.of(value, error) for value, error in zip(values, errors, strict=True))
            rows.append(Change(side.name, metric, then, now, Estimate.of(values[1] - values[0], math.hypot(*errors))))
    return rows


def _measured(model: nn.Module, weights: dict[str, Tensor], side: Side) -> tuple[Validation, np.ndarray]:
    with weights_in_place(model, weights), torch.no_grad():
        model.eval()
        return side.validate(model), batch_losses(model, side.batches())


def _loss(losses: np.ndarray) -> Estimate:
    total, count = losses.sum(axis=0)
    return Estimate.of(total / count, _ratio_error(losses[:, 0], losses[:, 1]))


def _loss_change(before: np.ndarray, after: np.ndarray) -> Estimate:
    change, counts = after[:, 0] - before[:, 0], after[:, 1]
    return Estimate.of(float(change.sum() / counts.sum()), _ratio_error(change, counts))


def _ratio_error(sums: np.ndarray, counts: np.ndarray) -> float:
    """The standard error of Σ sums / Σ counts over batches (Cochran 1977, eq. 6.13)."""
    if len(sums) < 2:
        return math.nan
    residuals = sums - sums.sum() / counts.sum() * counts
    return float(np.sqrt(len(sums) / (len(sums) - 1) * (residuals**2).sum()) / counts.sum())


def write_table(folder: Path, start: str, share: float, rows: Sequence[Change]) -> None:
    told: list[JSON] = [_as_json(row) for row in rows]
    write_json(folder / TABLE, {"start": start, "blend": share, "rows": told})


def _as_json(row: Change) -> dict[str, JSON]:
    figures = {"before": row.before, "after": row.after, "change": row.change}
    values: dict[str, JSON] = {
        name: {"value": each.value, "low": each.low, "high": each.high} for name, each in figures.items()
    }
    return {"data": row.data, "metric": row.metric, **values}


def read_table(folder: Path) -> dict[str, Any] | None:
    """Gain and loss of a run against the model that it started from; None where it started from none."""
    found = read_json(folder / TABLE) if (folder / TABLE).exists() else None
    return found if isinstance(found, dict) else None
