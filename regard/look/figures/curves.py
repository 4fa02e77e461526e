"""The story of a training run in one picture: loss, score and learning rate over the optimiser's steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator

from regard.errors import RegardError
from regard.files import write_bytes
from regard.look.figures.sheet import DPI, TEXT, render, tidy
from regard.training.outlook import half_way

Row = Mapping[str, Any]

TRAINING, VALIDATION, RATE = "#6a9fd0", "#c44e00", "#707880"
SCORES = {  # out of 100, so that they share a panel: the name of each, whether more is better, its colour
    "bleu": ("BLEU", True, "#1b7f5c"),
    "bleu4": ("BLEU-4", True, "#1b7f5c"),
    "chrf": ("chrF", True, "#7a4fa3"),
    "ter": ("TER", False, "#9c6b1f"),
    "exact": ("exact match", True, "#b03060"),
    "accuracy": ("accuracy", True, "#3d6f8e"),
    "win_rate": ("win rate", True, "#1b7f5c"),
    "f1": ("F1", True, "#5c5c5c"),
    "majority": ("always the most frequent", True, "#b0b0b0"),
    "latest": ("always the answer named last", True, "#909090"),
    "wer": ("WER", False, "#8a8a00"),
}
MEASURES = {
    "bits_per_byte": ("bits per byte", False),
    "nats": ("nats a picture", False),
    "kl": ("KL (nats)", None),
    "reward": ("learned reward", None),
    "rule": ("reward by rule", True),
}  # on a scale of their own, a panel each
OTHER = "#3d6f8e"
ELSEWHERE = ("step", "loss", "perplexity", "bits_per_dimension", *SCORES)  # the loss on another scale, too


def training_curves(log: Sequence[Row], path: str | Path) -> Path:
    """Draw the rows of a run's log, {"kind": "train" or "valid", "step": ..., "loss": ...}, to a PNG.

    A panel is there if the log has something for it. A value that is null, NaN or infinite leaves a gap in its line.
    Larger dots with numbers are what the chosen weights had: not always the highest score, which may be luck.
    """
    return write_bytes(path, render(draw(log), "png"))


def draw(log: Sequence[Row]) -> Figure:
    """The figure of a log: panels one above the other, on one axis of steps."""
    panels = [panel for panel in (LOSS, TOGETHER, *map(_alone, measures(log)), RATES) if panel.has_something(log)]
    if not panels:
        raise RegardError(f"no loss, score or learning rate in the {len(log)} rows of the log; nothing to draw")
    heights = [panel.height for panel in panels]
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(7.2, 0.6 + sum(heights)), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        panel.draw(axes, log)
        tidy(axes)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    grid[-1].set_xlabel("step", color=TEXT, fontsize=9.5)
    grid[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[-1].xaxis.set_major_formatter(EngFormatter(sep=""))  # 12k
    figure.align_ylabels(grid)
    return figure


def series(log: Sequence[Row], kind: str, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the rows of one kind that have the key, NaN for a gap; empty if there are only gaps."""
    rows = [row for row in log if row.get("kind") == kind and key in row]
    values = np.array([_number(row[key]) for row in rows])
    steps = np.array([float(row["step"]) for row in rows])
    return (steps, values) if np.isfinite(values).any() else (np.empty(0), np.empty(0))


def measures(log: Sequence[Row]) -> list[str]:
    """Names of measures of the validations without a place in the panels of loss and scores, in the order of the rows."""
    found: dict[str, None] = {}
    for row in log:
        if row.get("kind") == "valid":
            found |= dict.fromkeys(key for key, value in row.items() if isinstance(value, float))
    return [key for key in found if key not in ELSEWHERE]


def _number(value: Any) -> float:
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else math.nan  # infinity is a gap too: it would flatten everything else


def _draw_loss(axes: Axes, log: Sequence[Row]) -> None:
    steps, losses = series(log, "train", "loss")
    if len(steps):
        axes.plot(steps, losses, color=TRAINING, linewidth=1.1, marker=_marker(losses), markersize=3, label="training")
    steps, losses = series(log, "valid", "loss")
    if len(steps):
        axes.plot(steps, losses, color=VALIDATION, linewidth=1.6, marker="o", markersize=3.5, label="validation")
        _mark(axes, marked(log, "loss", more_is_better=False), VALIDATION, digits=2)
    _foretell(axes, log, "loss", VALIDATION)
    axes.set_ylabel("loss")
    axes.legend(frameon=False, fontsize=9, labelcolor=TEXT, loc="upper right")


def _draw_scores(axes: Axes, log: Sequence[Row]) -> None:
    present = {key: found for key in SCORES if len((found := series(log, "valid", key))[0])}
    highest = max(present, key=lambda key: np.nanmax(present[key][1]))
    for key, (steps, values) in present.items():
        name, more_is_better, color = SCORES[key]
        axes.plot(steps, values, color=color, linewidth=1.6, marker="o", markersize=3.5, label=name)
        _mark(axes, marked(log, key, more_is_better), color, digits=1, below=key != highest)
        _foretell(axes, log, key, color)
    axes.margins(y=0.16)
    names = [SCORES[key][0] for key in present]
    axes.set_ylabel(names[0] if len(names) == 1 else "score")
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=9, labelcolor=TEXT, loc="lower right", ncols=len(names))


def _draw_measure(axes: Axes, log: Sequence[Row], key: str) -> None:
    """A line of its own; what the chosen weights had is marked where it is known what is better."""
    steps, values = series(log, "valid", key)
    name, more_is_better = MEASURES.get(key, (key.replace("_", " "), None))
    axes.plot(steps, values, color=OTHER, linewidth=1.6, marker="o", markersize=3.5)
    if more_is_better is not None:
        _mark(axes, marked(log, key, more_is_better), OTHER, digits=3)
    _foretell(axes, log, key, OTHER)
    axes.margins(y=0.16)
    axes.set_ylabel(name)


def _draw_rate(axes: Axes, log: Sequence[Row]) -> None:
    steps, rates = series(log, "train", "learning_rate")
    axes.plot(steps, rates, color=RATE, linewidth=1.3, marker=_marker(rates), markersize=3)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("learning rate")
    axes.yaxis.set_major_formatter(lambda rate, _: _short(rate))


def _short(rate: float) -> str:
    """0.00025 as 2.5e-4."""
    if rate == 0 or abs(rate) >= 0.01:
        return f"{rate:.3g}"
    digits, exponent = f"{rate:.2e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def _marker(values: np.ndarray) -> str:
    """Dots on a short line: a point between two gaps has no line to show it."""
    return "o" if len(values) < 40 else ""


def chosen(log: Sequence[Row]) -> Row | None:
    """The validation whose weights were chosen, or that of the average of the last ones; None if no row says."""
    return next(
        (row for row in reversed(log) if row.get("kind") in ("valid", "average", "blend") and row.get("best")), None
    )


def marked(log: Sequence[Row], key: str, more_is_better: bool) -> tuple[float, float] | None:
    """Step and value of the chosen weights; of the best value where the log does not say which were chosen."""
    row = chosen(log)
    if row is not None:
        value = _number(row.get(key))
        return None if math.isnan(value) else (float(row["step"]), value)
    steps, values = series(log, "valid", key)
    best = int(np.nanargmax(values) if more_is_better else np.nanargmin(values))
    return float(steps[best]), float(values[best])


def _mark(axes: Axes, point: tuple[float, float] | None, color: str, *, digits: int, below: bool = False) -> None:
    """A larger dot, with its number above it, or below, where another line's number may be above."""
    if point is None:
        return
    place, side = ((0, -6), "top") if below else ((0, 6), "bottom")
    axes.plot(*point, marker="o", markersize=6.5, color=color, markeredgecolor="white", markeredgewidth=1.2)
    number = f"{point[1]:.{digits}f}"
    axes.annotate(
        number, point, xytext=place, textcoords="offset points", ha="center", va=side, fontsize=9, color=color
    )


def _foretell(axes: Axes, log: Sequence[Row], key: str, color: str) -> None:
    """A light wedge from the validation about half way to the interval that was foretold from there for the end."""
    row = half_way(log)
    if row is None or key not in row["expected"]:
        return
    steps, values = series(log, "valid", key)
    start = values[steps == row["step"]]
    if not len(start) or not np.isfinite(start[0]):
        return
    (low, high), end = row["expected"][key], row["step"] / row["share"]
    axes.fill_between([row["step"], end], [start[0], low], [start[0], high], color=color, alpha=0.13, linewidth=0)
    axes.plot([end, end], [low, high], color=color, alpha=0.35, linewidth=2.5, solid_capstyle="butt", zorder=1)


@dataclass(frozen=True)
class CurvePanel:
    """The content of a panel: (kind of row, key) of each line, its height in inches, and who draws it."""

    lines: tuple[tuple[str, str], ...]
    height: float
    draw: Callable[[Axes, Sequence[Row]], None]

    def has_something(self, log: Sequence[Row]) -> bool:
        return any(len(series(log, kind, key)[0]) for kind, key in self.lines)


def _alone(key: str) -> CurvePanel:
    return CurvePanel((("valid", key),), 1.8, partial(_draw_measure, key=key))


LOSS = CurvePanel((("train", "loss"), ("valid", "loss")), 2.6, _draw_loss)
TOGETHER = CurvePanel(tuple(("valid", key) for key in SCORES), 1.8, _draw_scores)
RATES = CurvePanel((("train", "learning_rate"),), 1.2, _draw_rate)
