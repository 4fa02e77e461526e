"""The Transformer (Vaswani et al. 2017): encoder and decoder of the same blocks."""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention import Lengths, Mask, MultiHead, Role
from regard.blocks import Around, Block, FeedForward, make_norm
from regard.embed import TokenEmbedding, positions
from regard.models.config import TransformerConfig
from regard.models.memory import Memory
from regard.models.transformer_decoder import TransformerDecoder


class Transformer(TransformerDecoder):
    """`model(batch)` is the loss; `encode` and `decode` are its two halves."""

    def __init__(
        self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ):
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        source_table, target_table = self.tables()
        self.source = TokenEmbedding(source_table, _positions(config), config.dropout)
        self.target = TokenEmbedding(target_table, _positions(config), config.dropout)
        self.encoder = nn.ModuleList(_block(config, decoder=False) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(_block(config, decoder=True) for _ in range(config.decoder_layers))
        last = nn.LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(config.width), last(config.width)
        self.finish(target_table)

    def encode(self, ids: Tensor, lengths: Tensor) -> Memory:
        mask: Mask | None = None if bool((lengths == ids.size(1)).all()) else Lengths(lengths)
        x = self.source(ids)  # (B, S, D)
        for block in self.encoder:
            x = block(x, mask)
        return Memory(self.encoder_norm(x), mask)


def _positions(config: TransformerConfig) -> nn.Module:
    return positions(config.positions, config.width, config.max_length)


def _block(config: TransformerConfig, *, decoder: bool) -> Block:
    def heads(role: Role) -> MultiHead:
        scale = None if config.scaled else 1.0
        return MultiHead(config.width, config.heads, role=role, dropout=config.attention_dropout, scale=scale)

    def around() -> Around:
        norm = make_norm("layer", config.width)
        return Around(norm, config.dropout, order=config.norm, residual=config.residual)

    feed_forward = FeedForward(
        config.width, config.feed_forward, activation=config.activation, rate=config.activation_dropout
    )
    own, cross = heads("causal" if decoder else "self"), heads("cross") if decoder else None
    return Block(own, cross, feed_forward, around)
