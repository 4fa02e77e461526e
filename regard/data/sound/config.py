"""Which files are sounds, where they come from, with labels or words, what a model hears of them, how they vary. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field

from regard.config import StrictConfig
from regard.data.config import Names

WAV = (".wav", ".wave")
SUFFIXES = frozenset((*WAV, ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".snd", ".caf"))
LABELLED_SETS = ("builtin/tones", "builtin/chords")  # sounds with a label each
SPOKEN_SETS = ("builtin/keys",)  # sounds with words
LOOKED_AT = 50  # files of a folder, and rows of a manifest, that are looked at to tell what they hold


def is_sound(path: Path | str) -> bool:
    """Whether a name is that of a file of sound."""
    return Path(path).suffix.lower() in SUFFIXES


def are_sounds(names: Sequence[str]) -> bool:
    """Whether these are sets of sounds: built-in ones, folders of sounds, or manifests that name files of sound."""
    return any(
        _set_of(name) in LABELLED_SETS or _holds_sounds(Path(name)) or _names_sounds(Path(name)) for name in names
    )


def _set_of(name: str) -> str:
    return "/".join(name.split("/")[:2])


def _holds_sounds(folder: Path) -> bool:
    return folder.is_dir() and any(is_sound(file) for file in islice(folder.glob("*/*"), LOOKED_AT))


def _names_sounds(manifest: Path) -> bool:
    """Whether the first rows of a file of rows name sounds: a cell or a value that ends as a file of sound does."""
    if manifest.suffix.lower() not in (".jsonl", ".csv", ".tsv") or not manifest.is_file():
        return False
    with open(manifest, encoding="utf-8", errors="replace") as file:
        rows = [line.lower() for line in islice(file, 1 + LOOKED_AT)]
    ends = tuple(f"{suffix}{mark}" for suffix in SUFFIXES for mark in ('"', ",", "\t", ";"))
    return any(end in f"{row.rstrip()}," for row in rows for end in ends)


class SoundFormat(StrictConfig):
    """What a model hears: log-mel frames of a sound at `rate` samples a second."""

    rate: int = Field(16_000, ge=1000, le=192_000, description="Samples a second; other sounds are resampled.")
    mels: int = Field(80, ge=1, le=512, description="Triangular filters on the mel scale: numbers of a frame.")
    window: float = Field(25.0, gt=0, le=1000, description="Milliseconds of sound in a frame.")
    hop: float = Field(10.0, gt=0, le=1000, description="Milliseconds from one frame to the next.")
    floor: float = Field(80.0, gt=0, description="Decibels below a sound's loudest place under which all is silence.")
    normalise: Literal["level", "mean", "none"] = Field(
        "level",
        description="What is taken off each sound: one mean of all, the mean of every filter over time, or nothing.",
    )

    @property
    def window_samples(self) -> int:
        return max(1, round(self.rate * self.window / 1000))

    @property
    def hop_samples(self) -> int:
        return max(1, round(self.rate * self.hop / 1000))

    @property
    def transform(self) -> int:
        """Samples of a Fourier transform: a power of two from 512 on, so that low filters have bins of their own."""
        return max(512, 1 << (self.window_samples - 1).bit_length())

    def frames(self, samples: int) -> int:
        """Frames of a sound of so many samples: one about every hop, from the first sample on."""
        return 1 + samples // self.hop_samples

    def seconds(self, frame: float) -> float:
        """The time of the middle of a frame, which may lie between two."""
        return frame * self.hop_samples / self.rate


class SoundAugmentConfig(StrictConfig):
    """Every sound of a batch is changed in its own way, in this order; with the defaults it stays as it is."""

    speed: float = Field(
        0.0, ge=0, le=0.5, description="Faster and higher, or slower and lower, by up to this share (Ko et al. 2015)."
    )
    noise: float | None = Field(
        None,
        ge=-20,
        le=80,
        description="Noise, white to brown, at this many decibels below the sound or up to 30 more.",
    )
    tract: float = Field(
        0.0, ge=0, le=0.5, description="Frequencies are stretched by up to this share (Jaitly & Hinton 2013)."
    )
    tempo: float = Field(0.0, ge=0, le=0.5, description="Longer or shorter by up to this share; the pitch stays.")
    colour: float = Field(
        0.0,
        ge=0,
        le=40,
        description="Bands are louder or fainter by about so many decibels, smoothly: other microphones.",
    )
    time_masks: int = Field(0, ge=0, le=20, description="Stretches of time that are hidden (SpecAugment, Park 2019).")
    time_share: float = Field(0.1, gt=0, le=0.5, description="Share of a sound that such a stretch hides at most.")
    mel_masks: int = Field(0, ge=0, le=20, description="Bands of neighbouring filters that are hidden (SpecAugment).")
    mel_share: float = Field(0.2, gt=0, le=0.5, description="Share of the filters that such a band hides at most.")

    @property
    def of_waves(self) -> bool:
        """Whether samples are changed, and not only frames, which could be kept."""
        return self.speed > 0 or self.noise is not None


class HeardConfig(StrictConfig):
    """The base of every configuration of a set of sounds."""

    rate: int | None = Field(
        None, ge=1000, le=192_000, description="Samples a second; without, those of the first sound, 16,000 at most."
    )
    mels: int | None = Field(None, ge=1, le=512, description="Numbers of a frame; without, 80, or 40 under 16,000 Hz.")
    normalise: Literal["level", "mean", "none"] = Field(
        "level", description="What is taken off each sound: its mean level, the mean of every filter, or nothing."
    )
    floor: float = Field(
        80.0, gt=0, description="Decibels below a sound's loudest place under which all is silence, as noise of a room."
    )
    max_seconds: float = Field(
        30.0, gt=0, description="Longest sound to learn from; longer ones are left out, by name."
    )
    augment: SoundAugmentConfig = Field(SoundAugmentConfig(), description="How training sounds are varied.")
    hold_out: int = Field(500, ge=1, description="Most sounds held out for validation when there is no valid set.")
    builtin_size: int = Field(2000, ge=10, description="Training sounds made for built-in data.")

    def format_at(self, rate: int) -> SoundFormat:
        """The format of a model that hears sounds at this rate."""
        mels = (80 if rate >= 16_000 else 40) if self.mels is None else self.mels
        return SoundFormat(rate=rate, mels=mels, normalise=self.normalise, floor=self.floor)


class SoundsConfig(HeardConfig):
    """Labelled sounds: a folder with a class a folder, rows of audio and label (.jsonl, .csv, .tsv), or built-in ones."""

    train: Names = Field(
        ("builtin/tones",), min_length=1, description="Training sounds: a folder, rows, builtin/tones, builtin/chords."
    )
    valid: Names = Field((), description="Validation sounds; without them some training sounds are held out.")


class SpeechConfig(HeardConfig):
    """Sounds with their words: rows of audio and text (.jsonl, .csv, .tsv), or built-in ones."""

    train: Names = Field(("builtin/keys",), min_length=1, description="Rows of audio and text, or builtin/keys.")
    valid: Names = Field((), description="Validation rows; without them some training sounds are held out.")
