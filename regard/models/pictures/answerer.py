"""Answers to questions about pictures: the question's tokens look at each other and at the picture's places."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention import Lengths, Mask, Seen
from regard.blocks import Stack, initialise, initialise_head
from regard.data.pictures.batch import AnswerBatch
from regard.data.pictures.config import PictureFormat
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.models.classifier import label_parts, mean_of_real
from regard.models.configs.pictures import AnswererConfig
from regard.models.loss import Loss
from regard.models.pictures.captioner import looking_block, placed_projection, view_of
from regard.models.pictures.classifier import make_encoder
from regard.noise import dropout, rows_are


class Answerer(nn.Module):
    """`model(batch)` is the loss. Blocks of the Transformer (Vaswani et al. 2017), then the mean of the question's tokens."""

    def __init__(
        self,
        config: AnswererConfig,
        picture_format: PictureFormat,
        vocabulary: int,
        labels: int,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.config, self.smoothing = config, smoothing
        width, rate = config.width, config.dropout
        self.tokens = TokenEmbedding(embedding_table(vocabulary, width), positions("sinusoidal", width, 256), rate)
        self.blocks = Stack(looking_block(config, "self") for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, labels)
        initialise(self)
        self.encoder = make_encoder(config.encoder, picture_format)
        self.projection = placed_projection(self.encoder, config)
        initialise_head(self.head)

    def forward(self, batch: AnswerBatch) -> Loss:
        return Loss(label_parts(self.logits(batch), batch.labels, self.smoothing if self.training else 0.0))

    def logits(self, batch: AnswerBatch) -> Tensor:
        features = self.features(batch)  # (B, D)
        return self.head(dropout(features, self.config.dropout) if self.training else features)  # (B, labels)

    def features(self, batch: AnswerBatch) -> Tensor:
        """The vector of each question, asked of its picture: (B, D)."""
        with rows_are(batch.picture_place):
            places = self.projection(view_of(self.encoder, batch.pixels).places)  # (pictures, P, D)
        if batch.pictures is not None:
            places = places.index_select(0, batch.pictures)  # (B, P, D)
        whole = bool((batch.lengths == batch.ids.size(1)).all())
        mask: Mask | None = None if whole else Lengths(batch.lengths)
        x = self.blocks(self.tokens(batch.ids), mask, places)  # (B, S, D)
        return mean_of_real(self.norm(x), batch.lengths)

    def looked(self, seen: Seen) -> Tensor:
        """Where the question looked in its picture, from one recorded `logits(batch)`: (B, P), rows sum to one.

        It is the last block's cross-attention, the mean over heads and over the question's real tokens.
        """
        own, cross = seen.only("self"), seen.only("cross")
        if not cross:
            raise ValueError("no attention was seen: call `logits` once inside `record(model)`")
        real = own[-1].allowed()[:, 0, 0].to(cross[-1].q.dtype)  # (B, S)
        shares = real / real.sum(dim=-1, keepdim=True).clamp(min=1)
        return torch.einsum("bs,bsp->bp", shares, cross[-1].weights().mean(dim=1))
