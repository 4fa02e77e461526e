"""A sound as a figure: spectrogram, CTC path and attention under one another, over the same time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.look.colors import scale_top
from regard.look.figures.sheet import FRAME, QUIET, RAMP, TEXT
from regard.look.hearing import HeardView
from regard.look.labels import visible

WIDE = 9.0  # inches
TALL = {"frames": 2.0, "path": 1.7, "cross": 0.26, "own": 3.6}
SMALL, PLAIN = 8, 9  # points
BLANK = "#c9ced4"


def draw_heard(view: HeardView) -> Figure:
    """Draw the panels that the view has, the spectrogram first."""
    parts = ["frames", *(name for name in ("path", "cross", "own") if getattr(view, name) is not None)]
    heights = [TALL[name] if name != "cross" else max(1.2, TALL[name] * len(view.written)) for name in parts]
    figure = Figure(figsize=(WIDE, sum(heights) + 0.55 * len(parts) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(view.title, fontsize=11, color=TEXT)
    axes = figure.subplots(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
    draws = {"frames": _spectrogram, "path": _path, "cross": _cross, "own": _own}
    for name, ax in zip(parts, axes, strict=True):
        draws[name](view, ax)
        ax.tick_params(labelsize=SMALL, colors=QUIET)
        for spine in ax.spines.values():
            spine.set_color(FRAME)
    axes[-1].set_xlabel("seconds", fontsize=PLAIN, color=QUIET)
    return figure


def _spectrogram(view: HeardView, ax: Axes) -> None:
    bands = view.frames.shape[1]
    low, high = np.percentile(view.frames, [2, 99.5])
    place = (0.0, view.seconds, 0.0, float(bands))
    ax.imshow(view.frames.T, origin="lower", aspect="auto", cmap="magma", extent=place, vmin=low, vmax=high)
    ax.set_ylabel("mel band", fontsize=PLAIN, color=QUIET)
    for word in view.words:
        for edge in (word.start, word.end):
            ax.axvline(edge, color="white", linewidth=0.7, alpha=0.8)
        ax.text(
            (word.start + word.end) / 2, bands * 1.02, word.text, ha="center", va="bottom", fontsize=PLAIN, color=TEXT
        )


def _path(view: HeardView, ax: Axes) -> None:
    """The probability of each token over time; the blank in grey, the others named at their highest place."""
    assert view.path is not None
    across = (np.arange(len(view.path)) + 0.5) * view.hop * view.step
    for place, name in enumerate(view.tokens):
        line = view.path[:, place]
        if not place:
            ax.fill_between(across, line, color=BLANK, linewidth=0, label="blank")
            continue
        color = f"C{(place - 1) % 10}"
        ax.plot(across, line, color=color, linewidth=1.3, marker=".", markersize=3)
        for peak in np.flatnonzero((line > 0.3) & (line >= np.roll(line, 1)) & (line > np.roll(line, -1))):
            ax.text(across[peak], line[peak] + 0.03, visible(name), ha="center", fontsize=SMALL, color=color)
    ax.set(xlim=(0, view.seconds), ylim=(0, 1.2))
    ax.set_ylabel("CTC probability", fontsize=PLAIN, color=QUIET)
    ax.legend(loc="upper right", fontsize=SMALL, frameon=False)


def _cross(view: HeardView, ax: Axes) -> None:
    assert view.cross is not None
    rows = len(view.written)
    end = view.cross.shape[1] * view.hop * view.step
    top = scale_top(view.cross.ravel())
    ax.imshow(view.cross, aspect="auto", cmap=RAMP, extent=(0, end, rows, 0), vmin=0, vmax=top, interpolation="nearest")
    ax.set_xlim(0, view.seconds)
    ax.set_yticks(np.arange(rows) + 0.5, [visible(each) for each in view.written])
    ax.set_title(view.cross_title, fontsize=PLAIN, color=QUIET)


def _own(view: HeardView, ax: Axes) -> None:
    assert view.own is not None
    end = len(view.own) * view.hop * view.step
    top = scale_top(view.own.ravel())
    ax.imshow(view.own, aspect="auto", cmap=RAMP, extent=(0, end, end, 0), vmin=0, vmax=top, interpolation="nearest")
    ax.set(xlim=(0, view.seconds), ylim=(view.seconds, 0))
    ax.set_ylabel("looking, seconds", fontsize=PLAIN, color=QUIET)
    ax.set_title(view.own_title, fontsize=PLAIN, color=QUIET)
