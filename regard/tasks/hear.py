"""What tasks that hear share: a person's sound as a model hears it, and synthetic sounds for `regard verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.sound.config import SoundFormat
from regard.data.sound.features import at_rate, heard
from regard.data.sound.waves import Sound, SoundError, pieces, sound_info
from regard.tasks.subject import EXTRA, ROWS, Batch, FewBatches, Subject

Audio = str | Path | Sound  # a file, or samples with their rate
Sounds = list[str] | list[Path] | list[Sound] | list[Audio] | tuple[Audio, ...]
FRAMES = (61, 47, 97, 83, 53)  # of synthetic sounds: primes, none alike
LONG = 20.0  # seconds of a sound that are heard at once


def sounds_of(sounds: Audio | Sounds) -> tuple[list[Audio], bool]:
    """Sounds as a list, and whether a person gave several."""
    return ([sounds], False) if isinstance(sounds, str | Path | Sound) else (list(sounds), True)


def name_of(sound: Audio) -> str:
    return "sound" if isinstance(sound, Sound) else str(sound)


def seconds_of(sound: Audio) -> float:
    """How long a sound is; of a file, as its head says."""
    return sound.seconds if isinstance(sound, Sound) else sound_info(sound).seconds


def pieces_of(sound: Audio, rate: int, most: float = LONG) -> Iterator[tuple[float, Sound]]:
    """A sound at a rate, in pieces of so many seconds or less, each with where it begins."""
    whole = [(0.0, sound)] if isinstance(sound, Sound) else pieces(sound, most)
    for start, piece in whole:
        yield start, at_rate(piece, rate)


def whole_sound(sound: Audio, rate: int, most: float) -> Sound:
    """A whole sound at a rate; one of more seconds is refused."""
    seconds = seconds_of(sound)
    if seconds > most:
        raise SoundError(f"{name_of(sound)} has {seconds:,.1f} seconds, and a label is of {most:g} at most", "cut it")
    (_, found), *_ = pieces_of(sound, rate, most)
    if not len(found.samples):
        raise SoundError(f"{name_of(sound)} is empty")
    return found


def frames_of(sounds: Sequence[Sound], sound: SoundFormat, device: torch.device) -> tuple[Tensor, Tensor]:
    """The frames (B, T, M) of sounds and how many each has, on the device of a model."""
    frames, lengths = heard([each.samples for each in sounds], sound)
    return frames.to(device), lengths.to(device)


class HearingSubject(Subject):
    """What all tasks that hear share."""

    @cached_property
    def frames(self) -> list[Tensor]:
        assert self.bundle.config.sounds is not None
        dice = torch.Generator().manual_seed(1)
        return [torch.randn(length, self.bundle.config.sounds.mels, generator=dice) for length in FRAMES]

    def heard(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The frames of these rows (B, T, M), zeros behind each, and how many each has."""
        found = [self.frames[row] for row in rows]
        return nn.utils.rnn.pad_sequence(found, batch_first=True), torch.tensor([len(each) for each in found])

    def batch(self, model: nn.Module, rows: Sequence[int] = ROWS) -> Batch:
        batch = super().batch(model, rows)
        return replace(batch, frames=batch.frames.to(next(model.parameters()).dtype))

    def longer(self, frames: Tensor) -> Tensor:
        """Frames that sound real behind the end, which a mask hides."""
        return torch.cat([frames, frames[:, : 4 * EXTRA]], dim=1)

    def training(self, seed: int) -> FewBatches:
        return FewBatches([self.take(rows) for rows in ([0, 1], [2, 3], [3, 4], [4, 0])], seed)


def shown_times(seconds: float) -> str:
    """A time as people write it: 3.42 s, or 1:02:03.4 of a long sound."""
    if seconds < 60:
        return f"{seconds:.2f}"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"
