"""A recurrent language model: all that was read must fit into a state (Mikolov et al. 2010; Zaremba et al. 2014)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from regard.blocks import Recurrent
from regard.blocks.recurrent import LayerStates
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.models.config import LSTMConfig
from regard.models.hypotheses import rows_of_parents, rows_of_sources
from regard.models.language import LanguageModel
from regard.noise import dropout


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
