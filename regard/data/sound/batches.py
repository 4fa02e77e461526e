"""Batches of sounds with labels or words: a pure function of the seed, the epoch and their number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import pad
from regard.data.batches import padding_of, plan_by_length
from regard.data.planned import Planned
from regard.data.sound.augment import changed_frames, changed_wave
from regard.data.sound.batch import SoundBatch, SpeechBatch
from regard.data.sound.config import SoundAugmentConfig
from regard.data.sound.features import heard
from regard.data.sound.load import SoundPart
from regard.errors import RegardError

SPREAD = 0.2  # lengths of a batch differ by as much, so that its sounds are not the same ones in every epoch


class HeardBatches:
    """The base: which sounds are in a batch, and their frames. `frames` is how many a batch has at most, with padding.

    Without `augment` frames come from the kept file; so they do with it, unless samples are changed.
    """

    def __init__(self, part: SoundPart, frames: int, seed: int, augment: SoundAugmentConfig | None = None) -> None:
        self.part, self.format, self.seed, self.augment = part, part.format, seed, augment
        self.lengths = np.array([part.format.frames(int(part.store.samples.lengths[row])) for row in part.rows])
        longest = int(self.lengths.max(initial=0))
        if longest > frames:
            raise RegardError(
                f"a sound has {longest:,} frames and a batch only {frames:,}",
                "raise train.batch_tokens, which counts frames here, or lower data.max_seconds",
            )
        self.frames = frames
        self.kept = None if augment is not None and augment.of_waves else part.frames()
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the rows of each batch

    def __len__(self) -> int:
        return len(self.part)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def padding_share(self) -> float:
        """The share of padding among all frames of the first epoch."""
        return padding_of(self.plan(0), self.lengths)

    @property
    def keeps_lengths(self) -> bool:
        """Whether a sound has as many frames in every epoch, so that a batch is known before it is heard."""
        return self.augment is None or not (self.augment.of_waves or self.augment.tempo)

    def heard(self, rows: np.ndarray, epoch: int | None = None, width: int | None = None) -> tuple[Tensor, Tensor]:
        """The frames of sounds (B, T, M) and how many each has (B,); varied by the epoch's own key, if there is one.

        T is `width`, where sounds that are not here may be longer.
        """
        if self.augment is None or epoch is None:
            return _padded([self._kept(row) for row in rows], width)
        keys = [(self.seed, epoch, int(row)) for row in rows]
        if self.augment.of_waves:
            places = self.part.rows[rows]
            waves = [
                changed_wave(self.part.store.wave(place), self.augment, key)
                for place, key in zip(places, keys, strict=True)
            ]
            frames, lengths = heard(waves, self.format)
            found = [row[:length].numpy() for row, length in zip(frames, lengths.tolist(), strict=True)]
        else:
            found = [self._kept(row) for row in rows]
        return _padded([changed_frames(row, self.augment, key) for row, key in zip(found, keys, strict=True)], width)

    def _kept(self, row: int) -> np.ndarray:
        if self.kept is None:
            self.kept = self.part.frames()
        return self.kept[int(self.part.rows[row])]

    def _plan(self, epoch: int) -> list[np.ndarray]:
        """Sounds of about one length; lengths are told apart only roughly, and each epoch a little differently."""
        if self.augment is None:
            return plan_by_length((self.lengths,), self.lengths, self.frames, (self.seed, epoch))
        dice = np.random.default_rng((self.seed, epoch, len(self)))
        rough = (self.lengths * dice.uniform(1 - SPREAD, 1 + SPREAD, len(self))).astype(np.int64)
        return plan_by_length((rough,), self.lengths, self.frames, (self.seed, epoch))


class SoundBatches(HeardBatches):
    """Sounds with the number of the label of each."""

    def __init__(
        self,
        part: SoundPart,
        labels: Sequence[str],
        frames: int,
        seed: int,
        augment: SoundAugmentConfig | None = None,
    ) -> None:
        super().__init__(part, frames, seed, augment)
        place = {label: number for number, label in enumerate(labels)}
        self.labels = np.array([place[told] for told in part.told], dtype=np.int64)

    def get(self, epoch: int, index: int) -> SoundBatch:
        return self._batch(self.plan(epoch)[index], epoch)

    def planned(self, epoch: int, index: int) -> Planned[SoundBatch] | SoundBatch:
        """The batch, whose sounds are read and varied as they are asked for."""
        if not self.keeps_lengths:
            return self.get(epoch, index)
        rows = self.plan(epoch)[index]
        counts, width = dict.fromkeys(("loss", "nll", "correct"), len(rows)), int(self.lengths[rows].max())
        return Planned(len(rows), counts, lambda first, end: self._batch(rows[first:end], epoch, width))

    def take(self, rows: Sequence[int] | np.ndarray) -> SoundBatch:
        """These sounds, as they are."""
        return self._batch(np.asarray(rows, dtype=np.int64), None)

    def _batch(self, rows: np.ndarray, epoch: int | None, width: int | None = None) -> SoundBatch:
        return SoundBatch(*self.heard(rows, epoch, width), torch.from_numpy(self.labels[rows]))


class SpeechBatches(HeardBatches):
    """Sounds with the ids of their words, each with a begin and an end token."""

    def __init__(
        self,
        part: SoundPart,
        ids: Sequence[np.ndarray],
        frames: int,
        seed: int,
        augment: SoundAugmentConfig | None = None,
        *,
        fill: int,
    ) -> None:
        if len(ids) != len(part):
            raise RegardError(f"{len(part)} sounds and {len(ids)} texts", "each sound has one text")
        super().__init__(part, frames, seed, augment)
        self.ids, self.fill = ids, fill

    def get(self, epoch: int, index: int) -> SpeechBatch:
        return self._batch(self.plan(epoch)[index], epoch)

    def planned(self, epoch: int, index: int) -> Planned[SpeechBatch] | SpeechBatch:
        """The batch, whose sounds are read and varied as they are asked for."""
        if not self.keeps_lengths:
            return self.get(epoch, index)
        rows = self.plan(epoch)[index]
        sizes = [len(self.ids[row]) for row in rows]
        counts = dict.fromkeys(("loss", "nll", "ctc"), sum(sizes) - len(sizes))
        widths = int(self.lengths[rows].max()), max(sizes)
        return Planned(len(rows), counts, lambda first, end: self._batch(rows[first:end], epoch, widths))

    def take(self, rows: Sequence[int] | np.ndarray) -> SpeechBatch:
        """These sounds, as they are."""
        return self._batch(np.asarray(rows, dtype=np.int64), None)

    def _batch(
        self, rows: np.ndarray, epoch: int | None, widths: tuple[int | None, int | None] = (None, None)
    ) -> SpeechBatch:
        heard = self.heard(rows, epoch, widths[0])
        return speech_batch(*heard, [self.ids[row] for row in rows], self.fill, widths[1])


def speech_batch(
    frames: Tensor, lengths: Tensor, ids: Sequence[np.ndarray], fill: int, width: int | None = None
) -> SpeechBatch:
    """A batch of frames (B, T, M), of which each row has so many, and texts with begin and end tokens."""
    target, sizes = pad(ids, fill, width)
    return SpeechBatch(frames, lengths, target, sizes - 1, int(sizes.sum()) - len(sizes))


def _padded(rows: Sequence[np.ndarray], width: int | None = None) -> tuple[Tensor, Tensor]:
    """Frames (T, M) of several sounds as one tensor, zeros behind the shorter ones, and how many each has."""
    lengths = [len(row) for row in rows]
    wide = max(lengths) if width is None else width
    together = np.zeros((len(rows), wide, rows[0].shape[1]), dtype=np.float32)
    for place, row in zip(together, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(together), torch.tensor(lengths)
