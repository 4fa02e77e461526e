"""Several models in one figure: scores by length, learning over time, loss beyond the length of training, trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from regard.errors import RegardError
from regard.files import write_bytes
from regard.look.comparison import Bars, Column, Curve, LengthLine, SettingPanel
from regard.look.figures.sheet import DPI, QUIET, TEXT, legend, render, shown_name, style, tidy

SHORT = 2.0  # minutes; below, an axis counts seconds
MOST_LINES = 8  # texts that one figure tells apart
SPREAD, APART = 0.45, 0.08  # of a column: most that all points of it take, and between two of them


def draw_by_length(columns: Sequence[Column], models: Sequence[Bars], unit: str) -> Figure:
    """A line for each model over buckets of source length; joined inputs stand apart, to the right, with hollow marks."""
    if not columns or not models:
        raise RegardError("nothing to draw: there are no scores by length")
    figure = _figure(max(6.4, 1.1 + 0.95 * len(columns)), 4.1)
    axes = figure.subplots()
    plain = [place for place, column in enumerate(columns) if column.joined == 1]
    joined = [place for place, column in enumerate(columns) if column.joined > 1]
    for number, model in enumerate(models):
        shift = _shift(number, len(models))
        _draw_part(axes, plain, model, number, shift, hollow=False)
        _draw_part(axes, joined, model, number, shift, hollow=True)
    tidy(axes)
    axes.set_xticks(range(len(columns)), [_tick(column, bool(joined)) for column in columns])
    axes.set_xlim(-0.6, len(columns) - 0.4)
    top = min(100.0, 1.05 * max(max(model.highs) for model in models)) or 1.0
    axes.set_ylim(-0.02 * top, 1.02 * top)  # a mark at the edge is whole
    axes.set_ylabel("BLEU")
    axes.set_xlabel(f"length of the source in {unit} (n: sentences)", labelpad=6)
    if joined:
        _part_joined(axes, joined, has_plain=bool(plain))
    legend(figure, axes)
    return figure


def _draw_part(axes: Axes, places: list[int], model: Bars, number: int, shift: float, hollow: bool) -> None:
    """The points of some columns, each with its interval, joined by a line."""
    if not places:
        return
    values = np.array([model.values[place] for place in places])
    below = values - np.array([model.lows[place] for place in places])
    above = np.array([model.highs[place] for place in places]) - values
    look = style(number)
    line = axes.errorbar(
        np.array(places) + shift, values, yerr=np.maximum(0.0, [below, above]), linewidth=1.5, markersize=6,
        elinewidth=0.9, linestyle="--" if hollow else "-", label=None if hollow else shown_name(model.name), **look,
    )  # fmt: skip
    if hollow:
        line[0].set(markerfacecolor="white", markeredgewidth=1.4)


def _part_joined(axes: Axes, joined: list[int], has_plain: bool) -> None:
    """A ground of another shade under what is joined, with a word on it."""
    first = joined[0] - 0.5
    axes.axvspan(first, joined[-1] + 0.6, color="#f4f6f8", zorder=0, linewidth=0)
    if has_plain:
        axes.axvline(first, color="#c9d0d6", linewidth=0.8, linestyle=(0, (3, 3)))
    axes.annotate(
        "joined", (first, 1), xycoords=("data", "axes fraction"), xytext=(5, -4),
        textcoords="offset points", va="top", ha="left", fontsize=8.5, color=QUIET,
    )  # fmt: skip


def _tick(column: Column, two_lines: bool) -> str:
    """The range and how many sentences it has, at the same height in every column."""
    name = column.label if column.joined == 1 else f"{column.joined} joined\n{column.label}"
    gap = "\n\n" if two_lines and column.joined == 1 else "\n"
    return f"{name}{gap}n = {column.sentences:,}"


def _shift(number: int, count: int) -> float:
    return (number - (count - 1) / 2) * min(APART, SPREAD / count)


def draw_learning(curves: Sequence[Curve]) -> Figure:
    """BLEU and loss of the validations over minutes of training, a line for each model."""
    panels = [
        (key, label) for key, label in (("bleu", "validation BLEU"), ("loss", "validation loss")) if _has(curves, key)
    ]
    if not panels:
        raise RegardError("nothing to draw: no run has a validation in its log")
    longest = max((max(curve.minutes, default=0.0) for curve in curves), default=0.0)
    unit, factor = ("seconds", 60) if longest < SHORT else ("minutes", 1)
    figure = _figure(8.4, 3.7)
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (key, label) in zip(row, panels, strict=True):
        for number, curve in enumerate(curves):
            values = np.array(getattr(curve, key), dtype=float)
            if not len(values):  # its colour is its own in the other figures too
                continue
            marks = max(1, len(values) // 12)  # a mark on every point of a long line would be a rope
            axes.plot(
                factor * np.array(curve.minutes), values, linewidth=1.6, markersize=5, markevery=marks,
                label=shown_name(curve.name), markeredgecolor="white", markeredgewidth=0.6, **style(number),
            )  # fmt: skip
        tidy(axes)
        axes.set_ylabel(label)
        axes.set_xlabel(f"{unit} of training")
        axes.set_xlim(left=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.margins(y=0.08)
        if key == "bleu":
            axes.set_ylim(bottom=0)
    legend(figure, row[0])
    return figure


def _has(curves: Sequence[Curve], key: str) -> bool:
    return any(np.isfinite(np.array(getattr(curve, key), dtype=float)).any() for curve in curves)


def _figure(width: float, height: float) -> Figure:
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)
    figure.patch.set_edgecolor(TEXT)
    FigureCanvasAgg(figure)
    return figure


def save_lengths(lines: Sequence[LengthLine], path: Path) -> Path:
    """Write the figure as the suffix says, .png or .svg."""
    return write_bytes(path, render(draw_lengths(lines), path.suffix.lower()[1:]))


def draw_lengths(lines: Sequence[LengthLine]) -> Figure:
    """Left the loss by the length of the window, right where in the longest one predictions get worse or better."""
    if not any(np.isfinite(np.array(line.losses, dtype=float)).any() for line in lines):
        raise RegardError("nothing to draw: no model could read any of these lengths")
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(8.4, 3.9), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for number, line in enumerate(lines):
        _draw(left, line.times, line.losses, line.name, number)
        _draw(right, line.places, line.changes, line.name, number)
    for axes in (left, right):
        tidy(axes)
        axes.axvline(1, color=QUIET, linewidth=0.9, linestyle=(0, (3, 3)), zorder=1)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    _double(left, sorted({each for line in lines for each in line.times}))
    left.set_ylabel("loss")
    right.set_ylabel("change of the loss")
    right.axhline(0, color=QUIET, linewidth=0.9, zorder=1)
    left.set_xlabel("window, in contexts of training")
    right.set_xlabel("position in the longest window, in contexts")
    right.set_xlim(left=0)
    legend(figure, left)
    return figure


def _draw(axes: Axes, places: Sequence[float], losses: Sequence[float], name: str, number: int) -> None:
    axes.plot(
        places, losses, linewidth=1.6, markersize=5, label=shown_name(name),
        markeredgecolor="white", markeredgewidth=0.6, **style(number),
    )  # fmt: skip


def _double(axes: Axes, times: Sequence[float]) -> None:
    """Each doubling takes the same room, and each length that was tried has its number."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(times)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")


def draw_trials(panels: Sequence[SettingPanel], metric: str, rungs: Sequence[str]) -> Figure:
    """The score of each run of a search against each setting: a colour for each rung, a ring around the best.

    Failed runs are crosses on the lower edge. A dotted line stands where the rules had chosen.
    """
    if not panels:
        raise RegardError("nothing to draw: the search varied no setting")
    longest = [[max(map(len, label.split(", "))) for label in panel.options] for panel in panels]
    widths = [max(2.2, 0.5 + sum(0.35 + 0.06 * length for length in lengths)) for lengths in longest]
    figure = _figure(max(6.4, 0.8 + sum(widths)), 3.6)
    row = figure.subplots(1, len(panels), squeeze=False, sharey=True, width_ratios=widths)[0]
    for axes, panel in zip(row, panels, strict=True):
        for rung, name in enumerate(rungs):
            _draw_rung(axes, panel, rung, len(rungs), name)
        axes.axvline(
            panel.own, color=QUIET, linewidth=0.9, linestyle=(0, (1, 3)), zorder=1, label="as the rules choose"
        )
        tidy(axes)
        axes.set_xticks(range(len(panel.options)), [label.replace(", ", "\n") for label in panel.options])
        axes.set_xlim(-0.6, len(panel.options) - 0.4)
        axes.set_xlabel(panel.name)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    row[0].set_ylabel(f"validation {metric}")
    legend(figure, row[0])
    return figure


def _draw_rung(axes: Axes, panel: SettingPanel, rung: int, rungs: int, name: str) -> None:
    """The runs of a rung; those with equal settings stand a little beside each other."""
    look, points = style(rung), [point for point in panel.points if point.rung == rung]
    shift, ended = _shift(rung, rungs), [point for point in points if np.isfinite(point.score)]
    axes.plot(
        [point.place + shift for point in ended], [point.score for point in ended], linestyle="", markersize=6,
        markeredgecolor="white", markeredgewidth=0.6, label=shown_name(name), zorder=3, **look,
    )  # fmt: skip
    for point in points:
        if not np.isfinite(point.score):
            axes.plot(
                point.place + shift, 0.02, marker="x", markersize=6, color=look["color"],
                transform=axes.get_xaxis_transform(), linestyle="", clip_on=False,
            )  # fmt: skip
        elif point.best:
            axes.plot(
                point.place + shift, point.score, marker="o", markersize=11, markerfacecolor="none",
                markeredgecolor=TEXT, markeredgewidth=1.2, linestyle="", zorder=4, label="best",
            )  # fmt: skip


def save_vocabularies(sizes: Sequence[int], lines: Mapping[str, Sequence[float]], path: Path) -> Path:
    """Write the figure as the suffix says, .png or .svg."""
    return write_bytes(path, render(draw_vocabularies(sizes, lines), path.suffix.lower()[1:]))


def draw_vocabularies(sizes: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Figure:
    """Tokens for each character of texts, by the size of a vocabulary of byte pairs; of many texts, some from all over."""
    figure = _figure(6.4, 4.2)
    axes = figure.subplots()
    by_length = sorted(lines, key=lambda name: -lines[name][-1])
    chosen = [by_length[round(place)] for place in np.linspace(0, len(by_length) - 1, min(MOST_LINES, len(by_length)))]
    for number, name in enumerate(chosen):
        axes.plot(
            sizes, lines[name], linewidth=1.6, markersize=5, markeredgecolor="white", markeredgewidth=0.6,
            label=shown_name(name), **style(number),
        )  # fmt: skip
    tidy(axes)
    axes.set_xlabel("tokens in the vocabulary: 256 bytes and the pairs that were joined")
    axes.set_ylabel("tokens for each character")
    axes.set_ylim(bottom=0)
    legend(figure, axes)
    return figure
