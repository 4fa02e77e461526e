"""Batches of pictures: with labels, captions, or questions and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.batch import ByRows
from regard.noise import Picked


@dataclass(frozen=True)
class PictureBatch(ByRows):
    """Pictures, each with its label; or, mixed (Zhang et al. 2018), with two labels of which the first has a share."""

    pixels: Tensor  # (B, channels, height, width), normalised
    labels: Tensor  # (B,)
    others: Tensor | None = None  # (B,): the labels of what was mixed in
    shares: Tensor | None = None  # (B,): from 0 to 1, how much of a picture is its own

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows = len(self.labels)
        return {"loss": rows, "nll": rows, "correct": rows}


@dataclass(frozen=True)
class CaptionBatch(ByRows):
    """Pictures, or features computed of them before, each with a caption: begin token, tokens, end token."""

    pixels: Tensor  # (B, channels, height, width), normalised; or features (B, P, K)
    target: Tensor  # (B, T + 1): begin, tokens, end
    target_lengths: Tensor  # (B,): T of each row, the number of tokens to predict (end included)
    target_tokens: int

    @property
    def source_parts(self) -> tuple[Tensor, ...]:
        """The tensors that `encode` takes."""
        return (self.pixels,)

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        return dict.fromkeys(("loss", "nll", "spread", "chosen", "baseline"), self.target_tokens)

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        return {"target_tokens": int(self.target_lengths[first:end].sum())}


@dataclass(frozen=True)
class AnswerBatch(ByRows):
    """Pictures (or features of them), each with a question about it and the number of its answer."""

    pixels: Tensor  # (B or fewer, channels, height, width), normalised; or features (B, P, K)
    ids: Tensor  # (B, S): the question
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)
    pictures: Tensor | None = None  # (B,) which of the pictures each question is about; None: each about its own
    picture_place: Picked | None = None  # of a part: which pictures of the whole batch these are

    @property
    def examples(self) -> int:
        return len(self.labels)

    @property
    def counts(self) -> dict[str, int]:
        """Over how many items each part of the loss is summed."""
        rows = len(self.labels)
        return {"loss": rows, "nll": rows, "correct": rows}

    def of_part(self, first: int, end: int) -> dict[str, Any]:
        if self.pictures is None:
            return {}
        seen, which = torch.unique(self.pictures[first:end], return_inverse=True)
        return {"pixels": self.pixels[seen], "pictures": which, "picture_place": Picked(seen, len(self.pixels))}
