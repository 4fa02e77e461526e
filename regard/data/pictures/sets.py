"""Sets of pictures from what people have: a folder for each class, MNIST's idx files, CIFAR-10's rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import PngImagePlugin

from regard.data.lines import opened, read_lines
from regard.data.named_files import LeftOut
from regard.data.pictures.captions import CaptionSet, QuestionSet, read_captions, read_questions
from regard.data.pictures.config import is_picture
from regard.data.pictures.decode import quiet
from regard.errors import RegardError, UsageError
from regard.files import read_json

__all__ = [
    "CaptionSet",
    "PictureSet",
    "QuestionSet",
    "read_captions",
    "read_idx",
    "read_idx_folder",
    "read_picture_folder",
    "read_picture_set",
    "read_questions",
    "read_rows_bin",
    "read_rows_png",
]

_NAMED = 3  # of the files left out, as many are named
_IDX = {3: "pictures (unsigned bytes in 3 dimensions)", 1: "labels (unsigned bytes in 1 dimension)"}
_SIDE = 32  # CIFAR's pictures are 32 x 32 x 3
_ROW = _SIDE * _SIDE * 3


@dataclass(frozen=True, eq=False)
class PictureSet:
    """Pictures in files or in one array, the number of the class of each, the names of the classes, and what was left out."""

    paths: tuple[Path, ...] = ()
    arrays: np.ndarray | None = None  # (N, height, width, channels), uint8, perhaps mapped from a file
    labels: np.ndarray | None = None  # (N,), int64
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.paths) == (self.arrays is not None):
            raise RegardError("a set of pictures has either paths or arrays")
        if self.arrays is not None and (self.arrays.dtype != np.uint8 or self.arrays.ndim != 4):
            raise RegardError(
                f"pictures are uint8 (N, height, width, channels), not {self.arrays.dtype} {self.arrays.shape}"
            )
        if self.labels is not None and len(self.labels) != len(self):
            raise RegardError(f"{len(self):,} pictures and {len(self.labels):,} labels", "there must be one for each")

    def __len__(self) -> int:
        return len(self.paths) if self.arrays is None else len(self.arrays)


def read_picture_set(places: Sequence[Path]) -> PictureSet:
    """Labelled pictures by the form of what is named: a folder, idx files, CIFAR's rows."""
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
        f"{first} is no set of pictures",
        "name a folder with a class a folder, two idx files (pictures, labels), "
        "CIFAR's .bin files, or a .png of rows and its labels as .json",
    )


def read_picture_folder(folder: str | Path) -> PictureSet:
    """A folder for each class, named like it, with its pictures; those in folders below belong to it too."""
    folder = Path(folder)
    classes = [path for path in _entries(folder) if path.is_dir()]
    files = [(path, found.name) for found in classes for path in _walk(found)]
    pictures = [(path, name) for path, name in files if is_picture(path)]
    names = tuple(sorted({name for _, name in pictures}))
    if len(names) < 2:
        raise RegardError(
            f"{folder} should hold a folder for each of at least two classes, with their pictures; "
            + (f"only {names[0]} has any" if names else "there are none")
        )
    other = [path for path in _entries(folder) if not path.is_dir()]
    other += [path for path, _ in files if not is_picture(path)]
    notes = [_left_out(folder, other, "files that are no pictures by their names or lie in no class")] if other else []
    empty = [path for path in classes if path.name not in names]
    notes += [_left_out(folder, empty, "classes without a picture")] if empty else []
    number = {name: index for index, name in enumerate(names)}
    labels = np.array([number[name] for _, name in pictures], dtype=np.int64)
    left_out = tuple((str(path), "no picture by its name, or in no class") for path in other)
    return PictureSet(tuple(path for path, _ in pictures), None, labels, names, tuple(notes), left_out)


def read_idx(images_path: str | Path, labels_path: str | Path | None = None) -> PictureSet:
    """Pictures, and labels if they are given, in MNIST's idx format, gzipped or not."""
    arrays = _idx(Path(images_path), 3)[..., None]  # (N, height, width, 1)
    if labels_path is None:
        return PictureSet(arrays=arrays)
    labels = _idx(Path(labels_path), 1).astype(np.int64)
    if len(labels) != len(arrays):
        raise RegardError(f"{images_path} holds {len(arrays):,} pictures and {labels_path} {len(labels):,} labels")
    return PictureSet(arrays=arrays, labels=labels, names=_numbers(labels))


def read_idx_folder(folder: str | Path, part: Literal["train", "test"] = "train") -> PictureSet:
    """A part of MNIST (or of what is packed like it) under the names of its files."""
    start = {"train": "train", "test": "t10k"}.get(part)
    if start is None:
        raise UsageError(f"there is no part {part!r}", "take train or test")
    folder = Path(folder)
    return read_idx(_idx_file(folder, f"{start}-images", 3), _idx_file(folder, f"{start}-labels", 1))


def read_rows_png(
    png_path: str | Path, labels_json: str | Path, names: Sequence[str] = (), start: int = 0
) -> PictureSet:
    """CIFAR as PNG: each row of pixels is a picture of 32 x 32 x 3, and a list of numbers in JSON has their labels.

    One list may serve several files: the label of the first row is at `start` in it, and a note tells what is left over.
    """
    png_path, labels_json = Path(png_path), Path(labels_json)
    labels = read_json(labels_json)
    if not isinstance(labels, list) or not labels:
        raise RegardError(f"{labels_json} should be a list of numbers, one for each picture")
    for place, label in enumerate(labels, start=1):
        if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label < 2**31:
            raise RegardError(
                f"{labels_json}, entry {place}: {label!r} is not the number of a class", "they count from 0"
            )
    numbers = np.array(labels, dtype=np.int64)
    arrays = _png_rows(png_path, len(labels) - start)
    end = start + len(arrays)
    notes: tuple[str, ...] = ()
    if len(arrays) < len(labels):
        used = f"{png_path} has {len(arrays):,} rows and {labels_json} {len(labels):,} labels"
        notes = (f"{used}: the rows have labels {start + 1:,} to {end:,}",)
    return PictureSet((), arrays, numbers[start:end], _names(names, numbers, labels_json), notes)


def read_rows_bin(*paths: str | Path) -> PictureSet:
    """CIFAR-10's own binary files, one after the other: a byte for the label, 1,024 for red, green and blue each.

    The names of the classes are read from batches.meta.txt if it lies beside the first.
    """
    if not paths:
        raise UsageError("name at least one file, such as data_batch_1.bin")
    rows = np.concatenate([_bin_rows(Path(path)) for path in paths])  # (N, 1 + 3072)
    planes = rows[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    labels = rows[:, 0].astype(np.int64)
    about = Path(paths[0]).with_name("batches.meta.txt")
    names = [line.strip() for line in read_lines(about) if line.strip()] if about.is_file() else []
    arrays = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))  # (N, 32, 32, 3)
    return PictureSet(arrays=arrays, labels=labels, names=_names(names, labels, about))


def _entries(folder: Path) -> list[Path]:
    """The visible entries of a folder, sorted by name."""
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
    except OSError as error:
        raise RegardError(f"cannot read {folder}: {error.strerror or error}") from error


def _walk(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        if not entry.is_dir():
            yield entry
        elif not entry.is_symlink():  # a link to a folder above would never end
            yield from _walk(entry)


def _left_out(folder: Path, paths: Sequence[Path], what: str) -> str:
    named = ", ".join(str(path.relative_to(folder)) for path in paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
    return f"{folder}: left out {len(paths):,} {what} ({named})"


def _numbers(labels: np.ndarray) -> tuple[str, ...]:
    return tuple(str(number) for number in range(int(labels.max()) + 1))


def _names(names: Sequence[str], labels: np.ndarray, source: Path) -> tuple[str, ...]:
    """The names given, or else the numbers as text."""
    if names and labels.max() >= len(names):
        place = int(labels.argmax())
        raise RegardError(
            f"{source}: entry {place + 1} has class {labels[place]}, but there are only {len(names)} names, from 0 on"
        )
    return tuple(names) or _numbers(labels)


def _idx_file(folder: Path, start: str, dimensions: int) -> Path:
    names = [f"{start}{sign}idx{dimensions}-ubyte{end}" for sign in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise RegardError(f"there is no {names[0]} in {folder}, nor {', '.join(names[1:])}")


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of an idx file in their shape; they are mapped if the file is not gzipped."""
    start = 4 + 4 * dimensions
    with opened(path) as file:
        header = file.read(start)
        data = file.read() if path.suffix == ".gz" else None
    if header[:4] != bytes([0, 0, 8, dimensions]):
        raise RegardError(
            f"{path} begins with 0x{header[:4].hex()}, not with 0x0000080{dimensions}: these are no {_IDX[dimensions]}"
        )
    shape = tuple(int.from_bytes(header[place : place + 4], "big") for place in range(4, len(header), 4))
    wanted, found = math.prod(shape), path.stat().st_size - start if data is None else len(data)
    if len(header) < start or found != wanted:
        trouble = "truncated" if len(header) < start or found < wanted else "too long"
        size = " x ".join(f"{length:,}" for length in shape)
        raise RegardError(f"{path} is {trouble}: it says {size} and has {max(0, found):,} bytes", "fetch it again")
    if not wanted:
        raise RegardError(f"{path} is empty: it says {' x '.join(map(str, shape))}")
    if data is None:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r", offset=start, shape=shape))
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _png_rows(path: Path, most: int) -> np.ndarray:
    """The rows of a PNG as pictures. It is large by its nature: its size is checked here, and not against Pillow's limit."""
    with opened(path) as file, quiet():
        try:
            image = PngImagePlugin.PngImageFile(file)
        except Exception as error:  # of damaged files Pillow raises nearly anything
            raise RegardError(f"{path} is not a whole PNG ({error})") from error
        row = image.width * {"RGB": 3, "L": 1}.get(image.mode, 0)
        if row != _ROW:
            raise RegardError(
                f"{path}: {image.width} x {image.mode} in a row",
                f"each row should be a picture of {_ROW:,} bytes (1,024 RGB or 3,072 grey)",
            )
        if image.height > most:
            raise RegardError(f"{path} has {image.height:,} rows, and there are {max(0, most):,} labels for them")
        try:
            image.load()
        except Exception as error:
            raise RegardError(f"{path} is truncated or damaged ({error})", "fetch it again") from error
        return np.array(image).reshape(-1, _SIDE, _SIDE, 3)


def _bin_rows(path: Path) -> np.ndarray:
    with opened(path) as file:
        data = np.frombuffer(file.read(), dtype=np.uint8)
    if not len(data) or len(data) % (1 + _ROW):
        raise RegardError(
            f"{path} has {len(data):,} bytes, which are no rows of {1 + _ROW:,} (a label, then a picture of {_ROW:,})",
            "it is truncated or no file of CIFAR-10",
        )
    rows = data.reshape(-1, 1 + _ROW)
    wrong = np.flatnonzero(rows[:, 0] > 9)
    if len(wrong):
        raise RegardError(f"{path}, row {wrong[0] + 1}: label {rows[wrong[0], 0]}", "CIFAR-10 has 0 to 9")
    return rows
