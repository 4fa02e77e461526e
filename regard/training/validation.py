"""The result of a validation, and when it is better than the best so far.

A score decides only where it says something: it must differ from the best so far by more than its own standard error on
these validation examples (the one-standard-error rule of Breiman et al. 1984, section 3.4.3), and BLEU below 5 counts as 5,
for there nearly every match is a common word at the right place by chance. Otherwise the lower loss is better. Patience
counts the validations since the best by this rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte", "nats", "bits_per_dimension", "ter")
FLOORS = {"bleu": 5.0, "bleu4": 5.0}  # scores below these do not tell two models apart


@dataclass(frozen=True)
class Validation:
    """The result of a validation: metrics, among them `loss`, and a few examples for a person to read."""

    metrics: dict[str, float]
    samples: list[tuple[str, str, str]] = field(default_factory=list)  # source, output, reference
    errors: dict[str, float] = field(default_factory=dict)  # standard errors of scores, in their own units


@dataclass(frozen=True)
class Selection:
    """Whether a validation is better than the best so far, the metric that decided, and why it was not the one asked for."""

    better: bool
    by: str
    why: str = ""


def choose(found: Validation, best: Mapping[str, float], select: str) -> Selection:
    """Whether `found` is better than the metrics of the best so far, by `select` or, where that says nothing, by the loss."""
    if not best:
        return Selection(True, select)
    value, before = found.metrics[select], best[select]
    if not math.isfinite(value) or not math.isfinite(before):  # what is not a number is worse than any
        return Selection(math.isfinite(value), select)
    floor, error = FLOORS.get(select, -math.inf), found.errors.get(select, 0.0)
    sign = -1 if select in LOWER_IS_BETTER else 1
    gain = sign * (max(value, floor) - max(before, floor))
    if select == "loss" or abs(gain) > error:
        return Selection(gain > 0, select)
    why = f"{select} differs by less than its standard error of {error:.2g}" if error else f"{select} is equal"
    if max(value, before) < floor:
        why = f"{select} counts from {floor:g} on"
    return Selection(_less(found.metrics["loss"], best["loss"]), "loss", why)


def _less(loss: float, than: float) -> bool:
    return loss < than or (math.isnan(than) and not math.isnan(loss))


def share_error(percent: float, count: int) -> float:
    """The standard error, in percent, of a share of `count` examples; never zero (Agresti & Coull 1998: two more of each)."""
    share = (percent / 100 * count + 2) / (count + 4)
    return 100 * math.sqrt(share * (1 - share) / (count + 4))


def interval_error(interval: tuple[float, float]) -> float:
    """The standard error of a score from its 95% interval."""
    return (interval[1] - interval[0]) / (2 * 1.96)
