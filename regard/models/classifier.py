"""The base of every text classifier: one vector for a text, one layer to its labels, the loss, and which tokens counted.

A family adds `features`, which makes the vector, and `counted`, which reads from its attention how it was made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import AttentionCall, Lengths, Mask, Seen
from regard.attention.relative import tree_distances
from regard.blocks import balance_terms, initialise_normal
from regard.blocks.norm import reading_rows
from regard.data.batch import LabelBatch
from regard.errors import RegardError
from regard.models.bert import BertEncoder
from regard.models.config import BertConfig, GPTLineConfig
from regard.models.gpt import GPT
from regard.models.loss import Loss, Part, output_loss
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
        """The share of each token in its text's vector, from one recorded `logits(batch)`: (B, S).

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
    """The mask of each text's real tokens; None where nothing is padding."""
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


class BertClassifier(Classifier):
    """A text's vector is that of [CLS], through the pooler if there is one (Devlin et al. 2019, section 4.1).

    Where nothing taught [CLS] to stand for the text (no next-sentence pairs), the mean of all tokens may serve better
    (`model.labels_from = "mean"`), or where a few of very many tokens tell the label, their maximum ("max").
    """

    def __init__(self, config: BertConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.width, labels), config.dropout, smoothing)
        self.config = config
        self.encoder = BertEncoder(config, vocabulary)
        initialise_normal(self)

    def features(self, batch: LabelBatch) -> Tensor:
        vectors = self.encoder(batch.ids, batch.lengths, batch.segments, self.distances(batch)).vectors  # (B, S, D)
        if self.config.labels_from == "mean":
            return mean_of_real(vectors, batch.lengths)  # (B, D)
        if self.config.labels_from == "max":
            return max_of_real(vectors, batch.lengths)  # (B, D)
        return self.encoder.pooled(vectors)  # (B, D)

    def distances(self, batch: LabelBatch) -> Tensor | None:
        """Where positions are those of a tree, how far apart its tokens are: (B, S, S)."""
        if self.config.positions != "tree" or batch.parents is None:
            return None
        return tree_distances(batch.parents)

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        flow = rollout(calls)  # (B, S, S)
        if self.config.labels_from == "cls":
            return flow[:, 0]  # (B, S)
        return mean_of_real(flow, lengths)  # of a maximum, too: which token gave it is another one in every channel

    def depths(self) -> dict[str, int]:
        """How deep each parameter lies: 0 for embeddings, then the number of its block, then what is above them."""
        return _depths_around(self, "encoder", self.encoder.depths(), len(self.encoder.blocks) + 1)

    def load_body(self, tensors: dict[str, Tensor]) -> None:
        """Take the encoder of a trained `Bert`; the heads of its own tasks are left."""
        inside = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in ("head", "follows")}
        load_strictly(self.encoder, inside, prefix="encoder.")


class GPTClassifier(Classifier):
    """A text's vector is that of its last token, which has read all (Radford et al. 2018, section 3.2).

    The body may go on predicting the text as it learns the labels: L = L_labels + λ L_text, λ `model.language_weight`.
    """

    def __init__(self, config: GPTLineConfig, vocabulary: int, labels: int, smoothing: float = 0.0) -> None:
        super().__init__(nn.Linear(config.width, labels), config.dropout, smoothing)
        self.config = config
        initialise_normal(self)
        self.body = GPT(config, vocabulary)

    def forward(self, batch: LabelBatch) -> Loss:
        with balance_terms() as balance, reading_rows(batch.lengths):
            hidden = self.body.read(batch.ids)  # (B, S, D)
        parts = self.label_parts(self.scores(last_of(hidden, batch.lengths)), batch.labels)
        if balance and self.training:
            sum_, count = parts["loss"].sum, parts["loss"].count
            parts["loss"] = Part(sum_ + self.config.balance * count * sum(balance) / len(balance), count)
        if self.config.language_weight:
            parts["language"] = self.language_part(hidden, batch)
        return Loss(parts)

    def features(self, batch: LabelBatch) -> Tensor:
        return last_of(self.body.read(batch.ids), batch.lengths)  # (B, D)

    def language_part(self, hidden: Tensor, batch: LabelBatch) -> Part:
        """The loss of language modelling on the texts themselves."""
        real = real_places(batch.lengths - 1, batch.ids.size(1) - 1)  # (B, S - 1)
        kept, wanted = hidden[:, :-1][real], batch.ids[:, 1:][real]  # (N, D), (N,)
        loss, _ = output_loss(kept, self.body.output.weight, wanted, smoothing=0.0)
        return Part(loss, batch.predicted, weight=self.config.language_weight)

    def counted(self, calls: Sequence[AttentionCall], lengths: Tensor) -> Tensor:
        return last_of(rollout(calls), lengths)  # (B, S)

    def depths(self) -> dict[str, int]:
        """How deep each parameter lies: 0 for embeddings, then the number of its block, then what is above them."""
        return _depths_around(self, "body", self.body.depths(), len(self.body.blocks) + 1)

    def load_body(self, tensors: dict[str, Tensor]) -> None:
        """Take all of a trained `GPT`."""
        load_strictly(self.body, tensors)


def last_of(x: Tensor, lengths: Tensor) -> Tensor:
    """The vector at the last real place of each row: (B, S, K) -> (B, K)."""
    return x[torch.arange(len(x), device=x.device), lengths - 1]


@torch.no_grad()
def load_strictly(body: nn.Module, tensors: dict[str, Tensor], prefix: str = "") -> None:
    """Copy named tensors into the parameters of `body`: as many, of the same shapes, or none at all."""
    parameters = {prefix + name: parameter for name, parameter in body.named_parameters()}
    advice = "give this model the tokenizer and the [model] of the one it starts from"
    missing, unknown = sorted(parameters.keys() - tensors.keys()), sorted(tensors.keys() - parameters.keys())
    if missing:
        raise RegardError(f"the trained model has no {_some(missing)}", advice)
    if unknown:
        raise RegardError(f"the trained model has {_some(unknown)}, for which there is no place here", advice)
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            theirs, ours = tuple(tensors[name].shape), tuple(parameter.shape)
            raise RegardError(f"{name} of the trained model is {theirs}, but here it is {ours}", advice)
    for name, parameter in parameters.items():
        parameter.copy_(tensors[name])


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def _depths_around(model: nn.Module, body: str, inside: dict[str, int], deepest: int) -> dict[str, int]:
    """The depths of a body's parameters under their names in `model`; all others are the deepest."""
    known = {f"{body}.{name}": depth for name, depth in inside.items()}
    return {name: known.get(name, deepest) for name, _ in model.named_parameters()}
