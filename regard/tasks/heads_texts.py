"""Texts in batches, and passes of a model over them: the loss of each text, and where each head looked in it.

    texts.losses()            the loss of each text, summed over what is predicted, and how many predictions that are
    texts.maps("cross")       where the heads looked, text by text

Whatever the task, a pass gives the loss of each prediction: a token of a translation or of a text, a hidden token, a label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.attention import AttentionCall, Role, record
from regard.models.loss import CHUNK_ELEMENTS
from regard.tokens import TextTokenizer

ROLES: tuple[Role, ...] = ("self", "causal", "cross", "pool")  # of attention between tokens

Ids = dict[str, tuple[int, ...]]  # by axis, as in `reading.Reading`
Labels = dict[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Map:
    """Where the heads of one attention looked in one text."""

    text: int
    role: Role
    layer: int
    path: str
    weights: np.ndarray  # (H, T, S)
    allowed: np.ndarray  # (T, S)
    axes: tuple[str, str]


@dataclass(frozen=True, eq=False)
class Texts:
    """Some texts in batches of like length."""

    user: Any
    ids: list[Ids]
    batches: list[tuple[np.ndarray, Any]]  # the numbers of the texts, and the batch
    name: str = "the given texts"
    raw: Sequence[Any] = ()  # the texts as they came, where they came one by one

    def __len__(self) -> int:
        return len(self.ids)

    def labels(self) -> list[Labels]:
        """What a person reads for each id; of equal ids it is worked out once."""
        axes = list(self.ids[0])
        known = {}
        for axis in axes:
            tokenizer = tokenizer_of(self.user, axis)
            numbers = sorted({number for each in self.ids for number in each[axis]})
            known[axis] = dict(zip(numbers, tokenizer.labels(numbers), strict=True))
        return [{axis: tuple(known[axis][number] for number in each[axis]) for axis in axes} for each in self.ids]

    @torch.inference_mode()
    def losses(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each text: the loss summed over its predictions, in nats, and how many there are."""
        each = self.prediction_losses()
        return np.array([float(losses.sum()) for losses in each]), np.array([float(len(losses)) for losses in each])

    @torch.inference_mode()
    def prediction_losses(self) -> list[np.ndarray]:
        """Of each text the loss of each prediction, in their order."""
        found: list[np.ndarray] = [np.zeros(0)] * len(self)
        for numbers, batch in self.batches:
            losses, rows = predictions(self.user, batch.to(self.user.device))
            counts = torch.bincount(rows.cpu(), minlength=len(numbers)).tolist()
            for number, part in zip(numbers, losses.double().cpu().split(counts), strict=True):
                found[number] = part.numpy()
        return found

    @torch.inference_mode()
    def maps(self, *roles: Role) -> Iterator[Map]:
        """Every attention of every text, batch after batch, without padding."""
        for numbers, batch in self.batches:
            with record(self.user.model, only=roles or ROLES) as seen:
                predictions(self.user, batch.to(self.user.device))
            for call in (each for each in seen.calls if each.has_exact):  # others have no heads that look
                yield from self._cut(call, numbers, seen.axes(call))

    def _cut(self, call: AttentionCall, numbers: np.ndarray, axes: tuple[str, str]) -> Iterator[Map]:
        weights = normal(call.weights(), call.sums_to_one).double().cpu().numpy()  # (B, H, T, S)
        allowed = call.allowed().any(dim=1).cpu().numpy()  # (B, T, S)
        for row, number in enumerate(numbers):
            rows, columns = (len(self.ids[number].get(axis, (0,))) for axis in axes)  # a pool has one query
            cut = weights[row, :, :rows, :columns], allowed[row, :rows, :columns]
            yield Map(int(number), call.role, call.layer, call.path, *cut, axes)


def normal(weights: Tensor, sums_to_one: bool) -> Tensor:
    """Weights that may have any sum, and signs, by their size: rows sum to one."""
    if sums_to_one:
        return weights
    return weights.abs() / weights.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def predictions(user: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """One pass: the loss of each prediction (N,), in nats, and the row of the batch that it is of (N,), row by row."""
    model, task = user.model, user.config.task
    if task == "classify":
        logits = model.logits(batch)
        return cross_entropy(logits, batch.labels, reduction="none"), torch.arange(len(logits))
    if task == "fill":
        found = model.encoder(batch.ids, batch.lengths, batch.segments).vectors[batch.places]
        hidden, table = model.head.with_bias(model.head(found), model.table)
        return token_losses(hidden, table, batch.wanted), batch.places.nonzero()[:, 0]
    hidden = model.hidden(batch)  # (B, T, D)
    wanted, lengths = (batch.target, batch.target_lengths) if task == "translate" else (batch.ids, batch.lengths)
    real = torch.arange(hidden.size(1), device=hidden.device) < lengths[:, None]  # (B, T)
    return token_losses(hidden[real], model.output.weight, wanted[:, 1:][real]), real.nonzero()[:, 0]


def token_losses(hidden: Tensor, table: Tensor, wanted: Tensor) -> Tensor:
    """-log softmax(hidden tableᵀ) at the wanted tokens, part by part: (N, D), (V, D), (N,) -> (N,)."""
    rows = max(1, CHUNK_ELEMENTS // len(table))
    parts = [hidden.new_zeros(0)]
    for start in range(0, len(hidden), rows):
        logits = hidden[start : start + rows] @ table.T
        parts.append(logits.logsumexp(dim=-1) - logits.gather(1, wanted[start : start + rows, None]).squeeze(1))
    return torch.cat(parts)


def tokenizer_of(user: Any, axis: str) -> TextTokenizer:
    """What makes ids of an axis."""
    if user.config.task != "translate":
        return user.tokenizer
    return user.tokenizers.source if axis == "source" else user.tokenizers.target
