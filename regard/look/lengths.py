"""Several language models beyond the length of their training, in one figure: loss by window, and by position in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from regard.errors import RegardError
from regard.files import write_bytes
from regard.look.series import legend, shown_name, style, tidy
from regard.look.sheet import DPI, QUIET, render


@dataclass(frozen=True)
class LengthLine:
    """One model. Lengths and places are multiples of its context of training; NaN where it could not."""

    name: str
    times: Sequence[float]
    losses: Sequence[float]
    places: Sequence[float]  # middles of stretches of its longest window
    changes: Sequence[float]  # of the loss there, against the same predictions in windows of training


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
