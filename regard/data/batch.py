"""Batches: frozen, with the shape of each field, and the counts known before the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class PairBatch:
    """Pairs of token sequences. A source ends with the end token; a target also starts with the begin token."""

    source: Tensor  # (B, S)
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1): begin, tokens, end
    target_lengths: Tensor  # (B,): T of each row, the number of tokens to predict (end included)
    target_tokens: int

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return {"loss": self.target_tokens, "nll": self.target_tokens}

    @property
    def padded_tokens(self) -> int:
        return self.source.numel() + self.target.numel() - len(self.target)

    @property
    def real_tokens(self) -> int:
        return int(self.source_lengths.sum()) + self.target_tokens

    def to(self, device: torch.device | str) -> PairBatch:
        if torch.device(device).type == "cpu":
            return self
        names = ("source", "source_lengths", "target", "target_lengths")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def pad(sequences: Sequence[np.ndarray], fill: int) -> tuple[Tensor, Tensor]:
    """Sequences of ids as one matrix, `fill` behind the shorter ones, and their lengths."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    ids = np.full((len(sequences), int(lengths.max())), fill, dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids), lengths


def pair_batch(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], fill: int) -> PairBatch:
    """A batch of sources (each with its end token) and targets (each with its begin and end tokens)."""
    source, source_lengths = pad(sources, fill)
    target, lengths = pad(targets, fill)
    return PairBatch(source, source_lengths, target, lengths - 1, int(lengths.sum()) - len(lengths))
