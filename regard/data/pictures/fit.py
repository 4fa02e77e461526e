"""How a picture of any shape becomes the square that a model sees, and where each part of the square lies on the original."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from regard.data.pictures.format import PictureFormat
from regard.errors import RegardError

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Fitted:
    """The square of `size` x `size` pixels shows `box` of the original, in its pixels; with borders it reaches beyond it."""

    box: Box
    size: int

    def cell(self, row: int, column: int, grid: tuple[int, int]) -> Box:
        """Where a cell of a grid of (rows, columns) over the square lies on the original."""
        rows, columns = grid
        if not (0 <= row < rows and 0 <= column < columns):
            raise RegardError(f"there is no cell ({row}, {column}) in a grid of {rows} x {columns}; both count from 0")
        left, top, right, bottom = self.box
        wide, high = (right - left) / columns, (bottom - top) / rows
        return left + column * wide, top + row * high, left + (column + 1) * wide, top + (row + 1) * high


def fitted(shape: tuple[int, int], format: PictureFormat) -> Fitted:
    """The geometry of `fit_picture` alone, for a picture of (height, width)."""
    height, width = shape
    if height < 1 or width < 1:
        raise RegardError(f"a picture of {height} x {width} pixels has nothing to show")
    if format.fit == "squash":
        return Fitted((0.0, 0.0, float(width), float(height)), format.size)
    if format.fit == "crop":
        side = min(height, width)
        left, top = (width - side) / 2, (height - side) / 2
        return Fitted((left, top, left + side, top + side), format.size)
    left, right = _padded(width, max(height, width), format.size)
    top, bottom = _padded(height, max(height, width), format.size)
    return Fitted((left, top, right, bottom), format.size)


def fit_picture(picture: np.ndarray, format: PictureFormat) -> np.ndarray:
    """Bytes (height, width, channels) as bytes (size, size, channels), resized with antialiasing.

    Grey becomes red, green and blue or the other way round if the format says so.
    """
    size = format.size
    image = _image(picture, format.channels)
    if picture.shape == (size, size, format.channels):
        return picture.copy()
    if format.fit == "pad":
        return _with_borders(image, format)
    box = fitted((image.height, image.width), format).box
    return _array(_resized(image, (size, size), box, format))


def border_colour(format: PictureFormat) -> tuple[int, ...]:
    """The mean of the format in bytes, one for each channel: to a model, borders of it are nothing special."""
    mean = format.mean * format.channels if len(format.mean) == 1 else format.mean
    return tuple(min(255, max(0, round(255 * value))) for value in mean)


def _inner(length: int, longest: int, size: int) -> tuple[int, int]:
    """How many pixels of the square a side of the original fills, and how many of border come before it."""
    inner = max(1, round(length * size / longest))
    return inner, (size - inner) // 2


def _padded(length: int, longest: int, size: int) -> tuple[float, float]:
    """Where the square begins and ends on a side of the original: before 0 and after `length` if there are borders."""
    inner, before = _inner(length, longest, size)
    scale = length / inner  # pixels of the original for one of the square
    return -before * scale, (size - before) * scale


def _with_borders(image: Image.Image, format: PictureFormat) -> np.ndarray:
    longest = max(image.size)
    wide, left = _inner(image.width, longest, format.size)
    high, top = _inner(image.height, longest, format.size)
    square = np.empty((format.size, format.size, format.channels), dtype=np.uint8)
    square[:] = border_colour(format)
    inner = _resized(image, (wide, high), (0, 0, image.width, image.height), format)
    square[top : top + high, left : left + wide] = _array(inner)
    return square


def _resized(image: Image.Image, size: tuple[int, int], box: Box, format: PictureFormat) -> Image.Image:
    """`box` of the image in `size` pixels. A large photo is first reduced by a whole factor to at least 3 x the size."""
    return image.resize(size, Image.Resampling[format.resample.upper()], box=box, reducing_gap=3.0)


def _image(picture: np.ndarray, channels: int) -> Image.Image:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3) or 0 in picture.shape:
        raise RegardError(
            f"a picture is uint8 (height, width, 1 or 3), not {picture.dtype} {picture.shape}; see read_picture"
        )
    image = Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _array(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    return pixels.reshape(*pixels.shape[:2], -1)  # (size, size, channels)
