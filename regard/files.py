"""Files and folders that are either whole or absent, whatever happens in the middle of a save.

A file is written under a temporary name, synced, and renamed; a folder likewise. A crash leaves the last good one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from regard.errors import RegardError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"  # what a JSON file holds


@contextlib.contextmanager
def writing(
    path: str | Path, advice: str = "nothing was changed", *, kept: Callable[[Path], object] | None = None
) -> Iterator[IO[bytes]]:
    """A file to write a whole file into, or nothing: temporary name, sync, rename. `advice` ends the error of a full disk.

    Behind a symbolic link its target is replaced, and a pipe or a device is written to as it is. With `kept`, what was
    written before something went wrong stays beside the file, as FILE.part, and `kept` is told its path.
    """
    path = Path(path)
    if is_stream(path):
        with _errors_of(path, advice), _open_stream(path) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with _errors_of(path, advice):
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:  # it is still there only if something went wrong
        with contextlib.suppress(OSError):
            if kept is not None and temporary.stat().st_size:
                part = target.with_name(f"{target.name}.part")
                os.replace(temporary, part)
                kept(part)
            temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def is_stream(path: Path) -> bool:
    """Whether a path is a pipe, a device, or a name of an open file such as /dev/stdout: nothing that can be replaced."""
    if os.path.abspath(path).startswith(("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _open_stream(path: Path) -> IO[bytes]:
    """A stream to write on: a file that we have open already is not opened again, as both would write to one place."""
    name = os.path.abspath(path)
    number = {"/dev/stdout": "1", "/dev/stderr": "2"}.get(name)
    if number is None and (found := re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)) is not None:
        number = found[1]
    return open(path, "ab") if number is None else os.fdopen(os.dup(int(number)), "wb")


@contextlib.contextmanager
def _errors_of(path: Path, advice: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # whoever read a pipe has gone: not our error
        raise
    except OSError as error:
        raise RegardError(f"cannot write {path}: {error.strerror or error}", advice) from error


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write a whole file or nothing."""
    with writing(path) as file:
        file.write(data)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: str | Path, value: object) -> Path:
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def finite(value: Any) -> Any:
    """The value as strict JSON can hold it: infinity and NaN become null."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: str | Path) -> Any:
    """The value in a JSON file, or an error that names the file and the place."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RegardError(f"there is no {path}") from error
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, nested without end
        raise RegardError(f"{path} is not whole JSON ({error})", "restore it from where you copied it") from error


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder durable (a no-op where folders cannot be opened)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Fill a temporary folder; when the block ends well it takes the place of `path`, which is whole at every moment.

    Between the two renames at the end only `path.old` exists: whoever reads asks `standing_folder` where it is, and whoever
    writes next calls `settle`, which puts it back after a crash there.
    """
    path = Path(path)
    temporary, old = path.with_name(path.name + ".tmp"), path.with_name(path.name + ".old")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            _sync_file(file)
        sync_folder(temporary)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RegardError(
            f"cannot write {path}: {error.strerror or error}", "the last good one is untouched"
        ) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    try:
        settle(path)
        if path.exists():
            os.rename(path, old)
        os.rename(temporary, path)
    except OSError as error:
        raise RegardError(
            f"cannot write {path}: {error.strerror or error}", "the last good one is untouched"
        ) from error
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def settle(path: Path) -> None:
    """Undo what a crash left of `new_folder`, before writing: the old folder comes back if the new one never came."""
    old = path.with_name(path.name + ".old")
    if old.exists():
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, path)


def standing_folder(path: str | Path) -> Path:
    """Where to read a folder that `new_folder` may be replacing now: `path`, or between its two renames `path.old`."""
    path = Path(path)
    old = path.with_name(path.name + ".old")
    return old if old.exists() and not path.exists() else path


def clear_leftovers(folder: Path) -> None:
    """Remove what killed writers left in `folder`: half-written files and folders, and folders already replaced."""
    for file in folder.glob(".*.tmp"):
        file.unlink(missing_ok=True)
    for left in [path for path in folder.iterdir() if path.is_dir()] if folder.exists() else []:
        if left.suffix == ".tmp":
            shutil.rmtree(left, ignore_errors=True)
        elif left.suffix == ".old":
            settle(left.with_suffix(""))


def cache_of(kind: str) -> Path:
    """$REGARD_CACHE/kind, or ~/.cache/regard/kind: what is kept there can be made again."""
    try:
        base = Path(os.environ.get("REGARD_CACHE") or "~/.cache/regard").expanduser()
    except RuntimeError as error:
        raise RegardError(f"there is no home folder to keep {kind} in", "set REGARD_CACHE to a folder") from error
    return base / kind


LOCK = ".lock"  # in a run's folder while someone is in it; left by a killed process, it says nothing by being there


@contextlib.contextmanager
def alone_in(folder: Path, doing: str = "training") -> Iterator[None]:
    """Only one process at a time is inside this block for a folder; the lock goes with the process, however it ends."""
    from filelock import FileLock, Timeout, UnixFileLock

    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RegardError(f"another process is {doing} in {folder}", "wait until it ends, or stop it first") from None
    except (OSError, NotImplementedError):
        pass  # a file system that has no locks
    try:
        yield
    finally:
        if lock.is_locked and isinstance(lock, UnixFileLock):  # others remove their file by themselves
            with contextlib.suppress(OSError):  # while it is held: who opened it meanwhile sees that it is gone
                (folder / LOCK).unlink()
        lock.release()


def is_taken(folder: Path) -> bool:
    """Whether a process is inside `alone_in` for a folder; nothing is written to find out."""
    if not (folder / LOCK).exists():
        return False
    try:
        with alone_in(folder):
            return False
    except RegardError:
        return True


def is_bare(folder: Path) -> bool:
    """Whether nothing is in a folder, its lock not counted."""
    return all(path.name == LOCK for path in folder.iterdir())


def _sync_file(file: Path) -> None:
    if file.is_file():
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())
