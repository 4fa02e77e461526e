"""Arrays that are written piece by piece, in memory or into files; what is killed in the middle goes on where it was.

    build.state                          how far it was, as `commit` last wrote it down; {} at the beginning
    ids = build.column("ids", "<u2")
    ids.append(values)                   again and again
    build.commit({"rows": 70_000})       now and then: all of this is on disk

Files grow in FOLDER.part. FOLDER.journal says how many bytes of each are good and what had been read by then: after `kill -9`
or on a full disk the files are cut back to that, and the same bytes follow as if nothing had happened. At the end the folder
gets its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from regard.data.mapped import ArrayWriter, map_arrays
from regard.errors import RegardError
from regard.files import read_json, sync_folder, write_json

EVERY = 5.0  # seconds between commits: what a kill costs
ABOUT, SUFFIX = "about.json", ".safetensors"

State = dict[str, Any]  # JSON


class Column(Protocol):
    """One array that grows."""

    def append(self, values: np.ndarray) -> None: ...

    def values(self) -> np.ndarray:
        """All that was appended so far."""
        ...


class Build(Protocol):
    """Where arrays are written to."""

    state: State

    def column(self, name: str, dtype: str, row: tuple[int, ...] = (), *, kept: bool = True) -> Column:
        """A column of rows of this shape; one that is not `kept` is gone when all is made."""
        ...

    def commit(self, state: State) -> None:
        """Make safe what was written, if that was not done just now."""
        ...


@dataclass(frozen=True, eq=False)
class Kept:
    """Arrays that belong together, and what is known about them."""

    arrays: dict[str, np.ndarray]
    about: State
    key: str = ""  # where they are kept; "": only in memory
    digests: dict[str, str] | None = None  # SHA-256 of each array's bytes


# --- In memory


class MemoryColumn:
    """A column that is a list of arrays, joined when they are asked for."""

    def __init__(self, dtype: str, row: tuple[int, ...]) -> None:
        self.parts = [np.empty((0, *row), dtype=dtype)]

    def append(self, values: np.ndarray) -> None:
        self.parts.append(np.asarray(values, dtype=self.parts[0].dtype))

    def values(self) -> np.ndarray:
        self.parts = [np.concatenate(self.parts)]
        return self.parts[0]


class MemoryBuild:
    """Arrays of data so small that they are made anew each time."""

    def __init__(self) -> None:
        self.state: State = {}
        self._columns: dict[str, MemoryColumn] = {}

    def column(self, name: str, dtype: str, row: tuple[int, ...] = (), *, kept: bool = True) -> MemoryColumn:
        made = MemoryColumn(dtype, row)
        if kept:
            self._columns[name] = made
        return made

    def commit(self, state: State) -> None:
        pass

    def finish(self, about: State) -> Kept:
        return Kept({name: column.values() for name, column in self._columns.items()}, about)


# --- In files


class FileColumn:
    """A column that is a safetensors file of one array; `size` bytes of it were written before."""

    def __init__(self, path: Path, name: str, dtype: str, row: tuple[int, ...], size: int, kept: bool) -> None:
        self.path, self.kept = path, kept
        self.file: IO[bytes] = open(path, "r+b" if size else "w+b")  # noqa: SIM115
        where = (self.file, name, dtype, row)
        self.writer = ArrayWriter.again(*where, size) if size else ArrayWriter(*where)

    def append(self, values: np.ndarray) -> None:
        with writing_to(self.path):
            self.writer.write(values)

    def values(self) -> np.ndarray:
        with writing_to(self.path):
            return self.writer.values()

    def sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


class FileBuild:
    """Arrays in files that become a folder when all is made."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.part = folder, folder.with_name(f"{folder.name}.part")
        self.journal = folder.with_name(f"{folder.name}.journal")
        self.state: State = {}
        self._sizes: dict[str, int] = {}
        self._columns: dict[str, FileColumn] = {}
        self._committed = time.monotonic()
        with writing_to(self.part):
            if (self.part / ABOUT).exists():  # all is made
                return
            if not self._go_on():
                shutil.rmtree(self.part, ignore_errors=True)
                self.part.mkdir(parents=True)

    def _go_on(self) -> bool:
        """Take up what the journal tells of; False if there is none, or if less is there than it tells."""
        try:
            noted = read_json(self.journal)
            state, sizes = noted["state"], noted["sizes"]
            if any((self.part / f"{name}{SUFFIX}").stat().st_size < size for name, size in sizes.items()):
                return False
        except (RegardError, OSError, KeyError, TypeError):
            return False
        self.state, self._sizes = state, sizes
        return True

    def column(self, name: str, dtype: str, row: tuple[int, ...] = (), *, kept: bool = True) -> FileColumn:
        path = self.part / f"{name}{SUFFIX}"
        with writing_to(path):
            column = FileColumn(path, name, dtype, row, self._sizes.get(name, 0), kept)
        self._columns[name] = column
        return column

    def commit(self, state: State) -> None:
        if time.monotonic() - self._committed < EVERY:
            return
        with writing_to(self.part):
            for column in self._columns.values():
                column.sync()
        write_json(
            self.journal, {"state": state, "sizes": {name: each.writer.size for name, each in self._columns.items()}}
        )
        self._committed = time.monotonic()

    def finish(self, about: State) -> None:
        with writing_to(self.part):
            for column in self._columns.values():
                if column.kept:
                    column.writer.finish({})
                    column.sync()
            self.close()
            for column in self._columns.values():
                if not column.kept:
                    column.path.unlink(missing_ok=True)
            names = sorted(name for name, column in self._columns.items() if column.kept)
            write_json(self.part / ABOUT, {**about, "arrays": names})
            self.settle()

    def settle(self) -> bool:
        """Give the folder its name, if all in it is made; also where a kill came just before."""
        if not (self.part / ABOUT).exists():
            return False
        shutil.rmtree(self.folder, ignore_errors=True)
        os.rename(self.part, self.folder)
        sync_folder(self.folder.parent)
        self.journal.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        for column in self._columns.values():
            with contextlib.suppress(OSError):  # of a full disk, it was told
                column.file.close()


def open_kept(folder: Path) -> Kept | None:
    """The arrays in a folder, mapped; None if it is not there or not whole."""
    try:
        arrays, digests = dict[str, np.ndarray](), dict[str, str]()
        about = read_json(folder / ABOUT)
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with open(path, "rb") as file:
                mapped, told = map_arrays(file)
            name = path.name.removesuffix(SUFFIX)
            arrays[name], digests[name] = np.asarray(mapped[name]), told["sha256"]
        if about["arrays"] != sorted(arrays):
            return None
    except (RegardError, OSError, ValueError, KeyError, TypeError):
        return None
    return Kept(arrays, about, folder.name, digests)


@contextlib.contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Say in a sentence what goes wrong while a cache is written."""
    try:
        yield
    except OSError as error:
        raise RegardError(
            f"cannot write {path}: {error.strerror or error}",
            "what is done so far is kept, and goes on from there: make room, or set REGARD_CACHE to a folder with more",
        ) from error
