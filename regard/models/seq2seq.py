"""Sequence to sequence without attention: the source must fit into the state in which the encoder ends.

Sutskever et al. 2014: that state starts the decoder, and the source is read from its end. Cho et al. 2014: it also joins
every step of the decoder (`context = "every"`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attention import MemoryKeys
from regard.blocks.recurrent import Recurrent, backwards
from regard.models.config import Seq2SeqConfig
from regard.models.recurrent import RecurrentMemory, RecurrentModel, RecurrentState
from regard.noise import dropout


class Seq2Seq(RecurrentModel):
    """The decoder sees the source only through its first state, or also through the same context at every step."""

    config: Seq2SeqConfig

    def __init__(
        self, config: Seq2SeqConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        self.embed_and_encode()
        every = config.hidden if config.context == "every" else 0
        self.decoder = Recurrent(config.cell, config.width + every, config.hidden, config.layers, config.dropout)
        self.readout = nn.Linear(config.hidden, config.width)
        self.finish(self.target.table)

    def encode(self, ids: Tensor, lengths: Tensor) -> RecurrentMemory:
        return super().encode(backwards(ids.T, lengths).T if self.config.reverse else ids, lengths)

    def begin(self, memory: RecurrentMemory) -> RecurrentState:
        assert memory.last is not None
        if self.config.context == "first":
            return RecurrentState(memory.last)
        context = memory.last[-1][0][:, None]  # (B, 1, hidden)
        return RecurrentState(memory.last, MemoryKeys(context, context, None))

    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        out, _ = self.decoder(self._with_context(y, state), state.layers)  # (B, T, hidden)
        return self._vectors(out)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        rows = self._with_context(y, state).flatten(0, 1)  # (B * W, D)
        out, layers = self.decoder.step(self.decoder.gates(rows), state.layers)
        return self._vectors(out.view(*y.shape[:2], -1)), replace(state, layers=layers)

    def _with_context(self, y: Tensor, state: RecurrentState) -> Tensor:
        """Cho's context beside every embedding (B, T or W, D)."""
        if state.source is None:
            return y
        return torch.cat([y, state.source.values.expand(-1, y.size(1), -1)], dim=-1)

    def _vectors(self, out: Tensor) -> Tensor:
        out = self.readout(out).tanh()  # (B, T, D)
        return dropout(out, self.config.dropout) if self.training else out
