"""Files of sound: WAV by itself, other forms by the soundfile library; samples as one row of float32 from -1 to 1.

A WAV file is a row of chunks, each four letters, its size, and so many bytes: "fmt " says how samples are written, "data"
holds them (Microsoft & IBM 1991, "Multimedia Programming Interface and Data Specifications 1.0"). Several channels become
their mean.
"""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO

import numpy as np

from regard.data.sound.config import WAV
from regard.errors import RegardError
from regard.files import write_bytes

SILENT = 1e-4  # a sound that never reaches this is silence: three steps of 16 bits
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_OPEN = (0, 0xFFFFFFFF)  # the size of data in a file that was written to a pipe: up to its end
_CUT = 0.25  # of a piece of a long sound: its last part, in which it may end
_QUIET = 0.05  # seconds over which loudness is measured to find a quiet place


class SoundError(RegardError):
    """A file of sound cannot be used, and why."""


@dataclass(frozen=True, eq=False)
class Sound:
    """A sound with one channel."""

    samples: np.ndarray  # (N,), float32
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate

    @property
    def silent(self) -> bool:
        """Whether nothing can be heard of it."""
        return not len(self.samples) or float(np.abs(self.samples).max()) < SILENT


@dataclass(frozen=True)
class SoundInfo:
    """What the head of a file says."""

    rate: int
    channels: int
    frames: int  # samples of each channel

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


@dataclass(frozen=True)
class _Wav(SoundInfo):
    code: int  # how a sample is written: _PCM or _FLOAT
    size: int  # bytes of a sample
    start: int  # of the first sample in the file


def sound_info(path: str | Path) -> SoundInfo:
    """The rate, channels and length of a file, without reading its samples."""
    with _opened(path) as file:
        wav = _wav_head(file, Path(path)) if _is_wav(file) else None
    return _other_info(Path(path)) if wav is None else wav


def read_sound(path: str | Path, start: float = 0.0, seconds: float | None = None) -> Sound:
    """Read a file of sound, or `seconds` of it from `start` on, as the mean of its channels at its own rate."""
    path = Path(path)
    with _opened(path) as file:
        if _is_wav(file) and (wav := _wav_head(file, path)) is not None:
            return _checked(_wav_samples(file, wav, start, seconds), wav.rate, path)
    return _other_samples(path, start, seconds)


def read_wav(path: str | Path, start: float = 0.0, seconds: float | None = None) -> Sound:
    """Read a WAV file (8, 16, 24, 32 bits, or float), or some seconds of it, as the mean of its channels."""
    path = Path(path)
    with _opened(path) as file:
        if not _is_wav(file):
            raise SoundError(f"{path} is no WAV file", "convert it: ffmpeg -i IN OUT.wav")
        wav = _wav_head(file, path)
        if wav is None:
            raise SoundError(f"the samples of {path} are compressed", "convert it: ffmpeg -i IN -c:a pcm_s16le OUT.wav")
        return _checked(_wav_samples(file, wav, start, seconds), wav.rate, path)


def write_wav(path: str | Path, samples: np.ndarray, rate: int) -> Path:
    """Write samples (N,) or (N, channels) from -1 to 1 as a WAV file of 16 bits; louder ones are cut."""
    samples = np.asarray(samples, dtype=np.float64)
    if not np.isfinite(samples).all():
        raise SoundError(f"cannot write {path}: samples are no numbers")
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(as_int16(samples).astype("<i2").tobytes())
    return write_bytes(path, data.getvalue())


def as_int16(samples: np.ndarray) -> np.ndarray:
    """Samples from -1 to 1 as integers of 16 bits, of the same shape."""
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)


def as_float(samples: np.ndarray) -> np.ndarray:
    """Integers of 16 bits as samples from -1 to 1 in float32, of the same shape."""
    return samples.astype(np.float32) / 32768.0


def pieces(path: str | Path, most: float) -> Iterator[tuple[float, Sound]]:
    """A sound of any length as pieces of `most` seconds or less, each with where it begins in seconds.

    A piece ends at the quietest place of its last quarter, so that it hardly ends inside a word. No more than one piece is in
    memory.
    """
    start, end = 0.0, sound_info(path).seconds
    while True:
        sound = read_sound(path, start, most)
        if start + most < end:
            sound = Sound(sound.samples[: _quietest(sound)], sound.rate)
        yield start, sound
        start += sound.seconds
        if start >= end or not len(sound.samples):
            return


def _quietest(sound: Sound) -> int:
    """The sample at the middle of the quietest stretch in the last part of a sound."""
    length = max(1, int(_QUIET * sound.rate))
    first = max(1, int(len(sound.samples) * (1 - _CUT)))
    energy = np.concatenate([[0.0], np.cumsum(sound.samples[first:].astype(np.float64) ** 2)])
    if len(energy) <= length:
        return len(sound.samples)
    return first + int(np.argmin(energy[length:] - energy[:-length])) + length // 2


def _opened(path: str | Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise SoundError(f"there is no {path}") from error
    except OSError as error:
        raise SoundError(f"cannot read {path}: {error.strerror or error}") from error


def _is_wav(file: IO[bytes]) -> bool:
    file.seek(0)
    head = file.read(12)
    return head[:4] == b"RIFF" and head[8:] == b"WAVE"


def _wav_head(file: IO[bytes], path: Path) -> _Wav | None:
    """The head of a WAV file; None if its samples are of a kind that only soundfile knows."""
    size, place, form = file.seek(0, io.SEEK_END), 12, b""
    while place + 8 <= size:
        file.seek(place)
        name, length = struct.unpack("<4sI", file.read(8))
        if name == b"fmt ":
            form = file.read(min(length, 64))
        if name == b"data":
            if len(form) < 16:
                raise SoundError(f"{path} is broken: its samples come before their format", "make the file anew")
            return _wav_form(form, place + 8, length, size, path)
        place += 8 + length + length % 2
    raise SoundError(f"{path} is broken: it has no samples", "make the file anew")


def _wav_form(form: bytes, start: int, length: int, size: int, path: Path) -> _Wav | None:
    code, channels, rate, _, block, bits = struct.unpack("<HHIIHH", form[:16])
    if code == _EXTENSIBLE and len(form) >= 26:
        code = struct.unpack("<H", form[24:26])[0]
    if (code, bits) not in ((_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)):
        return None
    if not channels or not rate or block != channels * bits // 8:
        raise SoundError(
            f"{path} is broken: {channels} channels of {bits} bits at {rate} Hz in blocks of {block} bytes",
            "make it anew",
        )
    there = size - start
    if length not in _OPEN and length > there:
        raise SoundError(f"{path} is cut off: its head says {length:,} bytes of samples and {there:,} are there")
    return _Wav(rate, channels, (there if length in _OPEN else length) // block, code, bits // 8, start)


def _wav_samples(file: IO[bytes], wav: _Wav, start: float, seconds: float | None) -> np.ndarray:
    """Samples as the mean of the channels, from `start` on: (N,) float32."""
    first = min(wav.frames, max(0, round(start * wav.rate)))
    count = wav.frames - first if seconds is None else min(wav.frames - first, max(0, round(seconds * wav.rate)))
    block = wav.channels * wav.size
    file.seek(wav.start + first * block)
    data = np.frombuffer(file.read(count * block), dtype=np.uint8)
    return _numbers(data, wav).reshape(-1, wav.channels).mean(axis=1, dtype=np.float32)


def _numbers(data: np.ndarray, wav: _Wav) -> np.ndarray:
    """The bytes as numbers from -1 to 1; those of 8 bits have their zero at 128, all others a sign."""
    if wav.code == _FLOAT:
        return data.view(f"<f{wav.size}").astype(np.float32)
    if wav.size == 1:
        return (data.astype(np.float32) - 128) / 128
    if wav.size == 3:
        wide = np.zeros((len(data) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = data.reshape(-1, 3)  # the upper three bytes of four: the sign is in its place
        return wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    return data.view(f"<i{wav.size}").astype(np.float32) / 2 ** (8 * wav.size - 1)


def _checked(samples: np.ndarray, rate: int, path: Path) -> Sound:
    if not np.isfinite(samples).all():
        raise SoundError(f"{path} is broken: some of its samples are no numbers", "make the file anew")
    return Sound(samples, rate)


def _library(path: Path) -> ModuleType:
    try:
        import soundfile
    except ImportError as error:
        what = f"a {path.suffix} file" if path.suffix.lower() not in WAV else "this kind of WAV file"
        raise SoundError(
            f"{path}: to read {what} takes the library soundfile", "pip install 'regard[audio]', or convert it to WAV"
        ) from error
    return soundfile


def _other_info(path: Path) -> SoundInfo:
    library = _library(path)
    try:
        found = library.info(str(path))
    except (RuntimeError, OSError) as error:
        raise SoundError(f"{path} cannot be read as sound: {error}") from error
    return SoundInfo(found.samplerate, found.channels, found.frames)


def _other_samples(path: Path, start: float, seconds: float | None) -> Sound:
    rate, library = _other_info(path).rate, _library(path)
    frames = -1 if seconds is None else round(seconds * rate)
    try:
        samples, rate = library.read(
            str(path), frames=frames, start=round(start * rate), dtype="float32", always_2d=True
        )
    except (RuntimeError, OSError) as error:
        raise SoundError(f"{path} cannot be read as sound: {error}") from error
    return _checked(samples.mean(axis=1, dtype=np.float32), rate, path)
