"""The base of every language model: one table of embeddings, the output layer, the loss.

A family adds `read`, which sees whole sequences in training, and the four methods of a stepper.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.blocks import Recurrent, balance_terms
from regard.blocks.norm import reading_rows
from regard.blocks.recurrent import LayerStates
from regard.data.batch import PreferenceBatch, RolloutBatch, TextBatch
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.models.config import GPTLineConfig, LSTMConfig, PixelConfig, WaveNetConfig
from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.loss import Loss, Part, output_loss
from regard.noise import dropout


class LanguageModel(nn.Module):
    """`model(batch)` is the loss; `read` gives the vectors that predict the token after each."""

    output: nn.Linear

    def __init__(
        self, config: GPTLineConfig | LSTMConfig | WaveNetConfig | PixelConfig, vocabulary: int, smoothing: float
    ) -> None:
        super().__init__()
        self.config, self.vocabulary, self.smoothing = config, vocabulary, smoothing

    @abstractmethod
    def read(self, ids: Tensor) -> Tensor:
        """ids (B, T) -> vectors (B, T, D), of which each knows no token behind its own."""

    @property
    def longest(self) -> int | None:
        """Most tokens of a sequence that it can read; None: any number."""
        return self.config.longest

    def forward(self, batch: TextBatch) -> Loss:
        with balance_terms() as balance:
            hidden = self.hidden(batch)  # (B, T, D)
        kept, wanted = self.counted(hidden, batch)
        smooth, plain = output_loss(kept, self.output.weight, wanted, self.smoothing if self.training else 0.0)
        count = batch.tokens
        parts = {"loss": Part(smooth, count), "nll": Part(plain, count, weight=0.0)}
        if balance and self.training and isinstance(self.config, GPTLineConfig):
            # Added to the loss of the batch, so its weight is the batch's: a mean over micro-batches.
            parts["loss"] = Part(smooth + self.config.balance * count * sum(balance) / len(balance), count)
        return Loss(parts)

    def hidden(self, batch: TextBatch | PreferenceBatch | RolloutBatch) -> Tensor:
        """The vectors that predict each token of the batch but the first: (B, T, D)."""
        with reading_rows(batch.lengths):
            return self.read(batch.ids[:, :-1])

    def logits(self, batch: TextBatch) -> Tensor:
        return self.output(self.hidden(batch))  # (B, T, V)

    @staticmethod
    def counted(hidden: Tensor, batch: TextBatch) -> tuple[Tensor, Tensor]:
        """The vectors (N, D) and the tokens they should predict (N,), without padding and without mere context."""
        wanted = batch.ids[:, 1:]
        if batch.tokens == wanted.numel():
            return hidden.flatten(0, 1), wanted.flatten()
        if batch.tokens == wanted[:, batch.skip :].numel():
            return hidden[:, batch.skip :].flatten(0, 1), wanted[:, batch.skip :].flatten()
        places = torch.arange(hidden.size(1), device=hidden.device)
        real = (places >= batch.skip) & (places < batch.lengths[:, None])  # (B, T)
        if batch.learned is not None:
            real = real & batch.learned
        return hidden[real], wanted[real]


@dataclass(frozen=True)
class LSTMState:
    """Between two steps of decoding."""

    layers: LayerStates  # each (B * W, hidden)
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> LSTMState:
        return replace(self, layers=[tuple(part.index_select(0, rows) for part in layer) for layer in self.layers])


class LSTM(LanguageModel):
    """Embeddings, recurrent layers, and a projection to the width of the output table."""

    config: LSTMConfig

    def __init__(self, config: LSTMConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, smoothing)
        table = embedding_table(vocabulary, config.width)
        self.tokens = TokenEmbedding(table, positions("none", config.width, 0), config.dropout)
        self.layers = Recurrent(config.cell, config.width, config.hidden, config.layers, config.dropout)
        same = config.hidden == config.width
        self.project = nn.Identity() if same else nn.Linear(config.hidden, config.width)
        self.output = nn.Linear(config.width, vocabulary, bias=False)
        if config.tied:
            self.output.weight = table.weight

    def read(self, ids: Tensor) -> Tensor:
        out, _ = self.layers(self.tokens(ids), self.layers.zeros(len(ids)))  # (B, T, hidden)
        return self._vectors(out)

    def in_order(self, ids: Tensor) -> Tensor:
        """Texts (B, T) in the order in which they are read."""
        return ids

    def embedded(self, ids: Tensor) -> Tensor:
        """Texts (B, T) as the layers read them: (B, T, D)."""
        return self.tokens(ids)

    def last_state(self, x: Tensor) -> Tensor:
        """The last state of the last layer over texts (B, T, D): (B, hidden)."""
        return self.layers(x, self.layers.zeros(len(x)))[1][-1][0]

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, LSTMState]:
        """Read the prefix (B, P) at once; `source` is not used. Gives logits (B, 1, V) of what follows."""
        out, layers = self.layers(self.tokens(prefix), self.layers.zeros(len(prefix)))
        return self.output(self._vectors(out[:, -1:])), LSTMState(layers)

    def step(self, ids: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V)."""
        rows = self.tokens(ids).flatten(0, 1)  # (B * W, D)
        out, layers = self.layers.step(self.layers.gates(rows), state.layers)
        return self.output(self._vectors(out.view(*ids.shape, -1))), replace(state, layers=layers)

    def reorder(self, state: LSTMState, parents: Tensor) -> LSTMState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def keep(self, state: LSTMState, rows: Tensor) -> LSTMState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))

    def _vectors(self, out: Tensor) -> Tensor:
        out = self.project(out)  # (B, T, D)
        return dropout(out, self.config.dropout) if self.training else out
