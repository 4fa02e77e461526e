"""Classifiers on the body of a language model, trained on much text first and then on few labels: BERT and GPT."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attention import AttentionCall
from regard.attention.distances import tree_distances
from regard.blocks import balance_terms, initialise_normal
from regard.data.batch import LabelBatch
from regard.errors import RegardError
from regard.models.bert import BertEncoder
from regard.models.classifier import Classifier, max_of_real, mean_of_real, real_places, rollout
from regard.models.config import BertConfig, GPTLineConfig
from regard.models.gpt import GPT
from regard.models.loss import Loss, Part
from regard.models.output import output_loss


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
        if self.config.positions != "tree" or batch.heads is None:
            return None
        return tree_distances(batch.heads)

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
        with balance_terms() as balance:
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
        """What a language model's loss on the texts themselves would be."""
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
    """What stands at the last real place of each row: (B, S, K) -> (B, K)."""
    return x[torch.arange(len(x), device=x.device), lengths - 1]


@torch.no_grad()
def load_strictly(body: nn.Module, tensors: dict[str, Tensor], prefix: str = "") -> None:
    """Copy named tensors into the parameters of `body`: as many, of the same shapes, or none at all."""
    parameters = {prefix + name: parameter for name, parameter in body.named_parameters()}
    advice = "give this model the tokenizer and the [model] of the one it starts from"
    missing, unknown = sorted(parameters.keys() - tensors.keys()), sorted(tensors.keys() - parameters.keys())
    if missing:
        raise RegardError(f"the trained model has no {_some(missing)}; {advice}")
    if unknown:
        raise RegardError(f"the trained model has {_some(unknown)}, for which there is no place here; {advice}")
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            theirs, ours = tuple(tensors[name].shape), tuple(parameter.shape)
            raise RegardError(f"{name} of the trained model is {theirs}, but here it is {ours}; {advice}")
    for name, parameter in parameters.items():
        parameter.copy_(tensors[name])


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def _depths_around(model: nn.Module, body: str, inside: dict[str, int], deepest: int) -> dict[str, int]:
    """The depths of a body's parameters under their names in `model`; all others are the deepest."""
    known = {f"{body}.{name}": depth for name, depth in inside.items()}
    return {name: known.get(name, deepest) for name, _ in model.named_parameters()}
