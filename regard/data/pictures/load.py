"""Training and validation pictures as a configuration names them: read, fitted, kept, and some held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from regard.config import find_file
from regard.data.pictures.config import PicturesConfig, SeenConfig
from regard.data.pictures.decode import PictureError, read_picture
from regard.data.pictures.format import PictureFormat
from regard.data.pictures.glyphs import FONTS, TEST_FONTS, glyphs
from regard.data.pictures.sets import (
    PictureSet,
    read_idx,
    read_idx_folder,
    read_picture_folder,
    read_rows_bin,
    read_rows_png,
)
from regard.data.pictures.store import PictureStore, Progress, open_store
from regard.errors import RegardError, UsageError

GLYPHS = "builtin/glyphs"
SMALL, USUAL = 96, 64  # pictures up to so many pixels stay as they are; larger ones are fitted into so many
SAMPLE = 2000  # pictures whose mean and deviation are taken
CHUNK = 512


@dataclass(frozen=True, eq=False)
class Part:
    """Pictures of a store that belong together, each with its label."""

    store: PictureStore
    rows: np.ndarray  # (N,) places in the store
    labels: np.ndarray  # (N,)


@dataclass(frozen=True, eq=False)
class LabelledPictures:
    """All that a classifier of pictures learns from."""

    train: Part
    valid: Part
    names: tuple[str, ...]
    format: PictureFormat
    notes: tuple[str, ...]


def load_pictures(
    config: PicturesConfig, beside: Path | None = None, progress: Progress | None = None
) -> LabelledPictures:
    """Training and validation pictures with the names of their classes."""
    found = read_pictures(config.train, beside, size=config.builtin_size)
    format = format_for(config, found)
    train, notes = as_part(found, format, progress)
    if config.valid or config.train == (GLYPHS,):
        names = config.valid or (f"{GLYPHS}/valid",)
        held = read_pictures(names, beside, size=min(config.hold_out, config.builtin_size))
        valid, more = as_part(renamed(held, found.names), format, progress)
    else:
        inside = held_out(train.store, train.rows, config.hold_out)
        valid = Part(train.store, train.rows[inside], train.labels[inside])
        train = Part(train.store, train.rows[~inside], train.labels[~inside])
        more = (f"no validation pictures: held out {len(valid.rows):,}",)
    format = with_statistics(format, train.store, train.rows)
    return LabelledPictures(train, valid, found.names, format, (*notes, *more))


def read_pictures(names: Sequence[str], beside: Path | None, size: int = 1000) -> PictureSet:
    """A set of labelled pictures by its name or names."""
    if names[0].startswith(GLYPHS):
        return _drawn(names[0], size)
    places = [find_file(name, beside) for name in names]
    first = places[0]
    if first.is_dir():
        return read_idx_folder(first) if any(first.glob("*-idx3-ubyte*")) else read_picture_folder(first)
    if len(places) == 2 and "ubyte" in first.name:
        return read_idx(*places)
    if len(places) == 2 and first.suffix == ".png":
        return read_rows_png(places[0], places[1])
    if first.suffix == ".bin":
        return read_rows_bin(*places)
    raise UsageError(
        f"{names[0]} is no set of pictures; name a folder with a class a folder, two idx files (pictures, labels), "
        "CIFAR's .bin files, or a .png of rows and its labels as .json"
    )


def _drawn(name: str, size: int) -> PictureSet:
    seeds = {GLYPHS: 1, f"{GLYPHS}/valid": 2, f"{GLYPHS}/test": 3}
    if name not in seeds:
        raise UsageError(f"no built-in pictures {name}; there are {', '.join(seeds)}")
    fonts = TEST_FONTS if name.endswith("/test") else FONTS  # a test also asks for fonts that were never seen
    arrays, labels, names = glyphs(size, seeds[name], fonts=fonts)
    return PictureSet(arrays=arrays, labels=labels, names=names)


def format_for(config: SeenConfig, found: PictureSet) -> PictureFormat:
    """How large the pictures are that a model sees: as asked, or as they are if they are small."""
    height, width, channels = shape_of(found)
    small = height == width <= SMALL
    return PictureFormat(size=config.size or (height if small else USUAL), channels=channels, fit=config.fit)


def shape_of(found: PictureSet) -> tuple[int, int, Literal[1, 3]]:
    """Height, width and channels of the first picture that can be read; files are taken to be coloured."""
    if found.arrays is not None:
        _, height, width, channels = found.arrays.shape
        return height, width, 1 if channels == 1 else 3
    for path in found.paths:
        try:
            height, width, _ = read_picture(path).shape
            return height, width, 3
        except PictureError:
            continue
    raise RegardError(f"none of {len(found.paths):,} pictures can be read; the first is {found.paths[0]}")


def as_part(found: PictureSet, format: PictureFormat, progress: Progress | None = None) -> tuple[Part, tuple[str, ...]]:
    """The pictures of a set, decoded and fitted; broken ones are left out, and it is told."""
    assert found.labels is not None
    store = open_store(found, format, progress=progress)
    return Part(store, np.arange(len(store)), found.labels[store.kept]), (*found.notes, *store.notes)


def renamed(held: PictureSet, names: tuple[str, ...]) -> PictureSet:
    """The validation set with its labels numbered as in training."""
    unknown = sorted(set(held.names) - set(names))
    if unknown:
        raise RegardError(f"validation has classes that training has not: {', '.join(unknown[:5])}")
    assert held.labels is not None
    places = np.array([names.index(name) for name in held.names])
    return replace(held, labels=places[held.labels], names=names)


def held_out(store: PictureStore, rows: np.ndarray, most: int) -> np.ndarray:
    """Which rows are held out, a tenth or about `most`: a hash of the pixels decides, so equal pictures stay together."""
    limit = int(min(0.1, most / len(rows)) * 2**64)
    inside = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), CHUNK):
        pictures = store.take(rows[start : start + CHUNK])
        for place, picture in enumerate(pictures, start):
            digest = hashlib.blake2b(np.ascontiguousarray(picture).tobytes(), digest_size=8).digest()
            inside[place] = int.from_bytes(digest, "big") < limit
    if not inside.any() or inside.all():
        raise RegardError(f"{len(rows)} pictures are too few to hold some out; name a validation set (data.valid)")
    return inside


def with_statistics(format: PictureFormat, store: PictureStore, rows: np.ndarray) -> PictureFormat:
    """The format with mean and deviation of each channel, of evenly spread training pictures."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(int)]
    pixels = store.take(np.unique(chosen)).reshape(-1, format.channels) / 255.0
    mean, deviation = pixels.mean(axis=0), np.maximum(pixels.std(axis=0), 1e-3)
    return format.model_copy(
        update={
            "mean": tuple(round(float(m), 4) for m in mean),
            "deviation": tuple(round(float(d), 4) for d in deviation),
        }
    )
