"""Classifiers of pictures: an encoder by its `kind`, one layer from its vector to the labels, the loss, the best guesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.blocks import initialise, initialise_head
from regard.data.pictures.batch import PictureBatch
from regard.data.pictures.config import PictureFormat
from regard.models.classifier import label_parts
from regard.models.config import EfficientNetConfig, EncoderConfig
from regard.models.loss import Loss, Part
from regard.models.pictures.convolutional import ConvNet, EfficientNetLite0, ResNet
from regard.models.pictures.encoder import PictureEncoder
from regard.models.pictures.mixer import ConvMixer, Mixer
from regard.models.pictures.vit import ViT
from regard.noise import dropout

ENCODERS: dict[str, Any] = {
    "convnet": ConvNet,
    "resnet": ResNet,
    "vit": ViT,
    "mixer": Mixer,
    "convmixer": ConvMixer,
    "efficientnet-lite0": EfficientNetLite0,
}


def make_encoder(config: EncoderConfig, picture_format: PictureFormat) -> PictureEncoder:
    """A network that sees pictures of this format, with fresh weights (seed torch first for repeatable ones)."""
    encoder: PictureEncoder = ENCODERS[config.kind](config, picture_format)
    return encoder


class PictureClassifier(nn.Module):
    """`model(batch)` is the loss. `head` makes scores of labels from a picture's vector, of which some is dropped.

    In training labels count by `class_weights` (labels,), if there are any; they are no part of what is saved.
    """

    class_weights: Tensor | None

    def __init__(
        self, config: EncoderConfig, picture_format: PictureFormat, labels: int, smoothing: float = 0.0
    ) -> None:
        super().__init__()

        self.config, self.format, self.smoothing = config, picture_format, smoothing
        self.rate = 0.0 if isinstance(config, EfficientNetConfig) else config.dropout
        self.encoder = make_encoder(config, picture_format)
        self.head = nn.Linear(self.encoder.width, labels)
        (initialise_head if self.encoder.normed else initialise)(self.head)
        self.register_buffer("class_weights", None, persistent=False)

    def forward(self, batch: PictureBatch) -> Loss:
        logits = self.logits(batch)
        smoothing, weights = (self.smoothing, self.class_weights) if self.training else (0.0, None)
        if batch.others is None or batch.shares is None:
            return Loss(label_parts(logits, batch.labels, smoothing, weights))
        return Loss(mixed_parts(logits, batch.labels, batch.others, batch.shares, smoothing, weights))

    def logits(self, seen: PictureBatch | Tensor) -> Tensor:
        """Logits of a batch, or of pixels (B, channels, height, width): (B, labels)."""
        vector = self.encoder(seen if isinstance(seen, Tensor) else seen.pixels).vector  # (B, D)
        return self.head(dropout(vector, self.rate) if self.training else vector)

    @torch.no_grad()
    def top_k(self, seen: PictureBatch | Tensor, k: int = 5) -> tuple[Tensor, Tensor]:
        """The k most likely labels of each picture, best first: probabilities and numbers, each (B, k or all labels)."""
        probabilities = self.logits(seen).float().softmax(dim=-1)
        best = probabilities.topk(min(k, probabilities.size(-1)), dim=-1)
        return best.values, best.indices


def mixed_parts(
    logits: Tensor, labels: Tensor, others: Tensor, shares: Tensor, smoothing: float, weights: Tensor | None = None
) -> dict[str, Part]:
    """`label_parts` of mixed pictures (Zhang et al. 2018): each counts by its share for its label, the rest for the other.

    loss = Σ share · CE(label) + (1 - share) · CE(other), and the likelihood and what is right in the same way.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # of half precision, sums are too coarse
    shares, plain, best = shares.to(logits.dtype), logits.detach(), logits.argmax(dim=-1)

    def mixed(each: Callable[[Tensor], Tensor]) -> Tensor:
        return (shares * each(labels) + (1 - shares) * each(others)).sum()

    weights = None if weights is None else weights.to(logits.dtype)
    loss = mixed(
        lambda wanted: cross_entropy(logits, wanted, weight=weights, label_smoothing=smoothing, reduction="none")
    )
    nll = mixed(lambda wanted: cross_entropy(plain, wanted, reduction="none"))
    right = mixed(lambda wanted: (best == wanted).to(logits.dtype))
    count = len(labels)
    return {"loss": Part(loss, count), "nll": Part(nll, count, weight=0.0), "correct": Part(right, count, weight=0.0)}
