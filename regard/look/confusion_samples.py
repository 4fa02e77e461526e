"""A confusion matrix with sample pictures: beside the counts, what the most frequent mistakes look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from regard.errors import RegardError, UsageError
from regard.files import write_bytes
from regard.look.confusion import confusion_figure
from regard.look.fonts import families_for
from regard.look.overlay import resized
from regard.look.series import shown_name
from regard.look.sheet import DPI, MARGIN, QUIET, TEXT, Pen, cut, render, show, snapped

SUFFIXES = (".png", ".svg")
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
    if suffix not in SUFFIXES:
        found = f"ends in {suffix}" if suffix else "has no suffix"
        raise UsageError(f"cannot tell how to draw a matrix to {path.name}, which {found}; use {', '.join(SUFFIXES)}")
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
