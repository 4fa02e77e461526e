"""The writing half of the Transformer (Vaswani et al. 2017): blocks that look back and at a memory of any kind.

Also the stepper that decoding uses: `start`, `step`, `reorder`, `keep`. Nothing is stored on the module between calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regard.attention import Causal
from regard.blocks import BlockState, Stack
from regard.embed import TokenEmbedding
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.hypotheses import rows_of_parents, rows_of_sources
from regard.models.memory import Memory


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
