"""The Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.attention import Causal, Lengths, Mask, MultiHead, Role
from regard.blocks import Block, BlockState, FeedForward, Residual, Selective, Stack, StateSpace, make_norm
from regard.blocks.norm import reading_rows
from regard.embed import TokenEmbedding, positions
from regard.models.attention import (
    block_positions,
    called,
    make_attention,
    make_cross_attention,
    relative_positions,
    rotary_positions,
)
from regard.models.configs.translation import TransformerConfig
from regard.models.encoder_decoder import EncoderDecoder, Memory, rows_of_parents, rows_of_sources


@dataclass
class TransformerState:
    """Between two steps of decoding: of each block its state, and how many tokens have been read."""

    blocks: list[BlockState]
    read: int = 0
    hypotheses: int = 1  # of each source: W


class TransformerDecoder(EncoderDecoder):
    """A family adds `encode`, and builds the parts named here."""

    target: TokenEmbedding
    decoder: Stack
    decoder_norm: nn.Module

    def decode(self, ids: Tensor, memory: Memory) -> Tensor:
        """Vectors that predict the token after each of `ids` (B, T). Padding stands behind, where causality hides it."""
        x = self.target(ids)  # (B, T, D)
        return self.decoder_norm(self.decoder(x, Causal(), memory.vectors, memory.mask))

    def start(self, source: tuple[Tensor, ...], prefix: Tensor) -> tuple[Tensor, TransformerState]:
        """Read the sources (what `encode` takes) and the prefix (B, P): logits (B, 1, V) of what follows."""
        memory = self.encode(*source)
        state = TransformerState(self.decoder.start(memory.vectors, memory.mask, memory.vectors))
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        x = self.target(ids.reshape(-1, 1), start=state.read).view(*ids.shape, -1)  # (B, W, D)
        x = self.decoder.step(x, state.blocks)
        return self.output(self.decoder_norm(x)), TransformerState(state.blocks, state.read + 1, state.hypotheses)

    def reorder(self, state: TransformerState, parents: Tensor) -> TransformerState:
        """New hypotheses from old ones: `parents` (B, W') index into W. The source's part stays as it is."""
        flat = rows_of_parents(parents, state.hypotheses)
        blocks = [BlockState(block.own.select(flat), block.memory) for block in state.blocks]
        return TransformerState(blocks, state.read, parents.size(1))

    def keep(self, state: TransformerState, rows: Tensor) -> TransformerState:
        """Only the sources `rows` go on."""
        flat = rows_of_sources(rows, state.hypotheses)
        blocks = [
            BlockState(block.own.select(flat), None if block.memory is None else block.memory.keep(rows))
            for block in state.blocks
        ]
        return TransformerState(blocks, state.read, state.hypotheses)


class Transformer(TransformerDecoder):
    """`model(batch)` is the loss; `encode` and `decode` are its two halves."""

    def __init__(
        self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ):
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        source_table, target_table = self.tables()
        hidden = config.token_dropout
        self.source = TokenEmbedding(source_table, _positions(config), config.dropout, token_rate=hidden)
        self.target = TokenEmbedding(target_table, _positions(config), config.dropout, token_rate=hidden)
        self.encoder = Stack(_blocks(config, config.encoder_layers, decoder=False))
        self.decoder = Stack(_blocks(config, config.decoder_layers, decoder=True))
        self.encoder_norm, self.decoder_norm = _last_norm(config), _last_norm(config)
        self.finish(target_table)

    def encode(self, ids: Tensor, lengths: Tensor) -> Memory:
        mask: Mask | None = None if bool((lengths == ids.size(1)).all()) else Lengths(lengths)
        with reading_rows(lengths):
            return Memory(self.encoder_norm(self.encoder(self.source(ids), mask)), mask)  # (B, S, D)


def _positions(config: TransformerConfig) -> nn.Module:
    where = config.positions_where
    return positions(config.positions, config.width, config.max_length, config.random_offset, where)


def _last_norm(config: TransformerConfig) -> nn.Module:
    return make_norm(config.norm_kind, config.width) if config.norm == "pre" else nn.Identity()


def _blocks(config: TransformerConfig, count: int, *, decoder: bool) -> Iterator[Block]:
    """The blocks of one half; what tells them distances is one table for all of them."""
    rotary = rotary_positions(config.positions, config.width, config.heads, 10_000.0, config.max_length)
    relative = relative_positions(config.positions, config.width, config.heads, causal=decoder, reach=config.reach)
    places = block_positions(config.positions, config.positions_where, config.width, config.max_length)
    scale = None if config.scaled else 1.0
    for number in range(count):
        parts: dict[str, Any] = {"number": number, "longest": config.max_length, "scale": scale}
        parts["dropout"] = config.attention_dropout
        own = config.decoder_attention if decoder else config.encoder_attention
        role: Role = "causal" if decoder else "self"
        with called("decoder_attention" if decoder else "encoder_attention"):
            attention = make_attention(
                own, config.width, config.heads, role=role, rotary=rotary, relative=relative, **parts
            )
        with called("cross_attention"):
            other, sizes = config.cross_attention, (config.width, config.heads)
            cross = make_cross_attention(other, *sizes, **parts) if decoder else None
        yield _block(config, attention, cross, places)


def _block(
    config: TransformerConfig,
    attention: MultiHead | StateSpace | Selective,
    cross: MultiHead | None,
    places: nn.Module | None,
) -> Block:
    def around() -> Residual:
        norm = make_norm(config.norm_kind, config.width)
        return Residual(norm, config.dropout, order=config.norm, residual=config.residual)

    sizes, rate = (config.width, config.feed_forward), config.activation_dropout
    feed_forward = FeedForward(*sizes, activation=config.activation, rate=rate) if config.feed_forward else None
    return Block(attention, cross, feed_forward, around, places)
