"""How much each channel counts, as bars: what channel attention lets through."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from regard.errors import RegardError, UsageError
from regard.files import write_bytes
from regard.look.colors import INK, hexadecimal, scale_top
from regard.look.fonts import drawable, families_for
from regard.look.labels import visible_title
from regard.look.series import tidy
from regard.look.sheet import DPI, QUIET, TEXT, render

SUFFIXES = (".png", ".svg")
WIDTH, NARROWEST, HEIGHT = 9.0, 3.4, 2.7  # inches
NAMED = 6  # the greatest have their number above them
BAR, GREATEST = hexadecimal(INK[4]), hexadecimal(INK[7])


def bars_figure(values: np.ndarray, title: str = "", *, in_order: bool = False) -> Figure:
    """A bar for each of C channels, (C,); the greatest are dark and have their number. `in_order`: greatest first."""
    values = _checked(values)
    order = np.argsort(-values, kind="stable") if in_order else np.arange(len(values))
    greatest = np.argsort(-values, kind="stable")[: min(NAMED, max(1, len(values) // 4))]
    width = min(WIDTH, max(NARROWEST, 1.2 + 0.2 * len(values), 0.6 + 0.09 * len(title)))
    around = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)  # inches
    figure = Figure(figsize=(width, HEIGHT), dpi=DPI, facecolor="white", layout=around)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    top, bottom = scale_top(values), -scale_top(-values) if (values < 0).any() else 0.0
    colors = [GREATEST if channel in greatest else BAR for channel in order]
    bars = axes.bar(np.arange(len(values)), values[order], width=0.82 if len(values) <= 128 else 1.0, color=colors)
    for bar in bars:
        bar.set_linewidth(0)
    tidy(axes)
    axes.set(xlim=(-0.8, len(values) - 0.2), ylim=(bottom * 1.05, top * (1.0 if top > values.max() * 1.12 else 1.12)))
    _draw_mean(axes, float(values.mean()), len(values))
    _draw_ticks(axes, order, in_order)
    if len(values) > 32:
        _draw_greatest(axes, greatest)
        if not in_order:
            _draw_numbers(axes, values, greatest, per_inch=len(values) / width)
    axes.set_ylabel("weight")
    if title:
        shown = visible_title(title)
        families = families_for([shown])
        heading = axes.set_title(
            drawable(shown, families), loc="left", fontsize=11, color=TEXT, family=families, pad=10
        )
        heading.set_parse_math(False)
    return figure


def save_bars(values: np.ndarray, path: str | Path, title: str = "", *, in_order: bool = False) -> Path:
    """Write the figure as PNG or SVG, whichever the suffix names, whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise UsageError(f"cannot tell how to draw bars to {path.name}, which {found}; use {', '.join(SUFFIXES)}")
    return write_bytes(path, render(bars_figure(values, title, in_order=in_order), suffix[1:]))


def _checked(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise RegardError(f"bars are for one weight a channel, (C,), not shape {values.shape}")
    if not np.isfinite(values).all():
        raise RegardError(f"channel {int(np.argmin(np.isfinite(values)))} has no finite weight; give numbers only")
    return values


def _draw_mean(axes: Axes, mean: float, count: int) -> None:
    axes.axhline(mean, color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        f"mean {mean:.2g}", (1.0, mean), xycoords=("axes fraction", "data"), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=8, color=QUIET,
    )  # fmt: skip


def _draw_ticks(axes: Axes, order: np.ndarray, in_order: bool) -> None:
    """Numbers of channels under their bars while there is room for each, else every so many."""
    count = len(order)
    if count <= 32:
        axes.set_xticks(range(count), [str(channel) for channel in order], fontsize=7.5)
    elif not in_order:
        step = 2 ** math.ceil(math.log2(count / 16))
        axes.set_xticks(range(0, count, step))
    axes.set_xlabel(f"channels, greatest first ({count})" if in_order else f"channel (0 to {count - 1})")


def _draw_greatest(axes: Axes, greatest: np.ndarray) -> None:
    """Which channels are dark, the greatest first, in the corner above."""
    text = "greatest: " + ", ".join(str(channel) for channel in greatest)
    axes.text(1.0, 1.02, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=GREATEST)


def _draw_numbers(axes: Axes, values: np.ndarray, greatest: np.ndarray, per_inch: float) -> None:
    """The numbers of the greatest above their bars, where they do not run into each other."""
    taken: list[int] = []
    for channel in map(int, greatest):
        if values[channel] > 0 and all(abs(channel - other) > 0.3 * per_inch for other in taken):
            taken.append(channel)
            axes.annotate(
                str(channel), (channel, values[channel]), xytext=(0, 2), textcoords="offset points",
                ha="center", va="bottom", fontsize=7.5, color=TEXT,
            )  # fmt: skip
