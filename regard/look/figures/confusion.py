"""A confusion matrix as a figure: which labels a classifier takes for which, alone or beside samples of its mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from regard.look.colors import INK, color, hexadecimal, ink_on
from regard.look.figures.fonts import families_for
from regard.look.figures.map import LONGEST, SheetLayout, draw_cells, fit_page, stand
from regard.look.figures.sheet import (
    DPI,
    FRAME,
    MARGIN,
    POINTS,
    QUIET,
    RAMP,
    TEXT,
    Pen,
    cut,
    render,
    show,
    shown_name,
    snapped,
)
from regard.look.overlay import resized

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


def _layout(labels: int) -> SheetLayout:
    smallest = SMALLEST_CELL if labels <= MOST_NUMBERS else min(0.13, LONGEST / labels)
    cell = min(max(ROOM / labels, smallest), LARGEST_CELL)
    return SheetLayout(1, cell, labels * cell, labels * cell, labels * cell)


def _draw_names(axes: Axes, labels: Sequence[str], layout: SheetLayout) -> None:
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


def _draw_counts(axes: Axes, counts: np.ndarray, shares: np.ndarray, layout: SheetLayout) -> None:
    """The counts in their cells, all in the largest letters in which the longest fits; a zero is left out."""
    longest = len(str(counts.max()))
    size = min(layout.letters, layout.cell * POINTS * 0.84 / (longest * DIGIT))
    for row, column in zip(*np.nonzero(counts), strict=True):
        ink = hexadecimal(ink_on(color(INK, shares[row, column])))
        axes.text(column + 0.5, row + 0.5, str(counts[row, column]), ha="center", va="center", fontsize=size, color=ink)


def _draw_recall(axes: Axes, counts: np.ndarray, shares: np.ndarray, layout: SheetLayout) -> None:
    """Write how many of each label were found, behind its row, and of all, under the rows."""
    edge = len(counts) + (layout.letters * 3.4 / POINTS + 0.06) / layout.cell  # where the numbers end
    for row in range(0, len(counts), layout.stride):
        share = shares[row, row]
        text = "–" if np.isnan(share) else f"{100 * share:.0f}%"
        axes.text(edge, row + 0.5, text, ha="right", va="center", fontsize=layout.letters, color=TEXT)
    below = len(counts) + 0.1 / layout.cell
    axes.text(edge, below, "recall", ha="right", va="top", fontsize=9.5, color=QUIET)


SAMPLES_SUFFIXES = (".png", ".svg")
MOST_PICTURES = 4  # of one mistake
FEWEST, MOST = 3, 12  # mistakes; between them, as many as are as tall as the matrix
SIDE, GAP = snapped(0.74), snapped(0.06)  # inches of a picture, and between pictures
BEFORE = 0.5  # inches between matrix and pictures

Samples = Mapping[tuple[int, int], Sequence[np.ndarray]]  # (wanted, predicted) -> uint8 pictures


def confusion_samples_figure(matrix: np.ndarray, labels: Sequence[str], samples: Samples, title: str = "") -> Figure:
    """The matrix (C, C), and the most frequent mistakes with up to four pictures (H, W, 3 or 1) of each."""
    figure = confusion_figure(matrix, labels, title)
    _check(samples, len(labels))
    families = families_for([shown_name(label) for label in labels])
    name, quiet = Pen(9.5, families), Pen(8.0, families, color=QUIET)
    line = name.pitch + SIDE + 0.1
    room = figure.get_figheight() - 2 * MARGIN - name.pitch
    found = mistakes(matrix, samples, min(MOST, max(FEWEST, int(room / line))))
    if not found:
        return figure
    width = MOST_PICTURES * (SIDE + GAP) - GAP
    axes, above = _extended(figure, width, name.pitch + len(found) * line)
    Pen(10.0, families, weight="bold").write(axes, 0.0, above - name.pitch, "most frequent mistakes")
    for number, (wanted, predicted) in enumerate(found):
        y = above + number * line
        count, total = int(matrix[wanted, predicted]), int(matrix[wanted].sum())
        value = f"{count} of {total}"
        text = f"{shown_name(labels[wanted])} → {shown_name(labels[predicted])}"
        name.write(axes, 0.0, y, cut(text, name, width - quiet.ruler(value) - 0.08))
        quiet.write(axes, width - quiet.ruler(value), y + (name.pitch - quiet.pitch) / 2, value)
        for place, picture in enumerate(samples[wanted, predicted][:MOST_PICTURES]):
            _draw_picture(axes, picture, place * (SIDE + GAP), y + name.pitch)
    return figure


def save_confusion_samples(
    matrix: np.ndarray, labels: Sequence[str], samples: Samples, path: str | Path, title: str = ""
) -> Path:
    """Write the figure as PNG or SVG, whichever the suffix names, whole or not at all."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SAMPLES_SUFFIXES:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise UsageError(
            f"cannot tell how to draw a matrix to {path.name}, which {found}; use {', '.join(SAMPLES_SUFFIXES)}"
        )
    return write_bytes(path, render(confusion_samples_figure(matrix, labels, samples, title), suffix[1:]))


def mistakes(matrix: np.ndarray, samples: Samples, most: int) -> list[tuple[int, int]]:
    """The most frequent (wanted, predicted) that differ and have a sample, the most frequent first."""
    have = [pair for pair, pictures in samples.items() if pair[0] != pair[1] and len(pictures) and matrix[pair] > 0]
    return sorted(have, key=lambda pair: (-int(matrix[pair]), pair))[:most]


def _check(samples: Samples, labels: int) -> None:
    for (wanted, predicted), pictures in samples.items():
        if not (0 <= wanted < labels and 0 <= predicted < labels):
            raise RegardError(f"samples of ({wanted}, {predicted}), but labels are numbered from 0 to {labels - 1}")
        for picture in pictures:
            if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or picture.shape[2:] not in ((), (1,), (3,)):
                raise RegardError(
                    f"a sample of ({wanted}, {predicted}) is {picture.dtype} of shape {picture.shape}; "
                    "give bytes (H, W, 3) or (H, W, 1)"
                )


def _extended(figure: Figure, width: float, height: float) -> tuple[Axes, float]:
    """Room for `width` x `height` inches on the right of what is drawn: axes in inches, and where the pictures begin."""
    old = figure.get_size_inches().copy()
    heading = figure.texts[0].get_window_extent().height / DPI + 0.14 if figure.texts else 0.0
    page = snapped(old[0] + BEFORE + width), snapped(max(old[1], heading + height + 2 * MARGIN))
    boxes = [axes.get_position() for axes in figure.axes]
    figure.set_size_inches(*page)
    lower = page[1] - old[1]  # what was drawn stays at the top left
    for axes, box in zip(figure.axes, boxes, strict=True):
        x0, x1 = (x * old[0] / page[0] for x in (box.x0, box.x1))
        y0, y1 = ((y * old[1] + lower) / page[1] for y in (box.y0, box.y1))
        axes.set_position(Bbox([[x0, y0], [x1, y1]]))
    for text in figure.texts:
        text.set_position((MARGIN / page[0], 1 - MARGIN / page[1]))
    left = snapped(old[0] + BEFORE - MARGIN)
    axes = figure.add_axes((left / page[0], 0, width / page[0], 1))
    axes.set(xlim=(0, width), ylim=(page[1], 0), autoscale_on=False)
    axes.set_axis_off()
    return axes, MARGIN + heading + Pen(9.5, ["DejaVu Sans"], color=TEXT).pitch


def _draw_picture(axes: Axes, picture: np.ndarray, x: float, y: float) -> None:
    """The picture in a square of `SIDE` inches, without a change of its shape."""
    pixels = np.repeat(picture.reshape(*picture.shape[:2], -1), 1 if picture.shape[2:] == (3,) else 3, axis=2)
    scale = SIDE * DPI / max(pixels.shape[:2])
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    show(axes, resized(pixels, width, height), x, y, width / DPI, height / DPI)
