"""Captions by a Transformer decoder (Vaswani et al. 2017): each word looks back at the others, and at the picture's places."""

from __future__ import annotations

from torch import Tensor, nn

from regard.blocks import Stack
from regard.data.pictures.format import PictureFormat
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.models.configs.pictures import CaptionTransformerConfig
from regard.models.memory import Memory
from regard.models.pictures.captioner import encoder_of, looking_block, placed_projection, view_of
from regard.models.transformer_decoder import TransformerDecoder


class CaptionTransformer(TransformerDecoder):
    """Words and places both know where they are: sinusoids, of places for row and column."""

    config: CaptionTransformerConfig

    def __init__(
        self, config: CaptionTransformerConfig, format: PictureFormat, vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, 0, vocabulary, smoothing)
        width, rate = config.width, config.dropout
        self.target = TokenEmbedding(embedding_table(vocabulary, width), positions("sinusoidal", width, 256), rate)
        self.decoder = Stack(looking_block(config, "causal") for _ in range(config.layers))
        self.decoder_norm = nn.LayerNorm(width)
        self.finish(self.target.table)
        self.encoder = encoder_of(config.encoder, format)
        self.projection = placed_projection(self.encoder, config)

    def encode(self, pixels: Tensor) -> Memory:
        return Memory(self.projection(view_of(self.encoder, pixels).places), None, "grid")
