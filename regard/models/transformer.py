"""The Transformer (Vaswani et al. 2017): encoder and decoder of the same blocks.

Also the stepper that decoding uses: `start`, `step`, `reorder`, `keep`. Nothing is stored on the module between calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from regard.attention import Causal, Lengths, Mask, MultiHead, Role
from regard.blocks import Around, Block, BlockState, FeedForward, make_norm
from regard.embed import TokenEmbedding, positions
from regard.models.config import TransformerConfig
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.hypotheses import rows_of_parents, rows_of_sources
from regard.models.memory import Memory


@dataclass
class TransformerState:
    """Between two steps of decoding: of each block its state, and how many tokens have been read."""

    blocks: list[BlockState]
    read: int = 0
    hypotheses: int = 1  # of each source: W


class Transformer(EncoderDecoder):
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

    def decode(self, ids: Tensor, memory: Memory) -> Tensor:
        """Vectors that predict the token after each of `ids` (B, T). Padding stands behind, where causality hides it."""
        x = self.target(ids)  # (B, T, D)
        for block in self.decoder:
            x = block(x, Causal(), memory.vectors, memory.mask)
        return self.decoder_norm(x)

    def decoder_blocks(self) -> Iterator[Block]:
        for block in self.decoder:
            assert isinstance(block, Block)
            yield block

    def start(self, source: tuple[Tensor, Tensor], prefix: Tensor) -> tuple[Tensor, TransformerState]:
        """Read the sources (ids, lengths) and the prefix (B, P): logits (B, 1, V) of what follows."""
        memory = self.encode(*source)
        blocks = [block.start(memory.vectors, memory.mask, memory.vectors) for block in self.decoder_blocks()]
        state = TransformerState(blocks)
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        x = self.target(ids.reshape(-1, 1), start=state.read).view(*ids.shape, -1)  # (B, W, D)
        for block, block_state in zip(self.decoder_blocks(), state.blocks, strict=True):
            x = block.step(x, block_state)
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
