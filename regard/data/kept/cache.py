"""What is made of data once, for all runs: texts that were read, tokenizers, tokens, in `$REGARD_CACHE/data`.

An entry is a folder KIND-KEY. The key is a digest of what the files hold and of all that was done to them. What a file holds is
told by its size and time of change, if it was read before (`files.json`); else it is hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from regard.config import find_file
from regard.data.archives import split_member
from regard.data.kept.journal import ABOUT, Build, FileBuild, Kept, MemoryBuild, State, open_kept
from regard.errors import Advice, Named, Option, RegardError, Setting, Verb
from regard.files import cache_of, read_json, write_json

FORMAT = 1  # of entries; another number, and all are made anew
SMALL = 1 << 20  # bytes of data that are read in less time than it takes to look for them
FRESH = 2_000_000_000  # nanoseconds; a file that changed so lately may change again without a trace in its time
INDEX = "files.json"
PICTURES, PART = "pictures", ".part"

Item = TypeVar("Item")
Make = Callable[[Build], State]
Progress = Callable[[str, int, int], object]  # (what is done, how much, of how much; 0: not known)


def no_progress(what: str, done: int, total: int) -> None:
    """Tell nobody how far the work has come."""


def data_cache() -> Path:
    """$REGARD_CACHE/data, or ~/.cache/regard/data."""
    return cache_of("data")


# --- Entries


def kept(kind: str, key: str, make: Make, waiting: Callable[[], object] = lambda: None) -> Kept:
    """The entry of a key, made now if it is not there; without a key it is made in memory.

    Only one process makes an entry; another that wants it waits, and is told so by `waiting`.
    """
    if not key:
        memory = MemoryBuild()
        return memory.finish(make(memory))
    folder = data_cache() / f"{kind}-{key}"
    if (found := _opened(folder)) is not None:
        return found
    with _locked(folder, waiting):
        if (found := _opened(folder)) is None:
            _make(folder, make)
            found = _opened(folder)
    if found is None:
        raise RegardError(f"{folder} was damaged as soon as it was written", "set REGARD_CACHE to a folder elsewhere")
    return found


class Keep(Protocol):
    """Finds or makes an entry. Its key is only asked for if it must be known: files may be gone that were read before."""

    def __call__(self, kind: str, key: Callable[[], str], make: Make, /) -> Kept: ...


def keep_at_once(kind: str, key: Callable[[], str], make: Make) -> Kept:
    """The entry of what the files hold now."""
    return kept(kind, key(), make)


def find_kept(name: str) -> Kept | None:
    """An entry by the name of its folder; None if it is not there any more."""
    return _opened(data_cache() / name)


def _opened(folder: Path) -> Kept | None:
    found = open_kept(folder)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(folder / ABOUT)  # used now
    return found


def _make(folder: Path, make: Make) -> None:
    build = FileBuild(folder)
    try:
        if not build.settle():
            build.finish(make(build))
    finally:
        build.close()


@contextlib.contextmanager
def _locked(folder: Path, waiting: Callable[[], object]) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
    except NotImplementedError:  # a file system that has no locks
        yield
        return
    except OSError as error:
        raise RegardError(
            f"cannot write {folder.parent}: {error.strerror or error}", "set REGARD_CACHE to another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


# --- Keys


def digest_of_parts(*parts: object) -> str:
    """A key that stands for all parts, which are JSON."""
    return hashlib.sha256(json.dumps([FORMAT, *parts], sort_keys=True).encode()).hexdigest()[:32]


def data_key(names: Sequence[str], data_root: Path | None, *how: object) -> str:
    """The key of what is read from data by their names, and `how`; "" of data that are built in, or small."""
    files = [name for name in names if not name.startswith("builtin/")]
    paths = [_file_of(find_file(name, data_root)) for name in files]
    if sum(size_of(path) for path in paths) < SMALL:
        return ""
    contents = {name: [path.name, content_of(path)] for name, path in zip(files, paths, strict=True)}
    return digest_of_parts([contents.get(name, name) for name in names], *how)


def _file_of(path: Path) -> Path:
    member = split_member(path)
    return path if member is None else member[0]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(size for _, size, _ in _listing(path))


def content_of(path: Path) -> str:
    """The SHA-256 of a file, or of all files in a folder, read only if their sizes and times are not known."""
    listing = _listing(path)
    stamp = hashlib.sha256(repr(listing).encode()).hexdigest()
    place = os.path.abspath(path)
    if (known := _index().get(place)) is not None and known[0] == stamp:
        return str(known[1])
    digest = hashlib.sha256()
    for name, _, _ in listing:
        with _reading(path), open(path / name if name else path, "rb") as file:
            digest.update(repr(name).encode() + hashlib.file_digest(file, "sha256").digest())
    found = digest.hexdigest()
    if time.time_ns() - max(changed for _, _, changed in listing) > FRESH and listing == _listing(path):
        _note(place, stamp, found)
    return found


def _listing(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of a file, whose name is "", or of each file in a folder."""
    with _reading(path):
        if not path.is_dir():
            status = path.stat()
            return [("", status.st_size, status.st_mtime_ns)]
        found = []
        for folder, _, names in os.walk(path):
            for name in names:
                status = (file := Path(folder) / name).stat()
                found.append((file.relative_to(path).as_posix(), status.st_size, status.st_mtime_ns))
    return sorted(found) or [("", 0, 0)]


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error


def _index() -> dict[str, list[str]]:
    try:
        found = read_json(data_cache() / INDEX)
    except RegardError:  # not there, or damaged: it can be made again
        return {}
    return found if isinstance(found, dict) else {}


def _note(place: str, stamp: str, digest: str) -> None:
    path = data_cache() / INDEX
    with _locked(path, lambda: None):
        write_json(path, {**_index(), place: [stamp, digest]})


def joint_key(keys: Sequence[str]) -> str:
    """The key of what is made of several entries; "" if one of them is only in memory."""
    return "+".join(keys) if all(keys) else ""


def shared_out(most: int, sizes: Sequence[int]) -> list[int]:
    """So many characters shared out to corpora by their sizes."""
    return [most if sum(sizes) <= most else int(most * size / sum(sizes)) for size in sizes]


# --- Notes, which may name settings and options


def notes_as_json(notes: Iterable[str]) -> list[Any]:
    return [[_part_as_json(part) for part in note.parts] if isinstance(note, Advice) else note for note in notes]


def notes_from_json(notes: Iterable[Any]) -> tuple[str, ...]:
    """The notes again, with what they name."""
    return tuple(note if isinstance(note, str) else Advice(*map(_part_from_json, note)) for note in notes)


def _part_as_json(part: str | Named) -> Any:
    return part if isinstance(part, str) else [type(part).__name__, *astuple(part)]


def _part_from_json(part: Any) -> str | Named:
    kinds: dict[str, type[Named]] = {"Setting": Setting, "Option": Option, "Verb": Verb}
    return part if isinstance(part, str) else kinds[part[0]](*part[1:])


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Consecutive items, so many at once."""
    left = iter(items)
    while found := list(islice(left, size)):
        yield found


# --- What is there


@dataclass(frozen=True)
class EntryInfo:
    """One entry of the cache, for a person."""

    name: str
    kind: str
    bytes: int
    used: float  # when it was last opened, in seconds since 1970
    whole: bool  # False: it is being made, or was killed and will go on
    made_of: str  # the files, as the person named them
    counts: str

    def data(self) -> dict[str, object]:
        return asdict(self)


def entries() -> list[EntryInfo]:
    """All entries, whole and half-made, and the decoded pictures beside them, the one used last first."""
    place, pictures = data_cache(), cache_of(PICTURES)
    folders = [path for path in place.iterdir() if path.is_dir()] if place.is_dir() else []
    found = [_info(folder) for folder in folders]
    texts = {each.name: each.made_of for each in found}
    found = [
        replace(each, made_of=" + ".join(texts.get(name, name) for name in each.made_of.split("+"))) for each in found
    ]
    files = pictures.glob(f"*.{PICTURES}") if pictures.is_dir() else ()
    found += [EntryInfo(path.stem, PICTURES, size_of(path), path.stat().st_mtime, True, "", "") for path in files]
    return sorted(found, key=lambda each: -each.used)


def _info(folder: Path) -> EntryInfo:
    about: State = {}
    with contextlib.suppress(RegardError):
        about = read_json(folder / ABOUT)
    listing = _listing(folder)
    used = max(changed for _, _, changed in listing) / 1e9
    name = folder.name.removesuffix(PART)
    whole = folder.suffix != PART and bool(about)
    told = str(about.get("made_of", "")), str(about.get("counts", ""))
    return EntryInfo(name, name.partition("-")[0], size_of(folder), used, whole, *told)


def clear(names: Collection[str]) -> tuple[list[EntryInfo], list[EntryInfo]]:
    """Remove entries by name; those removed, and those that a process is making now."""
    removed, busy = [], []
    for each in entries():
        if each.name not in names:
            continue
        try:
            _remove(each)
            removed.append(each)
        except _Taken:
            busy.append(each)
    return removed, busy


def _remove(entry: EntryInfo) -> None:
    if entry.kind == PICTURES:
        (cache_of(PICTURES) / f"{entry.name}.{PICTURES}").unlink(missing_ok=True)
        return
    folder = data_cache() / entry.name
    with _at_once(folder):
        for path in (folder, folder.with_name(f"{entry.name}{PART}")):
            shutil.rmtree(path, ignore_errors=True)
        folder.with_name(f"{entry.name}.journal").unlink(missing_ok=True)


class _Taken(Exception):
    """Another process makes the entry now."""


@contextlib.contextmanager
def _at_once(folder: Path) -> Iterator[None]:
    def refuse() -> None:
        raise _Taken

    with _locked(folder, refuse):
        yield
