"""Batches of pictures with labels, captions, or questions and answers. Batch i of epoch e is a pure function of the seed.

A source gives bytes, which are changed at random if asked, or features that a network has computed of pictures before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import pad
from regard.data.batches import padding_of, plan_by_length
from regard.data.pictures.augment import Part, mixup, normalise
from regard.data.pictures.augment import augment as augmented
from regard.data.pictures.batch import AnswerBatch, CaptionBatch, PictureBatch
from regard.data.pictures.config import AugmentConfig, PictureFormat
from regard.data.planned import Planned
from regard.errors import RegardError, UsageError

Rows = Sequence[int] | np.ndarray
Key = tuple[int, int, int]  # seed, epoch, index


class PictureSource(Protocol):
    """Where pictures come from: bytes (n, size, size, channels), or features (n, P, K) of any float type."""

    def __len__(self) -> int: ...
    def take(self, rows: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An array, perhaps memory-mapped, as a source."""

    array: np.ndarray

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.array[rows])


class PictureBatches:
    """`batches.get(epoch, index)`: `batch` pictures in a new order each epoch, with their labels.

    The i-th picture is `rows[i]` of the store, and `labels[i]` its label. Without `augment` everything is seen, as in
    evaluation. With it, as in training, a last batch of less than half the size is dropped unless it is the only one.
    """

    def __init__(
        self,
        store: PictureSource,
        labels: np.ndarray,
        rows: np.ndarray,
        picture_format: PictureFormat,
        batch: int,
        seed: int,
        augment: AugmentConfig | None = None,
    ) -> None:
        if len(labels) != len(rows):
            raise RegardError(f"{len(rows)} pictures and {len(labels)} labels", "each picture has one label")
        self.source, self.rows, self.labels = store, _checked(rows, len(store)), np.asarray(labels, dtype=np.int64)
        self.format, self.batch, self.seed, self.augment = picture_format, batch, seed, augment
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the pictures of each batch

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> PictureBatch:
        if self.augment is None or not self.augment.mixup:
            return self._planned(epoch, index).whole()
        rows, key = self.plan(epoch)[index], (self.seed, epoch, index)
        pixels = shown(self.source.take(self.rows[rows]), self.format, self.augment, key)
        labels = torch.from_numpy(self.labels[rows])
        mixed = mixup(pixels, self.augment, key)
        return PictureBatch(mixed.pixels, labels, labels[mixed.others], mixed.shares)

    def planned(self, epoch: int, index: int) -> Planned[PictureBatch] | PictureBatch:
        """The batch, whose pictures are read and changed as they are asked for; those that are mixed know all others."""
        mixes = self.augment is not None and bool(self.augment.mixup)
        return self.get(epoch, index) if mixes else self._planned(epoch, index)

    def _planned(self, epoch: int, index: int) -> Planned[PictureBatch]:
        rows, key = self.plan(epoch)[index], (self.seed, epoch, index)

        def make(first: int, end: int) -> PictureBatch:
            part, some = Part(first, end, len(rows)), rows[first:end]
            pixels = shown(self.source.take(self.rows[some]), self.format, self.augment, key, part)
            return PictureBatch(pixels, torch.from_numpy(self.labels[some]))

        return Planned(len(rows), dict.fromkeys(("loss", "nll", "correct"), len(rows)), make)

    def take(self, rows: Rows) -> PictureBatch:
        """The i-th pictures for each i of `rows`, as they are."""
        rows = np.asarray(rows)
        pixels = shown(self.source.take(self.rows[rows]), self.format)
        return PictureBatch(pixels, torch.from_numpy(self.labels[rows]))

    def padding_share(self) -> float:
        return 0.0

    def _plan(self, epoch: int) -> list[np.ndarray]:
        plan = plan_by_order(len(self.rows), self.batch, (self.seed, epoch))
        if self.augment is not None and len(plan) > 1 and 2 * len(plan[-1]) < self.batch:
            plan.pop()
        return plan


class TextsOnPictures:
    """Texts, each with its picture, and each once an epoch: text i belongs to picture `rows[i]` of the source.

    Texts of like length come together, to spare padding; without `by_length`, in any order.
    """

    def __init__(
        self,
        source: PictureSource | np.ndarray,
        rows: np.ndarray,
        texts: Sequence[np.ndarray],
        picture_format: PictureFormat,
        batch: int,
        seed: int,
        *,
        pad: int,
        augment: AugmentConfig | None = None,
        by_length: bool = True,
    ) -> None:
        if len(texts) != len(rows):
            raise RegardError(f"{len(texts)} texts and {len(rows)} pictures", "each text has one picture")
        self.source: PictureSource = ArraySource(source) if isinstance(source, np.ndarray) else source
        self.rows, self.texts = _checked(rows, len(self.source)), list(texts)
        self.format, self.batch, self.seed, self.pad, self.by_length = picture_format, batch, seed, pad, by_length
        self.augment = self._allowed(augment)
        self._lengths = np.array([len(ids) for ids in self.texts])
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the texts of each batch

    def __len__(self) -> int:
        return len(self.texts)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def padding_share(self) -> float:
        """The share of padding among all tokens of the first epoch."""
        return padding_of(self.plan(0), self._lengths)

    def _pictures(self, rows: np.ndarray, key: Key | None, part: Part | None = None) -> Tensor:
        return shown(self.source.take(self.rows[rows]), self.format, self.augment, key, part)

    def _padded(self, rows: np.ndarray, width: int | None = None) -> tuple[Tensor, Tensor]:
        return pad([self.texts[i] for i in rows], self.pad, width)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        key = (self.seed, epoch)
        if not self.by_length:
            return plan_by_order(len(self.texts), self.batch, key)
        return plan_by_length((self._lengths,), np.ones_like(self._lengths), self.batch, key)

    def _allowed(self, augment: AugmentConfig | None) -> AugmentConfig | None:
        """Check that augmentations suit pictures with words, and features."""
        if augment is None or augment == AugmentConfig():
            return None
        if augment.mixup:
            raise UsageError("mixup mixes labels and cannot mix words", "set data.augment.mixup = 0")
        if self.source.take(self.rows[:1]).dtype != np.uint8:
            raise UsageError("features are computed once and cannot be augmented", "leave data.augment out")
        return augment


class CaptionBatches(TextsOnPictures):
    """`batches.get(epoch, index)`: captions (ids with begin and end token) with their pictures, each caption once an epoch."""

    def get(self, epoch: int, index: int) -> CaptionBatch:
        return self.planned(epoch, index).whole()

    def planned(self, epoch: int, index: int) -> Planned[CaptionBatch]:
        """The batch, whose pictures are read and changed as they are asked for."""
        rows, key = self.plan(epoch)[index], (self.seed, epoch, index)
        lengths = self._lengths[rows]
        width, tokens = int(lengths.max()), int(lengths.sum()) - len(rows)

        def make(first: int, end: int) -> CaptionBatch:
            return self._batch(rows[first:end], key, Part(first, end, len(rows)), width)

        return Planned(len(rows), dict.fromkeys(("loss", "nll", "spread", "chosen", "baseline"), tokens), make)

    def take(self, rows: Rows) -> CaptionBatch:
        """The captions of these numbers, with their pictures as they are."""
        return self._batch(np.asarray(rows), None)

    def _batch(
        self, rows: np.ndarray, key: Key | None, part: Part | None = None, width: int | None = None
    ) -> CaptionBatch:
        target, lengths = self._padded(rows, width)
        return CaptionBatch(self._pictures(rows, key, part), target, lengths - 1, int(lengths.sum()) - len(lengths))


class AnswerBatches(TextsOnPictures):
    """`batches.get(epoch, index)`: questions with their pictures and the numbers of their answers, each once an epoch.

    A picture that several questions of a batch are about is there once. With `together`, so many questions about one picture
    come in one batch where there are so many.
    """

    def __init__(
        self,
        source: PictureSource | np.ndarray,
        rows: np.ndarray,
        questions: Sequence[np.ndarray],
        labels: np.ndarray,
        picture_format: PictureFormat,
        batch: int,
        seed: int,
        *,
        pad: int,
        augment: AugmentConfig | None = None,
        by_length: bool = True,
        together: int = 1,
    ) -> None:
        if len(labels) != len(questions):
            raise RegardError(f"{len(questions)} questions and {len(labels)} answers", "each question has one answer")
        super().__init__(
            source, rows, questions, picture_format, batch, seed, pad=pad, augment=augment, by_length=by_length
        )
        self.labels, self.together = np.asarray(labels, dtype=np.int64), together

    def _plan(self, epoch: int) -> list[np.ndarray]:
        if self.by_length or self.together == 1:
            return super()._plan(epoch)
        return plan_together(self.rows, self.together, self.batch, (self.seed, epoch))

    def get(self, epoch: int, index: int) -> AnswerBatch:
        return self._batch(self.plan(epoch)[index], (self.seed, epoch, index))

    def take(self, rows: Rows) -> AnswerBatch:
        """The questions of these numbers, with their pictures as they are."""
        return self._batch(np.asarray(rows), None)

    def _batch(self, rows: np.ndarray, key: Key | None) -> AnswerBatch:
        ids, lengths = self._padded(rows)
        _, first, which = np.unique(self.rows[rows], return_index=True, return_inverse=True)
        pictures = None if len(first) == len(rows) else torch.from_numpy(which)
        pixels = self._pictures(rows if pictures is None else rows[first], key)
        return AnswerBatch(pixels, ids, lengths, torch.from_numpy(self.labels[rows]), pictures)


def shown(
    pictures: np.ndarray,
    picture_format: PictureFormat,
    augment: AugmentConfig | None = None,
    key: Key | None = None,
    part: Part | None = None,
) -> Tensor:
    """Bytes (B, H, W, C) as a model's input: normalised (B, C, H, W), augmented if there is a key; features as float32.

    `part`: which of the pictures of the key they are.
    """
    if pictures.dtype != np.uint8:
        return torch.from_numpy(pictures).float()  # (B, P, K)
    pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2)  # (B, C, H, W)
    if augment is not None and key is not None:
        pixels = augmented(pixels, augment, key, part)
    return normalise(pixels, picture_format)


def plan_by_order(count: int, batch: int, key: tuple[int, int]) -> list[np.ndarray]:
    """0 .. count - 1 in the random order of the key, `batch` at a time; the last may be smaller."""
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key))).permutation(count)
    return [order[start : start + batch] for start in range(0, count, batch)]


def plan_together(rows: np.ndarray, together: int, batch: int, key: tuple[int, int]) -> list[np.ndarray]:
    """0 .. len(rows) - 1 in the random order of the key, `batch` at a time, those of one row in groups of `together`."""
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
    order = draw.permutation(len(rows))
    order = order[np.argsort(rows[order], kind="stable")]  # by row, those of a row in a random order
    number = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])  # of each among those of its row
    group = np.cumsum(number % together == 0) - 1
    order = order[np.argsort(draw.permutation(group[-1] + 1)[group], kind="stable")]
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def _checked(rows: np.ndarray, count: int) -> np.ndarray:
    """Rows of a source with `count` pictures; there must be one at least."""
    rows = np.asarray(rows, dtype=np.int64)
    if not len(rows):
        raise RegardError("there is no picture to make batches of", "give some")
    if rows.min() < 0 or rows.max() >= count:
        raise RegardError(f"there are {count} pictures, 0 to {count - 1}, but rows from {rows.min()} to {rows.max()}")
    return rows
