"""Sounds decoded and resampled once, and the frames made of them, kept in mapped files: whoever asks again has them at once.

A file is a safetensors file with one row of numbers for all sounds, samples of 16 bits or frames in float32, then `ends`,
where each sound ends in it, and `left_out`, which is JSON of those that could not be used. One that is not whole is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from regard.data.mapped import ArrayWriter, map_arrays
from regard.data.named_files import LeftOut
from regard.data.sound.config import SoundFormat
from regard.data.sound.features import at_rate, heard
from regard.data.sound.sets import SoundSet
from regard.data.sound.waves import SoundError, as_float, as_int16, read_sound, sound_info
from regard.errors import RegardError
from regard.files import cache_of, writing

OnProgress = Callable[[int, int], None]  # (sounds done, sounds in all)

_RULES = "regard sounds 1"  # how sounds are decoded; another number, and all files are made anew
_EVERY = 64  # progress is told after as many sounds
_SHORTEST = 0.02  # seconds; less is empty


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of different length in one array, which may be mapped: only what is taken is read."""

    values: np.ndarray  # (total, ...)
    ends: np.ndarray  # (N,)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True, eq=False)
class SoundStore:
    """Sounds at one rate, as samples of 16 bits."""

    samples: Rows
    rate: int
    names: tuple[str, ...]
    kept: np.ndarray  # (N,): which sounds of the set these are
    sha256: str
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def wave(self, row: int) -> np.ndarray:
        """The samples of a sound from -1 to 1, in float32."""
        return as_float(self.samples[row])

    @property
    def seconds(self) -> np.ndarray:
        """How long each sound is."""
        return self.samples.lengths / self.rate

    def hashes(self) -> np.ndarray:
        """A number below 2⁶⁴ for each sound, of what it holds: equal ones stay together."""
        digests = [hashlib.blake2b(self.samples[row].tobytes(), digest_size=8).digest() for row in range(len(self))]
        return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)


def open_sounds(
    found: SoundSet, rate: int, most_seconds: float, folder: Path | None = None, progress: OnProgress | None = None
) -> SoundStore:
    """The sounds of a set at one rate: from a kept file, or decoded now. What is empty, silent or too long is left out."""
    if not len(found):
        raise RegardError("there are no sounds", "name some")
    if found.made and found.rate == rate:
        return _in_memory(found, rate)
    if found.made:
        raise RegardError(f"built-in sounds have a rate of {found.rate} Hz, not {rate}", "leave data.rate out")
    path = (cache_of("sounds") if folder is None else folder) / f"{_key(found, rate, most_seconds)}.sounds"

    def write(file: IO[bytes]) -> None:
        _write_sounds(file, found, rate, most_seconds, progress)

    values, ends, about, left_out = _kept(path, "samples", write)
    kept = np.setdiff1d(np.arange(len(found)), np.array([place for place, _ in left_out], dtype=np.int64))
    named = tuple((found.name(int(place)), why) for place, why in left_out)
    names = tuple(found.name(int(place)) for place in kept)
    notes = _notes(named, len(found), "sounds left out")
    return SoundStore(Rows(values, ends), rate, names, kept, about["sha256"], notes, (*found.left_out, *named))


def open_frames(
    store: SoundStore, sound: SoundFormat, folder: Path | None = None, progress: OnProgress | None = None
) -> Rows:
    """The frames of every sound as a model hears them, (total, mels): from a kept file, or computed now."""
    key = hashlib.sha256(repr((_RULES, store.sha256, len(store), sound.model_dump_json())).encode()).hexdigest()
    path = (cache_of("sounds") if folder is None else folder) / f"{key}.frames"

    def write(file: IO[bytes]) -> None:
        writer, ends = ArrayWriter(file, "frames", "<f4", (sound.mels,)), list[int]()
        for row in range(len(store)):
            frames, _ = heard([store.wave(row)], sound)
            writer.write(frames[0].numpy())
            ends.append(writer.count)
            _tell(progress, row, len(store))
        writer.finish({}, _behind(ends, []))

    values, ends, _, _ = _kept(path, "frames", write)
    return Rows(values, ends)


def _in_memory(found: SoundSet, rate: int) -> SoundStore:
    samples = np.concatenate(found.made)
    digest = hashlib.sha256(samples.tobytes()).hexdigest()
    rows = Rows(samples, np.cumsum([len(each) for each in found.made]))
    names = tuple(found.name(place) for place in range(len(found)))
    return SoundStore(rows, rate, names, np.arange(len(found)), digest)


def _key(found: SoundSet, rate: int, most_seconds: float) -> str:
    """A SHA-256 over all that the samples depend on: where, how large and how old each file is, the rate and the limit."""
    digest = hashlib.sha256(repr((_RULES, rate, most_seconds)).encode())
    for path in found.paths:
        try:
            status = os.stat(path)
            seen = (status.st_size, status.st_mtime_ns)
        except OSError:
            seen = (-1, -1)
        digest.update(repr((os.path.abspath(path), *seen)).encode())
    return digest.hexdigest()


def _write_sounds(
    file: IO[bytes], found: SoundSet, rate: int, most_seconds: float, progress: OnProgress | None
) -> None:
    """Write the sounds, one in memory at a time, and which were left out."""
    writer, ends, left_out = ArrayWriter(file, "samples", "<i2"), list[int](), list[tuple[int, str]]()
    for place, path in enumerate(found.paths):
        try:
            writer.write(_usable(path, rate, most_seconds))
            ends.append(writer.count)
        except SoundError as error:
            left_out.append((place, str(error)))
        _tell(progress, place, len(found))
    if not ends:
        raise RegardError("none of the sounds can be used", left_out[0][1])
    writer.finish({}, _behind(ends, left_out))


def _usable(path: Path, rate: int, most_seconds: float) -> np.ndarray:
    """The samples of a file of 16 bits at a rate; a `SoundError` where nothing can be learned from it."""
    seconds = sound_info(path).seconds
    if seconds < _SHORTEST:
        raise SoundError(f"{path} is empty")
    if seconds > most_seconds:
        raise SoundError(f"{path} has {seconds:,.1f} seconds, more than data.max_seconds {most_seconds:g}")
    sound = read_sound(path)
    if sound.silent:
        raise SoundError(f"{path} is silent")
    return as_int16(at_rate(sound, rate).samples)


def _behind(ends: Sequence[int], left_out: Sequence[tuple[int, str]]) -> dict[str, bytes]:
    return {"ends": np.array(ends, dtype="<i8").tobytes(), "left_out": json.dumps(left_out).encode()}


def _kept(
    path: Path, name: str, write: Callable[[IO[bytes]], None]
) -> tuple[np.ndarray, np.ndarray, dict[str, str], list[tuple[int, str]]]:
    """The numbers of a kept file, mapped, where each row ends, its metadata, and what was left out; made if it is not there."""
    found = _opened(path, name)
    if found is None:
        with writing(path, "make room, or set REGARD_CACHE to a folder that has it") as file:
            write(file)
        found = _opened(path, name)
    if found is None:
        raise RegardError(f"{path} was damaged as soon as it was written", "set REGARD_CACHE to another folder")
    return found


def _opened(path: Path, name: str) -> tuple[np.ndarray, np.ndarray, dict[str, str], list[tuple[int, str]]] | None:
    try:
        with open(path, "rb") as file:
            arrays, about = map_arrays(file)
            ends = np.frombuffer(arrays["ends"].tobytes(), dtype="<i8")
            left_out = json.loads(arrays["left_out"].tobytes())
            values = np.asarray(arrays[name])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None
    return (values, ends, about, left_out) if len(ends) and ends[-1] == len(values) else None


def _notes(left_out: Sequence[LeftOut], total: int, what: str) -> tuple[str, ...]:
    if not left_out:
        return ()
    more = f" (and {len(left_out) - 1:,} more)" if len(left_out) > 1 else ""
    return (f"{len(left_out):,} of {total:,} {what}: {left_out[0][1]}{more}",)


def _tell(progress: OnProgress | None, place: int, total: int) -> None:
    if progress is not None and ((place + 1) % _EVERY == 0 or place + 1 == total):
        progress(place + 1, total)
