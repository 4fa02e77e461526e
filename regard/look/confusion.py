"""A confusion matrix as a figure: which labels a classifier takes for which, and how many of each it finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from regard.errors import RegardError, UsageError
from regard.files import write_bytes
from regard.look.colors import INK, color, hexadecimal
from regard.look.contrast import ink_on
from regard.look.figure import LONGEST, Layout, draw_cells, fit_page, stand
from regard.look.fonts import families_for
from regard.look.series import shown_name
from regard.look.sheet import DPI, FRAME, MARGIN, POINTS, QUIET, RAMP, TEXT, render

SUFFIXES = (".png", ".svg")
MOST_NUMBERS = 30  # labels; with more, counts in the cells could not be read
LARGEST_CELL, SMALLEST_CELL = 0.85, 0.36  # inches, with a count inside
ROOM = 7.6  # inches for all cells, while they are not the smallest
DIGIT = 0.66  # width of a digit in sizes of the letters, with a little room


def confusion_figure(matrix: np.ndarray, labels: Sequence[str], title: str = "") -> Figure:
    """Counts (C, C), rows wanted, columns predicted. A colour is the share of its row; the right side says the recall."""
    counts = _checked(matrix, labels)
    shares = _shares(counts)
    layout = _layout(len(labels))
    figure = Figure(dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes, bar = figure.add_axes((0, 0, 1, 1)), figure.add_axes((0, 0, 1, 1))
    recall = layout.letters * 3.4 / POINTS + 0.12  # inches for "100%" and the gap before it
    height = min(layout.height, 2.4)
    placed = [
        (axes, (0.0, 0.0, layout.width, layout.height)),
        (bar, (layout.width + recall + MARGIN, 0.0, 0.13, height)),
    ]
    draw_cells(axes, shares, 1.0, layout)
    _draw_bar(figure, bar)
    stand(placed, figure, Bbox([[0, 0], [1, 1]]))
    _draw_names(axes, labels, layout)
    axes.set_xlabel("predicted", fontsize=9.5, color=QUIET, labelpad=6)
    axes.set_ylabel("wanted", fontsize=9.5, color=QUIET, labelpad=8)
    if len(labels) <= MOST_NUMBERS:
        _draw_counts(axes, counts, shares, layout)
    _draw_recall(axes, counts, shares, layout)
    fit_page(figure, placed, title)
    return figure


def save_confusion(matrix: np.ndarray, labels: Sequence[str], path: str | Path, title: str = "") -> Path:
    """Write the figure as PNG or SVG, whichever the suffix names, whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise UsageError(f"cannot tell how to draw a matrix to {path.name}, which {found}; use {', '.join(SUFFIXES)}")
    return write_bytes(path, render(confusion_figure(matrix, labels, title), suffix[1:]))


def _checked(matrix: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    counts = np.asarray(matrix)
    if counts.shape != (len(labels), len(labels)):
        raise RegardError(
            f"a confusion matrix of shape {counts.shape} for {len(labels)} labels; give a row and column each"
        )
    if not len(labels):
        raise RegardError("a confusion matrix without labels is empty: there is nothing to show")
    if counts.dtype.kind not in "iu" or (counts < 0).any():
        raise RegardError("a confusion matrix holds counts: give whole numbers, 0 or more")
    return counts.astype(np.int64)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Each count as a share of its row: (C, C). A row of a label that never occurs has no shares: NaN."""
    totals = counts.sum(axis=1, keepdims=True)  # (C, 1)
    return np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)


def _layout(labels: int) -> Layout:
    smallest = SMALLEST_CELL if labels <= MOST_NUMBERS else min(0.13, LONGEST / labels)
    cell = min(max(ROOM / labels, smallest), LARGEST_CELL)
    return Layout(1, cell, labels * cell, labels * cell, labels * cell)


def _draw_names(axes: Axes, labels: Sequence[str], layout: Layout) -> None:
    """The labels on the left and above, as many as can be read; if one is wider than its cell, those above are turned."""
    names = [shown_name(label) for label in labels[:: layout.stride]]
    places, families = np.arange(0, len(labels), layout.stride) + 0.5, families_for(names)
    axes.set_yticks(places, names, parse_math=False, family=families)
    axes.set_xticks(places, names, parse_math=False, family=families)
    room = layout.cell * layout.stride * POINTS
    above = axes.get_xticklabels()
    if max(name.get_window_extent().width for name in above) / DPI * POINTS > 0.92 * room:
        angle = 45 if room > 1.5 * layout.letters else 90
        for name in above:
            name.set(rotation=angle, rotation_mode="anchor", ha="left", va="center" if angle == 90 else "baseline")


def _draw_bar(figure: Figure, bar: Axes) -> None:
    scale = figure.colorbar(ScalarMappable(Normalize(0.0, 1.0), RAMP), cax=bar, ticks=[0.0, 0.5, 1.0])
    scale.set_label("share of the wanted label", fontsize=9, color=TEXT)
    scale.ax.set_yticklabels(["0", "50%", "100%"])
    scale.ax.tick_params(length=2, labelsize=8.5, labelcolor=TEXT, color=FRAME)
    scale.outline.set(edgecolor=FRAME, linewidth=0.6)


def _draw_counts(axes: Axes, counts: np.ndarray, shares: np.ndarray, layout: Layout) -> None:
    """The counts in their cells, all in the largest letters in which the longest fits; a zero is left out."""
    longest = len(str(counts.max()))
    size = min(layout.letters, layout.cell * POINTS * 0.84 / (longest * DIGIT))
    for row, column in zip(*np.nonzero(counts), strict=True):
        ink = hexadecimal(ink_on(color(INK, shares[row, column])))
        axes.text(column + 0.5, row + 0.5, str(counts[row, column]), ha="center", va="center", fontsize=size, color=ink)


def _draw_recall(axes: Axes, counts: np.ndarray, shares: np.ndarray, layout: Layout) -> None:
    """How many of each label were found, behind its row, and of all, under the rows."""
    edge = len(counts) + (layout.letters * 3.4 / POINTS + 0.06) / layout.cell  # where the numbers end
    for row in range(0, len(counts), layout.stride):
        share = shares[row, row]
        text = "–" if np.isnan(share) else f"{100 * share:.0f}%"
        axes.text(edge, row + 0.5, text, ha="right", va="center", fontsize=layout.letters, color=TEXT)
    below = len(counts) + 0.1 / layout.cell
    axes.text(edge, below, "recall", ha="right", va="top", fontsize=9.5, color=QUIET)
