"""Arrays in a safetensors file, written row by row and read mapped: the whole is never in memory.

    8 bytes    how long the header is, little-endian
    header     JSON: dtype, shape and place of each tensor, and "__metadata__"; then spaces, up to the room left for it
    tensors    their bytes, one tensor after the other

The header stands in front and says how many rows there are, which is known only at the end: room is left for it, and it is
written last. Any library of safetensors opens such a file (https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

_LENGTH = 8  # bytes of the number in front
_ROOM = 1024 - _LENGTH  # bytes left for a header of ours, which has some 300
_MOST = 100_000_000  # bytes of anyone's header; the format allows no more
_METADATA = "__metadata__"
HELD = 1 << 26  # bytes of texts that are read before their pages are given back
_DTYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I16": np.dtype("<i2"),
    "F32": np.dtype("<f4"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class ArrayWriter:
    """Writes one large tensor piece by piece, then perhaps small ones, then the header in front of them.

    writer = ArrayWriter(file, "tokens", "<u2")
    writer.write(ids)                            again and again
    writer.finish({"vocabulary": "300"})         and the SHA-256 of all that was written
    """

    def __init__(self, file: IO[bytes], name: str, dtype: str, row: tuple[int, ...] = ()) -> None:
        self.file, self.name, self.dtype, self.row = file, name, np.dtype(dtype), row
        self.size = 0  # bytes so far
        self.digest = hashlib.sha256()
        file.write(bytes(_LENGTH + _ROOM))

    @classmethod
    def again(cls, file: IO[bytes], name: str, dtype: str, row: tuple[int, ...], size: int) -> ArrayWriter:
        """Go on with a file of which `size` bytes of the tensor are good; what stands behind them goes."""
        file.seek(0)
        writer = cls(file, name, dtype, row)
        while writer.size < size:
            if not (data := file.read(min(1 << 20, size - writer.size))):
                raise ValueError(f"{size:,} bytes should be there and {writer.size:,} are")
            writer.digest.update(data)
            writer.size += len(data)
        file.seek(_LENGTH + _ROOM + size)
        file.truncate()
        return writer

    def values(self) -> np.ndarray:
        """All that was written so far, mapped."""
        self.file.flush()
        shape = (self.count, *self.row)
        return np.asarray(np.memmap(self.file.name, self.dtype, mode="r", offset=_LENGTH + _ROOM, shape=shape))

    def write(self, values: np.ndarray) -> None:
        """Append some values; a row has the shape `row`."""
        data = values.astype(self.dtype, copy=False).tobytes()
        self.digest.update(data)
        self.file.write(data)
        self.size += len(data)

    @property
    def count(self) -> int:
        """Rows so far."""
        return self.size // (self.dtype.itemsize * math.prod(self.row))

    def finish(self, about: Mapping[str, str], behind: Mapping[str, bytes] | None = None) -> None:
        """Write small tensors of bytes behind the large one, then the header with `about` as its metadata."""
        header: dict[str, object] = {_METADATA: {"sha256": self.digest.hexdigest(), **about}}
        header[self.name] = _entry(self.dtype, (self.count, *self.row), 0, self.size)
        place = self.size
        for name, data in (behind or {}).items():
            self.file.write(data)
            header[name] = _entry(_DTYPES["U8"], (len(data),), place, place + len(data))
            place += len(data)
        line = json.dumps(header).encode()
        if len(line) > _ROOM:
            raise ValueError(f"a header of {len(line):,} bytes does not fit into {_ROOM:,}")
        self.file.seek(0)
        self.file.write(_ROOM.to_bytes(_LENGTH, "little") + line.ljust(_ROOM))


def _entry(dtype: np.dtype[Any], shape: tuple[int, ...], start: int, end: int) -> dict[str, object]:
    return {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": (start, end)}


def map_arrays(file: IO[bytes]) -> tuple[dict[str, np.memmap[Any, Any]], dict[str, str]]:
    """Map the tensors of a file, read-only, and read its metadata; a ValueError if the file is not whole."""
    try:
        header, start, size = _read_header(file)
        about = header.pop(_METADATA, {})
        shapes = _checked(header, size - start)
        arrays = {
            name: np.memmap(file, dtype, mode="r", offset=start + place, shape=shape)
            for name, (dtype, shape, place) in shapes.items()
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is damaged ({error!r})") from error
    return arrays, about


class MappedBytes:
    """Texts in an array of bytes that may be mapped; pages are given back as they are read.

    They would count as memory of the process otherwise, in the end as much as the file is large.
    """

    def __init__(self, data: np.ndarray) -> None:
        self.data = np.asarray(data)  # a view of a map, which is sliced much faster
        self._read = 0  # bytes, since pages were given back

    def read(self, start: int, end: int) -> bytes:
        """The bytes from one place to another."""
        found = self.data[start:end].tobytes()
        self._read += len(found)
        if self._read >= HELD:
            release_pages(self.data)
            self._read = 0
        return found


def release_pages(array: np.ndarray) -> None:
    """Give back what was read of a mapped array: it leaves this process's memory, and is mapped again when it is read again."""
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def _read_header(file: IO[bytes]) -> tuple[dict[str, Any], int, int]:
    """The header, where the tensors begin, and how large the file is."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(_LENGTH), "little")
    if not 0 < length <= min(size - _LENGTH, _MOST):
        raise ValueError("it has no header")
    try:
        return json.loads(file.read(length)), _LENGTH + length, size
    except ValueError as error:
        raise ValueError("its header is damaged") from error


def _checked(header: Mapping[str, Any], size: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], int]]:
    """Dtype, shape and place of each tensor: together they are all `size` bytes, without a gap."""
    found, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda each: each[1]["data_offsets"]):
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        if entry["data_offsets"] != [end, end + dtype.itemsize * math.prod(shape)]:
            raise ValueError(f"the place of {name} is not that of {shape} values")
        found[name], end = (dtype, shape, end), entry["data_offsets"][1]
    if end != size:
        raise ValueError(f"{end:,} bytes of tensors should be there and {size:,} are")
    return found
