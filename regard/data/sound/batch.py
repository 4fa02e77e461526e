"""Batches of sounds as log-mel frames: with labels, or with their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.data.batch import ByRows


@dataclass(frozen=True)
class SoundBatch(ByRows):
    """Sounds as log-mel frames, each with its label."""

    frames: Tensor  # (B, T, M), zeros behind the end of each
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows = len(self.labels)
        return {"loss": rows, "nll": rows, "correct": rows}


@dataclass(frozen=True)
class SpeechBatch(ByRows):
    """Sounds as log-mel frames, each with its words: begin token, tokens, end token."""

    frames: Tensor  # (B, S, M), zeros behind the end of each
    lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1): begin, tokens, end
    target_lengths: Tensor  # (B,): T of each row, the number of tokens to predict (end included)
    target_tokens: int

    @property
    def source_parts(self) -> tuple[Tensor, ...]:
        """The tensors that `encode` takes."""
        return self.frames, self.lengths

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return dict.fromkeys(("loss", "nll", "ctc"), self.target_tokens)

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        return {"target_tokens": int(self.target_lengths[first:end].sum())}
