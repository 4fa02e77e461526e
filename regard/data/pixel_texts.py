"""Pictures as texts in digits (`regard/tokens/pixels.py`): files, MNIST's and CIFAR's sets, and figures that the package draws.

Each picture is fitted into a square and made grey. With two levels a pixel is drawn once, white with probability grey / 255, by
a generator whose key is a fixed seed and the SHA-256 of the picture's bytes: it is always drawn the same way (the binary MNIST
of Salakhutdinov & Murray 2008). With more levels its grey is rounded to the nearest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from regard.data.builtin.figures import figures
from regard.data.form import Form, is_packed
from regard.data.notation import FIGURE_SIDE
from regard.data.pictures.config import PictureFormat, is_picture
from regard.data.pictures.decode import PictureError, fit_picture, read_picture
from regard.data.pictures.sets import PictureSet, read_idx, read_idx_folder, read_rows_bin, read_rows_png
from regard.errors import RegardError, UsageError
from regard.tokens.pixels import write_digits

SEED = 2008
USUAL = 28  # pixels of a side, where pictures are large and nobody says how many: each pixel is a token
LARGEST = 64
TRIED = 50  # files of a folder that may be broken before its side is given up
SEEDS = {"train": 1, "valid": 2, "test": 3}


def pixel_text(path: Path, label: str, form: Form) -> str:
    """A file of a picture in digits, behind its label."""
    return _text(read_picture(path, 1), label, form, form.side or side_of([path]))


def set_texts(paths: Sequence[Path], form: Form) -> Iterator[str]:
    """The pictures of a set that is packed in files: MNIST's idx files or a folder of them, CIFAR's rows."""
    found = read_packed(paths)
    assert found.arrays is not None
    side = form.side or _fitting(*found.arrays.shape[1:3])
    labels = [""] * len(found) if found.labels is None else [found.names[label] for label in found.labels]
    return (_text(picture, label, form, side) for picture, label in zip(found.arrays, labels, strict=True))


def read_packed(paths: Sequence[Path]) -> PictureSet:
    """The pictures in packed files, with labels where a file of them is named."""
    first = paths[0]
    if first.is_dir():
        return read_idx_folder(first)
    if "-ubyte" in first.name:
        return read_idx(*paths[:2])
    if first.suffix == ".bin":
        return read_rows_bin(*paths)
    if len(paths) < 2:
        raise UsageError(f"{first} holds rows of pictures", "name the .json of their labels behind it")
    return read_rows_png(paths[0], paths[1])


def figure_texts(name: str, split: str, size: int, form: Form) -> Iterator[str]:
    """The figures of builtin/figures, each with its label, with about so many pixels in all."""
    side = form.side or FIGURE_SIDE
    pictures, labels = figures(max(1, size // side**2), SEEDS[split], side)
    return (_text(picture, label, form, side) for picture, label in zip(pictures, labels, strict=True))


def side_of(paths: Sequence[Path]) -> int:
    """Height and width of what is read from here where nobody says: that of the pictures, if they are small."""
    first = paths[0]
    if is_packed(first):
        found = read_packed(paths)
        assert found.arrays is not None
        return _fitting(*found.arrays.shape[1:3])
    for file in islice(_pictures_in(first), TRIED):
        try:
            return _fitting(*read_picture(file, 1).shape[:2])
        except PictureError:
            continue
    raise RegardError(f"{first} holds no picture that can be read", "name a folder of pictures, or MNIST's files")


def draw_levels(grey: np.ndarray, levels: int) -> np.ndarray:
    """The levels of bytes of grey, of any shape."""
    if levels > 2:
        return np.rint(grey * ((levels - 1) / 255)).astype(np.int64)
    key = int.from_bytes(hashlib.sha256(np.ascontiguousarray(grey).tobytes()).digest()[:8], "big")
    random = np.random.Generator(np.random.SFC64(np.random.SeedSequence((SEED, key))))
    return (random.random(grey.shape) * 255 < grey).astype(np.int64)


def _text(picture: np.ndarray, label: str, form: Form, side: int) -> str:
    fitted = fit_picture(picture, PictureFormat(size=side, channels=1))
    return write_digits(draw_levels(fitted, form.levels), label)


def _pictures_in(path: Path) -> Iterator[Path]:
    if path.is_dir():
        return (file for file in sorted(path.rglob("*")) if is_picture(file) and not file.name.startswith("."))
    return iter((path,))


def _fitting(height: int, width: int) -> int:
    return height if height == width <= LARGEST else min(USUAL, height, width)
