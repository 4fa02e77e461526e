"""Layers of networks without maps of places: weights of channels as bars, token-mixing matrices as small pictures.

The matrices as in figure 5 of Tolstikhin et al. 2021, "MLP-Mixer", where each hidden unit of such a layer is a small
picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle

from regard.errors import RegardError, UsageError
from regard.files import write_bytes
from regard.look.colors import DIVERGING, INK, color, hexadecimal, scale_top
from regard.look.figures.fonts import drawable, families_for
from regard.look.figures.sheet import (
    DPI,
    FRAME,
    POINTS,
    QUIET,
    TEXT,
    Pen,
    cut,
    families_of,
    heading,
    heading_height,
    render,
    sheet,
    show,
    snapped,
    tidy,
    write_heading,
)
from regard.look.labels import visible_title
from regard.look.layers import ChannelWeights, MixingMatrices

FIGURE_SUFFIXES = (".png", ".svg")
WIDTH, NARROWEST, HEIGHT = 9.0, 3.4, 2.7  # inches
NAMED = 6  # the greatest have their number above them
BAR_COLOR, GREATEST = hexadecimal(INK[4]), hexadecimal(INK[7])


def bars_figure(values: np.ndarray, title: str = "", *, in_order: bool = False) -> Figure:
    """A bar for each of C channels, (C,); the greatest are dark and have their number. `in_order`: greatest first."""
    values = _checked_bars(values)
    order = np.argsort(-values, kind="stable") if in_order else np.arange(len(values))
    greatest = np.argsort(-values, kind="stable")[: min(NAMED, max(1, len(values) // 4))]
    width = min(WIDTH, max(NARROWEST, 1.2 + 0.2 * len(values), 0.6 + 0.09 * len(title)))
    around = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)  # inches
    figure = Figure(figsize=(width, HEIGHT), dpi=DPI, facecolor="white", layout=around)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    top, bottom = scale_top(values), -scale_top(-values) if (values < 0).any() else 0.0
    colors = [GREATEST if channel in greatest else BAR_COLOR for channel in order]
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


def draw_channels(channels: ChannelWeights) -> Figure:
    """The bars of the last layer."""
    name, values = list(channels.layers.items())[-1]
    return bars_figure(values, f"{channels.title}: channel attention of {name}")


def save_bars(values: np.ndarray, path: str | Path, title: str = "", *, in_order: bool = False) -> Path:
    """Write the figure as PNG or SVG, whichever the suffix names, whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FIGURE_SUFFIXES:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise UsageError(
            f"cannot tell how to draw bars to {path.name}, which {found}; use {', '.join(FIGURE_SUFFIXES)}"
        )
    return write_bytes(path, render(bars_figure(values, title, in_order=in_order), suffix[1:]))


def _checked_bars(values: np.ndarray) -> np.ndarray:
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
    """Name the dark channels, the greatest first, in the corner above."""
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


SUFFIXES = (".png", ".svg")
MOST_ASIDE = 7  # small pictures side by side for one matrix
BLOCK, SMALLER = 4.6, 2.9  # inches across of one matrix's small pictures; of each, if there are several
GAP, BETWEEN = 0.05, 0.35  # inches between small pictures, and between matrices
BAR, THICK = 1.5, 0.11  # inches of the scale


def matrix_figure(matrix: np.ndarray, grid: tuple[int, int], title: str = "") -> Figure:
    """One matrix: a row for each output place (P, P), shown where that place lies; or for each hidden unit (F, P)."""
    return mixing_figure({"": matrix}, grid, title)


def mixing_figure(matrices: Mapping[str, np.ndarray], grid: tuple[int, int], title: str = "") -> Figure:
    """Several matrices beside each other under their names, each on a scale of its own."""
    if not matrices:
        raise RegardError("there is no matrix to show; give at least one")
    checked = {name: _checked(matrix, grid) for name, matrix in matrices.items()}
    families = families_of(title, *checked)
    name, quiet = Pen(10.5, families), Pen(8.0, families, color=QUIET)
    across = min(len(checked), 4)
    size = snapped(BLOCK if len(checked) == 1 else SMALLER)
    tall = max(_height(len(matrix), grid, size) for matrix in checked.values())
    above = name.pitch if any(checked) else 0.0
    line = above + tall + 0.1 + 2 * quiet.pitch + 0.1
    width = across * (size + BETWEEN) - BETWEEN
    lines = heading(title, "", families, width)
    figure, axes = sheet(width, heading_height(lines) + math.ceil(len(checked) / across) * line)
    start = write_heading(axes, lines)
    for number, (called, matrix) in enumerate(checked.items()):
        x, y = number % across * (size + BETWEEN), start + number // across * line
        if called:
            name.write(axes, x, y, cut(called, name, size))
        _draw_matrix(axes, matrix, grid, (x, y + above), size)
        _draw_scale(axes, quiet, _top(matrix), _says(len(matrix), grid, size), (x, y + above + tall + 0.1), size)
    return figure


def draw_mixing(mixing: MixingMatrices) -> Figure:
    """The matrices of all layers, each as small pictures."""
    return mixing_figure(_numbered(mixing.matrices), mixing.grid, mixing.title)


def _numbered(matrices: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"layer {number}": matrix for number, matrix in enumerate(matrices)}


def save_mixing(
    matrices: Mapping[str, np.ndarray] | Sequence[np.ndarray], grid: tuple[int, int], path: str | Path, title: str = ""
) -> Path:
    """Write the figure as PNG or SVG, whichever the suffix names. Matrices without names are layers, from 0."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise UsageError(f"cannot tell how to draw matrices to {path.name}, which {found}; use {', '.join(SUFFIXES)}")
    if not isinstance(matrices, Mapping):
        matrices = _numbered(matrices)
    return write_bytes(path, render(mixing_figure(matrices, grid, title), suffix[1:]))


def chosen(rows: int, grid: tuple[int, int]) -> list[list[int | None]]:
    """Choose the rows of a matrix to show: output places as they lie, at most seven a side; else in order."""
    if rows == grid[0] * grid[1]:
        down, across = (_spread(side) for side in grid)
        return [[row * grid[1] + column for column in across] for row in down]
    side = min(MOST_ASIDE, math.ceil(math.sqrt(rows)))
    numbers: list[int | None] = [number if number < rows else None for number in range(side * side)]
    return [numbers[start : start + side] for start in range(0, min(len(numbers), side * math.ceil(rows / side)), side)]


def _spread(side: int) -> list[int]:
    """At most seven of `side` places, as evenly as they can be, in the middle of equal stretches."""
    count = min(side, MOST_ASIDE)
    return [int((place + 0.5) * side / count) for place in range(count)]


def _checked(matrix: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    matrix = np.asarray(matrix, dtype=np.float64)
    places = grid[0] * grid[1]
    if matrix.ndim != 2 or matrix.shape[1] != places or not len(matrix) or not places:
        raise RegardError(
            f"a matrix of shape {matrix.shape} for a grid of {grid[0]} x {grid[1]} = {places} places; "
            f"give a row for each output, of {places} weights"
        )
    if not np.isfinite(matrix).all():
        raise RegardError("a mixing matrix holds a weight that is not a number; look at how it was trained")
    return matrix


def _top(matrix: np.ndarray) -> float:
    return scale_top(np.abs(matrix))


def _height(rows: int, grid: tuple[int, int], size: float) -> float:
    """Inches down of small pictures that are `size` inches across."""
    layout = chosen(rows, grid)
    wide = (size + GAP) / len(layout[0]) - GAP
    return len(layout) * (wide * grid[0] / grid[1] + GAP) - GAP


def _draw_matrix(
    axes: Axes, matrix: np.ndarray, grid: tuple[int, int], corner: tuple[float, float], size: float
) -> None:
    """The small pictures, each framed; an output place has a dot where it lies itself, if there is room."""
    layout = chosen(len(matrix), grid)
    wide = (size + GAP) / len(layout[0]) - GAP
    tall = wide * grid[0] / grid[1]
    dot = _dot(len(matrix), grid, size)
    shades = np.array([color(DIVERGING, level / 255) for level in range(256)], dtype=np.uint8)  # (256, 3)
    for down, line in enumerate(layout):
        for across, row in enumerate(line):
            if row is None:
                continue
            x, y = corner[0] + across * (wide + GAP), corner[1] + down * (tall + GAP)
            levels = np.rint((matrix[row] / _top(matrix) + 1) / 2 * 255).clip(0, 255).astype(np.intp).reshape(grid)
            show(axes, shades[levels], x, y, wide, tall)
            frame = Rectangle((x, y), wide, tall, fill=False, edgecolor=FRAME, linewidth=0.5, zorder=3)
            axes.add_patch(frame).set_clip_on(False)
            if dot:
                own = (row % grid[1] + 0.5) / grid[1] * wide, (row // grid[1] + 0.5) / grid[0] * tall
                axes.plot(x + own[0], y + own[1], "o", markersize=dot, color=TEXT, markeredgewidth=0, zorder=4)


def _dot(rows: int, grid: tuple[int, int], size: float) -> float:
    """The size in points of the dot at a place itself; 0 for none, where it would hide its square."""
    wide = (size + GAP) / len(chosen(rows, grid)[0]) - GAP
    points = 0.3 * POINTS * wide / grid[1]
    return min(2.2, points) if rows == grid[0] * grid[1] and points >= 1 else 0.0


def _says(rows: int, grid: tuple[int, int], size: float) -> str:
    """Say what the small pictures are."""
    shown = sum(1 for line in chosen(rows, grid) for row in line if row is not None)
    some = f"{shown} of {rows}" if shown < rows else f"{shown}"
    if rows != grid[0] * grid[1]:
        return f"{some} hidden units"
    return f"{some} output places, as they lie" + (", dot: itself" if _dot(rows, grid, size) else "")


def _draw_scale(axes: Axes, pen: Pen, top: float, says: str, corner: tuple[float, float], room: float) -> None:
    """The scale from -top over 0 to top, and under it what is shown."""
    (x, y), low, high = corner, f"−{top:g}", f"{top:g}"
    start = pen.ruler(low) + 0.06
    bar = min(BAR, room - start - pen.ruler(high) - 0.06)
    pixels = np.array([[color(DIVERGING, step / 255) for step in range(256)]], dtype=np.uint8)  # (1, 256, 3)
    pen.write(axes, x, y, low)
    pen.write(axes, x + start + bar + 0.06, y, high)
    show(axes, pixels, x + start, y + pen.pitch / 2 - THICK / 2, bar, THICK)
    middle = x + start + bar / 2
    axes.plot(
        [middle, middle], [y + pen.pitch / 2 - THICK / 2, y + pen.pitch / 2 + THICK / 2], color=QUIET, lw=0.6, zorder=3
    )
    pen.write(axes, x, y + pen.pitch, cut(says, pen, room))
