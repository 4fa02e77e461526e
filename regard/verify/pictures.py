"""What the checks must know of the tasks that see: random pictures, with labels, captions or questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.blocks.norm import BatchNorm
from regard.data.batch import AnswerBatch, CaptionBatch, PictureBatch
from regard.data.batch import pad as padded
from regard.data.pictures.config import PictureFormat
from regard.tokens import PAD, TextTokenizer, as_arrays
from regard.verify.subject import EXTRA, ROWS, NotApplicable, Subject

LENGTHS = (5, 2, 11, 7, 3)  # tokens of each caption or question


class SeeingSubject(Subject):
    """What all tasks that see share."""

    @property
    def format(self) -> PictureFormat:
        assert self.bundle.config.pictures is not None
        return self.bundle.config.pictures

    @cached_property
    def pixels(self) -> Tensor:
        """(5, channels, size, size)."""
        size, channels = self.format.size, self.format.channels
        return torch.randn(len(ROWS), channels, size, size, generator=torch.Generator().manual_seed(1))

    @cached_property
    def labels(self) -> Tensor:
        return torch.from_numpy(np.random.default_rng(3).integers(0, len(self.bundle.config.labels), len(ROWS)))

    def batch(self, model: nn.Module, rows: Sequence[int] = ROWS) -> Any:
        batch = super().batch(model, rows)
        return replace(batch, pixels=batch.pixels.to(next(model.parameters()).dtype))

    def training(self, seed: int) -> _Few:
        return _Few([self.take(rows) for rows in ([0, 1], [2, 3], [3, 4], [4, 0])], seed)

    def needs_parts(self) -> None:
        if any(isinstance(module, BatchNorm) for module in self.bundle.model.modules()):
            raise NotApplicable("batch norm takes its statistics from each micro-batch by itself, not the whole batch")


class ClassifyPicturesSubject(SeeingSubject):
    """Pictures with labels."""

    def take(self, rows: Sequence[int]) -> PictureBatch:
        return PictureBatch(self.pixels[list(rows)], self.labels[list(rows)])

    def lengthened(self, batch: PictureBatch) -> PictureBatch:
        raise NotApplicable("pictures have one size: nothing stands behind their end")

    def real(self, outputs: Tensor, batch: PictureBatch) -> list[Tensor]:
        return list(outputs)

    @property
    def tokenizers(self) -> dict[str, TextTokenizer]:
        return {}


class CaptionSubject(SeeingSubject):
    """Pictures with captions to write."""

    @cached_property
    def captions(self) -> list[np.ndarray]:
        return as_arrays([ids.tolist() for ids in self.draw(LENGTHS, special=2)], begin=True)

    def take(self, rows: Sequence[int]) -> CaptionBatch:
        target, lengths = padded([self.captions[row] for row in rows], PAD)
        return CaptionBatch(self.pixels[list(rows)], target, lengths - 1, int(lengths.sum()) - len(lengths))

    def lengthened(self, batch: CaptionBatch) -> CaptionBatch:
        return replace(batch, target=pad(batch.target, (0, EXTRA - 1), value=PAD))

    def real(self, outputs: Tensor, batch: CaptionBatch) -> list[Tensor]:
        return [row[:length] for row, length in zip(outputs, batch.target_lengths.tolist(), strict=True)]

    def reads(self, batch: CaptionBatch) -> tuple[Tensor]:
        return (batch.pixels,)

    def writes(self, batch: CaptionBatch) -> Tensor:
        return batch.target

    def rewritten(self, batch: CaptionBatch, ids: Tensor) -> CaptionBatch:
        lengths = torch.full_like(batch.target_lengths, ids.size(1) - 1)
        return replace(batch, target=ids, target_lengths=lengths, target_tokens=int(lengths.sum()))


class AnswerSubject(SeeingSubject):
    """Pictures with questions."""

    @cached_property
    def questions(self) -> list[np.ndarray]:
        return as_arrays([ids.tolist() for ids in self.draw(LENGTHS, special=1)], begin=False)

    def take(self, rows: Sequence[int]) -> AnswerBatch:
        ids, lengths = padded([self.questions[row] for row in rows], PAD)
        return AnswerBatch(self.pixels[list(rows)], ids, lengths, self.labels[list(rows)])

    def lengthened(self, batch: AnswerBatch) -> AnswerBatch:
        return replace(batch, ids=torch.cat([batch.ids, batch.ids[:, :1].expand(-1, EXTRA)], dim=1))

    def real(self, outputs: Tensor, batch: AnswerBatch) -> list[Tensor]:
        return list(outputs)


class _Few:
    """A few batches, as the training loop takes them, in an order of each epoch's own."""

    def __init__(self, batches: list[Any], seed: int) -> None:
        self.batches, self.seed = batches, seed

    def count(self, epoch: int) -> int:
        return len(self.batches)

    def get(self, epoch: int, index: int) -> Any:
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.batches))
        return self.batches[order[index]]

    def padding_share(self) -> float:
        return 0.0


SEEING: dict[str, type[Subject]] = {
    "classify-pictures": ClassifyPicturesSubject,
    "caption": CaptionSubject,
    "answer": AnswerSubject,
}
