"""Pictures decoded and fitted once, kept in a memory-mapped file: whoever asks again has them at once.

A file is a safetensors file with two tensors: `pictures`, and `left_out`, which is JSON of those that could not be read.
Whoever opens it knows at once whether it is whole; one that is not, or is of an older form, is made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from regard.data.mapped import ArrayWriter, map_arrays
from regard.data.named_files import LeftOut
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.decode import PictureError, border_colour, fit_picture, read_picture
from regard.data.pictures.sets import PictureSet
from regard.errors import RegardError
from regard.files import cache_of, writing

OnProgress = Callable[[int, int], None]  # (pictures done, pictures in all)

_RULES = b"regard pictures 1\n"  # how pictures are decoded and fitted; another number, and all stores are made anew
_PICTURES, _LEFT_OUT = "pictures", "left_out"  # the tensors
_EVERY = 64  # progress is told after as many pictures
_CHUNK = 1024  # pictures hashed at once
_DAY = 86_400.0  # seconds; a half-written file that old has no writer any more


@dataclass(frozen=True, eq=False)
class PictureStore:
    """Pictures of one size. They may be mapped from a file: only what is taken is read."""

    pictures: np.ndarray  # (N, size, size, channels), uint8
    kept: np.ndarray  # (N,), int64: which pictures of the set these are
    notes: tuple[str, ...]  # what was left out
    sha256: str  # of the pictures' bytes
    left_out: tuple[LeftOut, ...] = ()  # each that is not here, by its name, and why
    paths: tuple[Path, ...] = ()  # of all pictures of the set, if they have files

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The pictures in these rows of the store, as bytes (n, size, size, channels) of their own."""
        return self.pictures[np.asarray(rows, dtype=np.int64)]

    def name(self, row: int) -> str:
        """The file of a picture, or its number, from 0, where pictures have no files."""
        place = int(self.kept[row])
        return str(self.paths[place]) if self.paths else f"picture {place}"


class ArrayStore(PictureStore):
    """Pictures that have the size and the channels of the format already: they stay where they are."""

    def __init__(self, pictures: np.ndarray) -> None:
        super().__init__(pictures, np.arange(len(pictures)), (), _array_hash(pictures))


def open_store(
    pictures: PictureSet | Sequence[Path],
    picture_format: PictureFormat,
    folder: Path | None = None,
    progress: OnProgress | None = None,
) -> PictureStore:
    """The pictures of a set, decoded and fitted: from `folder` (`cache_folder()` if there is none), or made now."""
    if not len(pictures):
        raise RegardError("there are no pictures to decode", "name some")
    pictures = pictures if isinstance(pictures, PictureSet) else PictureSet(tuple(pictures))
    shape = (picture_format.size, picture_format.size, picture_format.channels)
    if pictures.arrays is not None and pictures.arrays.shape[1:] == shape:
        return ArrayStore(pictures.arrays)
    path = (cache_folder() if folder is None else Path(folder)) / f"{_key(pictures, picture_format)}.pictures"
    store = _open(path, pictures, shape)
    if store is None or _mended(pictures, store):
        _build(path, pictures, picture_format, progress)
        store = _open(path, pictures, shape)
    if store is None:
        raise RegardError(
            f"{path} was damaged as soon as it was written", "set REGARD_CACHE to a folder on another disk"
        )
    return store


def cache_folder() -> Path:
    """$REGARD_CACHE/pictures, or ~/.cache/regard/pictures."""
    return cache_of("pictures")


def _key(pictures: PictureSet, picture_format: PictureFormat) -> str:
    """A SHA-256 over all that the bytes of a store depend on: where, how large and how old each file is, and the format."""
    border = border_colour(picture_format) if picture_format.fit == "pad" else None
    shape = (picture_format.size, picture_format.channels)
    digest = hashlib.sha256(repr((_RULES, *shape, picture_format.fit, picture_format.resample, border)).encode())
    if pictures.arrays is not None:
        digest.update(_array_hash(pictures.arrays).encode())
    for path in pictures.paths:
        digest.update(repr((os.path.abspath(path), *_size_and_time(path))).encode())
    return digest.hexdigest()


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _array_hash(arrays: np.ndarray) -> str:
    digest = hashlib.sha256(repr(arrays.shape).encode())
    for start in range(0, len(arrays), _CHUNK):
        digest.update(np.ascontiguousarray(arrays[start : start + _CHUNK]).data)
    return digest.hexdigest()


def _open(path: Path, pictures: PictureSet, shape: tuple[int, ...]) -> PictureStore | None:
    """The store in a file, mapped; None if there is no file, or if it is not whole."""
    try:
        with open(path, "rb") as file:
            arrays, about = map_arrays(file)
            mapped = _fitting(arrays[_PICTURES], shape)
            left_out, digest = json.loads(arrays[_LEFT_OUT].tobytes()), about["sha256"]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegardError(
            f"cannot read {path}: {error.strerror or error}", "set REGARD_CACHE to another folder"
        ) from error
    except (ValueError, KeyError, TypeError):
        return None
    kept = np.setdiff1d(np.arange(len(pictures)), np.array([index for index, _ in left_out], dtype=np.int64))
    notes = (_note(pictures, left_out),) if left_out else ()
    named = tuple((_name(pictures, index), reason) for index, reason in left_out)
    return PictureStore(mapped, kept, notes, digest, (*pictures.left_out, *named), pictures.paths)


def _fitting(pictures: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The pictures as a plain array, if they have this shape; a ValueError if not."""
    if pictures.dtype != np.uint8 or pictures.shape[1:] != shape:
        raise ValueError(f"pictures {pictures.shape[1:]} and not {shape}")
    return np.asarray(pictures)


def _mended(pictures: PictureSet, store: PictureStore) -> bool:
    """Whether a picture that could not be read can be now: rights to read leave no trace in sizes and times."""
    for index in np.setdiff1d(np.arange(len(pictures)), store.kept):
        with contextlib.suppress(PictureError):
            _picture(pictures, int(index))
            return True
    return False


def _note(pictures: PictureSet, left_out: Sequence[tuple[int, str]]) -> str:
    index, reason = left_out[0]
    more = f" (and {len(left_out) - 1:,} more)" if len(left_out) > 1 else ""
    return f"{len(left_out):,} of {len(pictures):,} pictures left out: {_name(pictures, index)}: {reason}{more}"


def _name(pictures: PictureSet, index: int) -> str:
    return str(pictures.paths[index]) if pictures.paths else f"picture {index}"


def _picture(pictures: PictureSet, index: int, channels: int = 3) -> np.ndarray:
    if pictures.arrays is not None:
        return pictures.arrays[index]
    return read_picture(pictures.paths[index], channels)


def _build(path: Path, pictures: PictureSet, picture_format: PictureFormat, progress: OnProgress | None) -> None:
    """Write a store's file, whole or not at all. Two processes that do so at once write the same, each under its own name."""
    needed = len(pictures) * picture_format.size**2 * picture_format.channels
    advice = f"{needed / 1e6:,.0f} MB are needed: make room, or set REGARD_CACHE to a folder that has it"
    with writing(path, advice) as file:
        _clear_old(path.parent)
        free = shutil.disk_usage(path.parent).free
        if free < needed:
            raise RegardError(f"cannot write {path}: {free / 1e6:,.0f} MB are free", advice)
        _write(file, pictures, picture_format, progress)


def _write(file: IO[bytes], pictures: PictureSet, picture_format: PictureFormat, progress: OnProgress | None) -> None:
    """Write the pictures, one in memory at a time, and which were left out."""
    left_out = list[tuple[int, str]]()
    writer = ArrayWriter(file, _PICTURES, "u1", (picture_format.size, picture_format.size, picture_format.channels))
    for index in _counted(range(len(pictures)), progress):
        try:
            picture = _picture(pictures, index, picture_format.channels)
        except PictureError as error:
            left_out.append((index, error.reason))
            continue
        writer.write(fit_picture(picture, picture_format))
    if not writer.count:
        raise RegardError("none of the pictures can be read", _note(pictures, left_out))
    writer.finish({}, {_LEFT_OUT: json.dumps(left_out).encode()})


def _counted(indices: range, progress: OnProgress | None) -> Iterator[int]:
    for index in indices:
        yield index
        if progress is not None and ((index + 1) % _EVERY == 0 or index + 1 == len(indices)):
            progress(index + 1, len(indices))


def _clear_old(folder: Path) -> None:
    """Remove half-written files of writers that were killed; one that still writes has touched its file today."""
    old: Iterable[Path] = folder.glob(".*.pictures.*.tmp")
    for file in old:
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _DAY:
                file.unlink(missing_ok=True)
