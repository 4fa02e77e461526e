"""What every classifier of texts shares: one vector for a text, one layer to its labels, the loss, and what counted.

A family adds `features`, which makes the vector, and `counted`, which reads from its attention how it was made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import AttentionCall, Lengths, Mask, Seen
from regard.data.batch import LabelBatch
from regard.models.loss import Loss, Part
from regard.noise import dropout


class Classifier(nn.Module):
    """`model(batch)` is the loss. `head` makes scores of labels from a text's vector, of which `rate` is dropped.

    In training labels count by `class_weights` (labels,), if there are any; they are no part of what is saved.
    """

    class_weights: Tensor | None

    def __init__(self, head: nn.Module, rate: float, smoothing: float) -> None:
        super().__init__()
        self.head, self.rate, self.smoothing = head, rate, smoothing
        self.register_buffer("class_weights", None, persistent=False)

    @abstractmethod
    def features(self, batch: LabelBatch) -> Tensor:
        """The vector of each text: (B, K)."""

    @abstractmethod
    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        """From the attentions of one pass, how much each token counted for its text's vector: (B, S), padding nothing."""

    def forward(self, batch: LabelBatch) -> Loss:
        return Loss(self.label_parts(self.logits(batch), batch.labels))

    def logits(self, batch: LabelBatch) -> Tensor:
        return self.scores(self.features(batch))  # (B, labels)

    def scores(self, features: Tensor) -> Tensor:
        """(B, K) -> (B, labels)."""
        return self.head(dropout(features, self.rate) if self.training else features)

    def label_parts(self, logits: Tensor, labels: Tensor) -> dict[str, Part]:
        """The loss, the plain negative log-likelihood, and how many are right, each summed over the texts."""
        if not self.training:
            return label_parts(logits, labels, 0.0)
        return label_parts(logits, labels, self.smoothing, self.class_weights)

    def looked(self, seen: Seen, lengths: Tensor) -> Tensor:
        """Of one recorded `logits(batch)`, the share of each token in its text's vector: (B, S).

        Rows sum to one, padding has nothing. A text of which no token counted has zeros.
        """
        if not seen.calls:
            raise ValueError("no attention was seen: call `logits` once inside `record(model)`")
        counted = self.counted(seen.calls, lengths)  # (B, S)
        return counted / counted.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(counted.dtype).tiny)


def label_parts(logits: Tensor, labels: Tensor, smoothing: float, weights: Tensor | None = None) -> dict[str, Part]:
    """The loss, the plain negative log-likelihood, and how many are right, each summed over the rows of logits.

    With `weights` (labels,) a row counts in the loss by its label's. Their mean over the rows of training is 1, so that
    the loss divided by the number of rows keeps its scale.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # of half precision, sums are too coarse
    weights = None if weights is None else weights.to(logits.dtype)
    smooth = cross_entropy(logits, labels, weight=weights, label_smoothing=smoothing, reduction="sum")
    plain = cross_entropy(logits.detach(), labels, reduction="sum")
    right = (logits.argmax(dim=-1) == labels).sum().to(logits.dtype)
    count = len(labels)
    return {
        "loss": Part(smooth, count),
        "nll": Part(plain, count, weight=0.0),
        "correct": Part(right, count, weight=0.0),
    }


def real_places(lengths: Tensor, places: int) -> Tensor:
    """True where a text has a token: (B, S)."""
    return torch.arange(places, device=lengths.device) < lengths[:, None]


def padding_mask(batch: LabelBatch) -> Mask | None:
    """What of each text is real; None where all of it is."""
    return None if bool((batch.lengths == batch.ids.size(1)).all()) else Lengths(batch.lengths)


def mean_of_real(x: Tensor, lengths: Tensor) -> Tensor:
    """The mean over the real places of each row: (B, S, K) -> (B, K)."""
    shares = real_places(lengths, x.size(1)).to(x.dtype) / lengths[:, None].clamp(min=1)  # (B, S)
    return (shares[:, None] @ x).squeeze(1)


def max_of_real(x: Tensor, lengths: Tensor) -> Tensor:
    """The maximum over the real places of each row, channel by channel: (B, S, K) -> (B, K)."""
    return x.masked_fill(~real_places(lengths, x.size(1))[..., None], -torch.inf).amax(dim=1)


def rollout(calls: Sequence[AttentionCall]) -> Tensor:
    """How much of each token is in each vector above a stack of blocks: (B, T, S).

    Attention rollout (Abnar & Zuidema 2020, section 3): R_l = (½ A_l + ½ I) R_{l-1}, R_0 = I, where A_l is the mean
    of a block's heads and I its residual connection. Rows sum to one; those of a map that has any sums, and signs, are
    taken by their size.
    """
    mixed = torch.eye(calls[0].q.size(-2), dtype=calls[0].q.dtype, device=calls[0].q.device)
    for call in calls:
        weights = call.weights()  # (B, H, T, S)
        if not call.sums_to_one:
            weights = weights.abs() / weights.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        mixed = (weights.mean(dim=1) @ mixed + mixed) / 2  # (B, T, S)
    return mixed
