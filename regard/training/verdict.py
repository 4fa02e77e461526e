"""A verdict on a run that has ended: whether its model is of use, why it ended, and what to do next. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from regard.training.config import TrainConfig
from regard.training.outlook import SCORES, curve_of, gain_of_longer, half_way, longer_by, more_of
from regard.training.show import number, range_of
from regard.training.validation import FLOORS, LOWER_IS_BETTER

Row = Mapping[str, Any]
State = Literal["not yet useful", "still learning fast", "overfitting", "good"]

GUESSED = 0.75  # of the first loss: about what is left for whoever only knows how frequent each token is
CHANCE = 0.95  # of the first loss of a classifier: about what is left for whoever answers by chance
OVERFIT, AFTER = 1.02, 2  # times the lowest validation loss at the end, and fewest validations since that
GUESSES = {
    "majority": "the most frequent label",
    "latest": "the answer that the story names last",
}  # accuracies of whoever has not learned anything, where a validation tells them
FAST = {"loss": 0.03, "score": 1.0}  # a gain by more time that is worth it: a share of the loss, points of a score


@dataclass(frozen=True)
class Verdict:
    """The state of a run that has ended, and why it is said to be in it."""

    state: State
    why: str
    metric: str
    value: float
    gain: float  # of the metric, that `more` would give; positive is better
    more: str  # as "20 min more"
    learning: bool  # whether more time is the thing to give it
    forecast: tuple[float, float] | None = None  # of the metric at the end, half way

    def data(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "why": self.why,
            "metric": self.metric,
            "value": self.value,
            "more": self.more,
            "gain": self.gain,
            "forecast": None if self.forecast is None else list(self.forecast),
        }

    def __str__(self) -> str:
        return f"{self.state}: {self.why}"

    @property
    def came(self) -> str:
        """The forecast beside what came: "21.0 to 24.0, came 22.8"; empty if there was none."""
        if self.forecast is None:
            return ""
        return f"{self.metric} {range_of(self.metric, *self.forecast)}; came {number(self.metric, self.value)}"


def verdict_on(
    rows: Sequence[Row],
    config: TrainConfig,
    metrics: Mapping[str, float],
    first_loss: float | None = None,
    fresh: bool = True,
) -> Verdict:
    """The verdict on a run that ended with these metrics of its best weights, from its log.

    `first_loss` is that of its first update; it tells something only of a model that began with `fresh` weights.
    """
    metric = config.select if config.select in (*SCORES, *FAST) else "loss"
    value, curve = metrics[metric], curve_of(rows, metric)
    gain = 0.0 if curve is None else gain_of_longer(curve, value, longer_by(config))
    fast = curve is None or gain >= (FAST["loss"] * value if metric == "loss" else FAST["score"])
    since = overfitting_since(rows)
    told = f"{metric} {number(metric, value)}"
    less = f"{metric} less" if metric in LOWER_IS_BETTER else f"{metric} more"
    more = f"{more_of(config)} would give about {number(metric, gain)} {less}"
    useless = not_useful(metrics, _errors(rows), first_loss if fresh else None)
    state: State
    if useless:
        state, why = "not yet useful", useless
    elif since is not None:
        losses = [loss for _, loss in _losses(rows)]
        rose = f"from {min(losses):.3f} to {losses[-1]:.3f}"
        state, why = "overfitting", f"since step {since:,} the validation loss rose, {rose}"
    elif fast:
        state = "still learning fast"
        why = f"{told} at its only validation" if curve is None else f"{told}, and {more}"
    else:
        state, why = "good", f"{told}, and {more}"
    learning = (fast or bool(useless and gain > 0)) and since is None
    return Verdict(state, why, metric, value, gain, more_of(config), learning, _forecast(rows, metric))


def not_useful(metrics: Mapping[str, float], errors: Mapping[str, float], first_loss: float | None) -> str:
    """Why a model with these validation metrics is of no use yet; empty if it is of use."""
    for name, floor in FLOORS.items():
        if metrics.get(name, floor) < floor:
            return f"{name} {metrics[name]:.1f} is below {floor:g}, where matches are chance"
    if metrics.get("exact") == 0:
        return "not one answer is exact"
    if "accuracy" in metrics:
        return _by_chance(metrics, errors.get("accuracy", 0.0), first_loss)
    if first_loss is not None and metrics["loss"] > GUESSED * first_loss and not FLOORS.keys() & metrics.keys():
        return f"loss {metrics['loss']:.3f} is near that of guessing by how frequent tokens are ({first_loss:.3f} at first)"
    return ""


def _by_chance(metrics: Mapping[str, float], error: float, first_loss: float | None) -> str:
    accuracy, known = metrics["accuracy"], {name: metrics[name] for name in GUESSES if name in metrics}
    if known:
        best = max(known, key=lambda name: known[name])
        near = accuracy <= known[best] + 2 * error
        than = "is no better than" if accuracy < known[best] - 2 * error else "is that of"
        return f"accuracy {accuracy:.1f} {than} always giving {GUESSES[best]} ({known[best]:.1f})" if near else ""
    if first_loss is not None and metrics["loss"] > CHANCE * first_loss:
        return f"accuracy {accuracy:.1f}, with a loss like that of guessing ({first_loss:.3f} at first)"
    return ""


def overfitting_since(rows: Sequence[Row]) -> int | None:
    """The step of the lowest validation loss, if it has risen clearly since then."""
    points = _losses(rows)
    if len(points) <= AFTER:
        return None
    lowest = min(range(len(points)), key=lambda index: points[index][1])
    later = [value for _, value in points[lowest + 1 :]]
    rose = len(later) >= AFTER and later[-1] > OVERFIT * points[lowest][1]
    return int(points[lowest][0]) if rose else None


def _losses(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Step and loss of each validation whose loss is a number."""
    found = [(row["step"], row["loss"]) for row in rows if row.get("kind") == "valid"]
    return [(step, loss) for step, loss in found if loss is not None and math.isfinite(loss)]


def _errors(rows: Sequence[Row]) -> Mapping[str, float]:
    """The standard errors of the last validation that has some."""
    return next((row["errors"] for row in reversed(rows) if row.get("kind") == "valid" and "errors" in row), {})


def _forecast(rows: Sequence[Row], metric: str) -> tuple[float, float] | None:
    """The interval that was foretold for the end about half way."""
    row = half_way(rows)
    if row is None or metric not in row["expected"]:
        return None
    low, high = row["expected"][metric]
    return float(low), float(high)
