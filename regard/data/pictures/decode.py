"""Pictures from files of any kind that people have: decoded, turned upright, on white, and made to fit a model's square."""

from __future__ import annotations

import io
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
from PIL import Image, UnidentifiedImageError

from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError, UsageError

MOST_PIXELS = 50_000_000  # a photo of a good camera; what claims to be larger is more likely made to fill the memory

# Formats that only hold pixels: none that Pillow hands to another program (EPS), none that it knows by its name alone.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "AVIF", "JPEG2000", "PPM")
_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIZES = {"PNG": ((16, 20), (20, 24)), "GIF": ((6, 8), (8, 10)), "BMP": ((18, 22), (22, 26))}  # bytes of width, height
_CUT_SHORT = (
    "truncated",
    "unexpected end",
    "not enough",
    "decoder object",
    "unrecognized data stream",
    "broken data",
    "only got",
)


logging.getLogger("PIL").addHandler(logging.NullHandler())  # nothing on stderr unless the program has set up logging


class PictureError(RegardError):
    """A picture that cannot be read. `reason` says why in a few words, without its name."""

    def __init__(self, name: str, reason: str, advice: str = "") -> None:
        super().__init__(f"{name}: {reason}" + (f"; {advice}" if advice else ""))
        self.reason, self._parts = reason, (name, reason, advice)

    def __reduce__(self) -> tuple:  # an error that comes from another process is the same
        return type(self), self._parts


def read_picture(source: Path | bytes, channels: int = 3) -> np.ndarray:
    """The picture as bytes (height, width, channels), in 1 or 3 channels, upright as its EXIF tag tells.

    What is transparent lies on white; of an animation it is the first frame. Grey of 16 bits is scaled from
    0 .. 65535; grey of 32 bits and of floats has no range of its own: see `_as_bytes`.
    """
    if channels not in (1, 3):
        raise UsageError(f"a picture has 1 channel (grey) or 3 (red, green, blue), not {channels}")
    name = "the picture" if isinstance(source, bytes) else str(source)
    with _opened(source, name) as file, quiet():
        image = _header(file, name)
        try:
            image.load()
            return _pixels(_upright(image), channels)
        except Exception as error:  # of damaged files Pillow raises nearly anything
            raise _broken(name, error) from error


@contextmanager
def _opened(source: Path | bytes, name: str) -> Iterator[IO[bytes]]:
    try:
        if isinstance(source, Path) and source.exists() and not source.is_file():
            raise PictureError(name, "not a file", "name a picture")
        with open(source, "rb") if isinstance(source, Path) else io.BytesIO(source) as file:
            yield file
    except FileNotFoundError as error:
        raise PictureError(name, "there is no such file") from error
    except OSError as error:
        raise PictureError(name, f"cannot be read ({error.strerror or error})") from error


def _header(file: IO[bytes], name: str) -> Image.Image:
    """Read the header of a picture file, its format and size, before any of its pixels are decoded."""
    start = file.read(32)
    if not start:
        raise PictureError(name, "empty", "the file has no bytes; fetch it again")
    try:
        image = Image.open(file, formats=_known_formats())
    except UnidentifiedImageError as error:
        raise _unknown(name, start) from error
    except Image.DecompressionBombError as error:
        raise PictureError(name, f"too large ({error})", f"at most {MOST_PIXELS:,} pixels are read") from error
    except Exception as error:
        raise _broken(name, error) from error
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise PictureError(
            name,
            f"too large ({width:,} x {height:,} pixels)",
            f"at most {MOST_PIXELS:,} are read: make it smaller first",
        )
    return image


def _known_formats() -> list[str]:
    """Those of our formats that the installed Pillow was built with."""
    Image.init()
    return [kind for kind in _FORMATS if kind in Image.OPEN]


def _kind(start: bytes) -> str | None:
    """The format whose signature a file begins with."""
    for kind in _known_formats():
        accept = Image.OPEN[kind][1]
        with suppress(Exception):  # a file that is shorter than a signature makes some of them raise
            if accept is not None and accept(start[:16]) is True:
                return kind
    return None


def _unknown(name: str, start: bytes) -> PictureError:
    """Why Pillow does not know a file, from its first bytes."""
    kind = _kind(start)
    if kind is None:
        return PictureError(name, "not a picture", "formats that can be read: " + ", ".join(_FORMATS))
    if kind in _SIZES and any(not any(start[slice(*place)]) for place in _SIZES[kind] if len(start) >= place[1]):
        return PictureError(name, f"a {kind} of zero pixels", "it has no height or no width")
    return PictureError(name, f"truncated or damaged ({kind})", "fetch it again")


def _broken(name: str, error: Exception) -> PictureError:
    if isinstance(error, MemoryError):
        return PictureError(name, "too large for the memory that is free", "make it smaller first")
    text = str(error)
    if isinstance(error, EOFError) or any(sign in text.lower() for sign in _CUT_SHORT):
        return PictureError(name, "truncated", f"the file is not whole ({text or 'it ends too early'}); fetch it again")
    return PictureError(name, f"damaged ({text or type(error).__name__})", "fetch it again")


def _upright(image: Image.Image) -> Image.Image:
    """The picture turned as its camera was held (a TIFF has been, by Pillow)."""
    orientation = None
    with suppress(Exception):  # a damaged EXIF block is no reason to refuse the picture
        orientation = image.getexif().get(_ORIENTATION)
    turn = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _pixels(image: Image.Image, channels: int) -> np.ndarray:
    """Any of Pillow's modes as bytes (height, width, channels)."""
    mode = "L" if channels == 1 else "RGB"
    if image.mode.startswith(("I", "F")):  # I, I;16, I;16B, F
        image = Image.fromarray(_as_bytes(np.asarray(image), image.mode))
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = _on_white(image)
    pixels = np.array(image if image.mode == mode else image.convert(mode))
    return pixels.reshape(*pixels.shape[:2], channels)


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode in ("La", "RGBa"):  # colours already multiplied with their alpha
        image = image.convert("LA" if image.mode == "La" else "RGBA")
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _as_bytes(grey: np.ndarray, mode: str) -> np.ndarray:
    """Grey of more than 8 bits, scaled to 0 .. 255 and rounded.

    16 bits go from 0 to 65535. Integers of 32 bits do too if they lie there (that is how some files of 16 bits are
    read), floats go from 0 to 1 or else from 0 to 255 if they lie there; anything else from its least to its greatest.
    """
    values = np.nan_to_num(grey.astype(np.float64), posinf=0.0, neginf=0.0)
    least, greatest = values.min(), values.max()
    tops = (1.0, 255.0) if mode == "F" else (65535.0,)
    top = next((top for top in tops if least >= 0 and greatest <= top), None)
    if top is None:
        values, top = values - least, greatest - least
    return np.rint(values * (255.0 / top)).astype(np.uint8)


class _Quiet:
    """While anyone reads a picture, Pillow's warnings about odd files are dropped: what matters is raised.

    `warnings.catch_warnings` restores a whole list and so is not safe with threads; here one filter comes with the
    first reader and goes with the last. Warnings from elsewhere, and Pillow's own limits, are untouched.
    """

    rule = ("ignore", None, Warning, re.compile(r"PIL\."), 0)

    def __init__(self) -> None:
        self.lock, self.readers = threading.Lock(), 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            self.readers += 1
            if self.rule not in warnings.filters:
                cast(list, warnings.filters).insert(0, self.rule)
        try:
            yield
        finally:
            with self.lock:
                self.readers -= 1
                if not self.readers and self.rule in warnings.filters:
                    cast(list, warnings.filters).remove(self.rule)


quiet = _Quiet()


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
            raise RegardError(
                f"there is no cell ({row}, {column}) in a grid of {rows} x {columns}", "both count from 0"
            )
        left, top, right, bottom = self.box
        wide, high = (right - left) / columns, (bottom - top) / rows
        return left + column * wide, top + row * high, left + (column + 1) * wide, top + (row + 1) * high


def fitted(shape: tuple[int, int], picture_format: PictureFormat) -> Fitted:
    """The geometry of `fit_picture` alone, for a picture of (height, width)."""
    height, width = shape
    if height < 1 or width < 1:
        raise RegardError(f"a picture of {height} x {width} pixels has nothing to show")
    if picture_format.fit == "squash":
        return Fitted((0.0, 0.0, float(width), float(height)), picture_format.size)
    if picture_format.fit == "crop":
        side = min(height, width)
        left, top = (width - side) / 2, (height - side) / 2
        return Fitted((left, top, left + side, top + side), picture_format.size)
    left, right = _padded(width, max(height, width), picture_format.size)
    top, bottom = _padded(height, max(height, width), picture_format.size)
    return Fitted((left, top, right, bottom), picture_format.size)


def fit_picture(picture: np.ndarray, picture_format: PictureFormat) -> np.ndarray:
    """Bytes (height, width, channels) as bytes (size, size, channels), resized with antialiasing.

    Grey becomes red, green and blue or the other way round if the format says so.
    """
    size = picture_format.size
    image = _image(picture, picture_format.channels)
    if picture.shape == (size, size, picture_format.channels):
        return picture.copy()
    if picture_format.fit == "pad":
        return _with_borders(image, picture_format)
    box = fitted((image.height, image.width), picture_format).box
    return _array(_resized(image, (size, size), box, picture_format))


def border_colour(picture_format: PictureFormat) -> tuple[int, ...]:
    """The mean of the format in bytes, one for each channel: to a model, borders of it are nothing special."""
    mean = picture_format.mean * picture_format.channels if len(picture_format.mean) == 1 else picture_format.mean
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


def _with_borders(image: Image.Image, picture_format: PictureFormat) -> np.ndarray:
    longest = max(image.size)
    wide, left = _inner(image.width, longest, picture_format.size)
    high, top = _inner(image.height, longest, picture_format.size)
    square = np.empty((picture_format.size, picture_format.size, picture_format.channels), dtype=np.uint8)
    square[:] = border_colour(picture_format)
    inner = _resized(image, (wide, high), (0, 0, image.width, image.height), picture_format)
    square[top : top + high, left : left + wide] = _array(inner)
    return square


def _resized(image: Image.Image, size: tuple[int, int], box: Box, picture_format: PictureFormat) -> Image.Image:
    """`box` of the image in `size` pixels. A large photo is first reduced by a whole factor to at least 3 x the size."""
    return image.resize(size, Image.Resampling[picture_format.resample.upper()], box=box, reducing_gap=3.0)


def _image(picture: np.ndarray, channels: int) -> Image.Image:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (1, 3) or 0 in picture.shape:
        raise RegardError(
            f"a picture is uint8 (height, width, 1 or 3), not {picture.dtype} {picture.shape}", "see read_picture"
        )
    image = Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _array(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    return pixels.reshape(*pixels.shape[:2], -1)  # (size, size, channels)
