"""Batches of labelled texts of like length under a token budget. Batch i of epoch e is a pure function of the seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from regard.data.batch import LabelBatch, label_batch
from regard.data.batches import padding_of, plan_by_length
from regard.errors import RegardError


class LabelBatches:
    """`batches.get(epoch, index)`. A batch holds at most `batch_tokens` tokens, padding included.

    `texts` are ids with all their special tokens, `labels` the number of each text's label, and `segments`, if texts
    are pairs, has 0 for the tokens of the first text and 1 for those of the second.
    """

    def __init__(
        self,
        texts: list[np.ndarray],
        labels: np.ndarray,
        pad: int,
        batch_tokens: int,
        seed: int,
        segments: list[np.ndarray] | None = None,
    ) -> None:
        if len(texts) != len(labels):
            raise RegardError(f"{len(texts)} texts and {len(labels)} labels; each text has one label")
        self.texts, self.labels, self.pad, self.segments = texts, labels, pad, segments
        self.batch_tokens, self.seed = batch_tokens, seed
        self._lengths = np.array([len(ids) for ids in texts])
        if self._lengths.max(initial=0) > batch_tokens:
            raise RegardError(
                f"a text has {self._lengths.max()} tokens and a batch only {batch_tokens}; raise train.batch_tokens or "
                "lower data.max_length"
            )
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the rows of each batch

    def __len__(self) -> int:
        return len(self.texts)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> LabelBatch:
        return self.take(self.plan(epoch)[index])

    def take(self, rows: Sequence[int] | np.ndarray) -> LabelBatch:
        segments = None if self.segments is None else [self.segments[i] for i in rows]
        return label_batch([self.texts[i] for i in rows], [int(self.labels[i]) for i in rows], self.pad, segments)

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        return padding_of(self.plan(0), self._lengths)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.batch_tokens, (self.seed, epoch))
