"""Weights laid over a picture: pale grey below, a flat square of colour for each place above, pixel by pixel.

The greater a weight, the darker its square, whatever the picture is like below it, so that a print in grey still reads
the order of the weights.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from PIL import Image

from regard.look.colors import INK, Color, color

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the original picture

WASH = INK[5:]  # the dark end of the ink of all figures: even the first is darker than a pale picture can be
DARKEST, LIGHTEST = 170, 252  # of the pale picture, in bytes
DENSEST = 0.88  # opacity of the greatest weight: the picture stays visible below it
TINT = 0.45  # how much of its colour a pale picture keeps
FRAME: Color = (10, 22, 50)
FINE = 48  # steps between two places of a smoothed map


class Boxes(Protocol):
    """Boxes of the places of a grid on the original picture, such as `regard.data.pictures.decode.Fitted`."""

    def cell(self, row: int, column: int, grid: tuple[int, int]) -> Box: ...


def cover(share: float) -> tuple[Color, float]:
    """Colour and opacity of a square at `share` of the way from 0 to the top of the scale; nothing covers nothing."""
    share = min(max(share, 0.0), 1.0)
    return color(WASH, share), DENSEST * share**0.7


def covered(ground: float, share: float) -> Color:
    """The colour of a square over a pale pixel of brightness `ground` (in bytes)."""
    ink, opacity = cover(share)
    red, green, blue = (round(ground + (part - ground) * opacity) for part in ink)
    return red, green, blue


MIDDLE = (DARKEST + LIGHTEST) / 2  # the ground on which legends show the scale


def edges(boxes: Boxes, grid: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Borders of columns and rows on the original picture: (columns + 1,) and (rows + 1,)."""
    rows, columns = grid
    across = [boxes.cell(0, column, grid) for column in range(columns)]
    down = [boxes.cell(row, 0, grid) for row in range(rows)]
    return np.array([*(box[0] for box in across), across[-1][2]]), np.array([*(box[1] for box in down), down[-1][3]])


def resized(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """The picture (H, W, 3) in that many pixels; one that grows much keeps its pixels as squares."""
    image = Image.fromarray(picture)
    grows = width >= 2 * image.width
    way = Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS
    return np.asarray(image.resize((width, height), way, reducing_gap=None if grows else 3.0))


def paled(picture: np.ndarray, colored: bool = False) -> np.ndarray:
    """The picture in pale grey, (H, W), or in pale colours, (H, W, 3): bytes from DARKEST to LIGHTEST, as bright as in grey."""
    grey = np.asarray(Image.fromarray(picture).convert("L"), dtype=np.float64)
    pale = DARKEST + grey * (LIGHTEST - DARKEST) / 255
    if colored:
        tint = (picture.astype(np.float64) - grey[..., None]) * TINT
        pale = pale[..., None] + tint
    return pale.round().clip(0, 255).astype(np.uint8)


def hatched(ground: np.ndarray) -> np.ndarray:
    """Thin slanting lines over what a model never saw: (H, W)."""
    down, across = np.indices(ground.shape)
    return np.where((down + across) % 9 < 2, ground * 0.3 + 100, ground * 0.3 + 178)


def laid_over(
    picture: np.ndarray,
    boxes: Boxes,
    weights: np.ndarray,
    top: float,
    *,
    smooth: bool = False,
    marked: bool = True,
    colored: bool = False,
) -> np.ndarray:
    """The pale picture with the weights (rows, columns) over it: (H, W, 3) bytes, for a picture in its final pixels.

    `boxes` speaks of these pixels. `smooth` runs a bicubic curve through the places; `marked` frames the greatest;
    `colored` keeps the picture's colours.
    """
    ground = paled(picture, colored).astype(np.float64).reshape(*picture.shape[:2], -1)  # (H, W, 1 or 3)
    across, down = edges(boxes, weights.shape)
    shares = finer(weights / top, FINE if smooth else 1)
    columns, seen_across = _places(across, picture.shape[1], shares.shape[1])
    rows, seen_down = _places(down, picture.shape[0], shares.shape[0])
    seen = seen_down[:, None] & seen_across  # (H, W)
    ground = np.where(seen[..., None], ground, hatched(ground.mean(axis=-1))[..., None])
    levels = np.where(seen, np.rint(shares[rows][:, columns] * 255), 0).astype(np.intp)  # (H, W)
    inks = np.array([color(WASH, level / 255) for level in range(256)], dtype=np.float64)  # (256, 3)
    opacities = np.array([cover(level / 255)[1] for level in range(256)])
    opacity = opacities[levels][..., None]  # (H, W, 1)
    pixels = (ground * (1 - opacity) + inks[levels] * opacity).round().astype(np.uint8)
    peak = strongest(weights) if marked else None
    if peak is not None:
        _frame(pixels, boxes.cell(*peak, weights.shape))
    return pixels


def finer(shares: np.ndarray, steps: int) -> np.ndarray:
    """The shares with `steps` values for each place, on a bicubic curve, none below 0 or above 1."""
    if steps > 1:
        size = (shares.shape[1] * steps, shares.shape[0] * steps)
        shares = np.asarray(Image.fromarray(shares.astype(np.float32)).resize(size, Image.Resampling.BICUBIC))
    return np.clip(shares, 0.0, 1.0)


def strongest(weights: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the greatest weight; None if several are as great."""
    found = np.argwhere(weights == weights.max())
    return (int(found[0, 0]), int(found[0, 1])) if len(found) == 1 else None


def _places(borders: np.ndarray, pixels: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Find which of `count` places between the borders holds the middle of each pixel, and whether any does: (pixels,) each."""
    middles = np.arange(pixels) + 0.5
    along = np.interp(middles, borders, np.linspace(0, count, len(borders)))
    inside = (middles >= borders[0]) & (middles < borders[-1])
    return np.clip(along.astype(np.intp), 0, count - 1), inside


def _frame(pixels: np.ndarray, box: Box) -> None:
    """A thin dark line inside the box, as far as it lies on the picture."""
    height, width = pixels.shape[:2]
    left, top = max(0, round(box[0])), max(0, round(box[1]))
    right, bottom = min(width, round(box[2])), min(height, round(box[3]))
    if right - left < 3 or bottom - top < 3:
        return
    for line in (pixels[top, left:right], pixels[bottom - 1, left:right]):
        line[:] = FRAME
    for line in (pixels[top:bottom, left], pixels[top:bottom, right - 1]):
        line[:] = FRAME
