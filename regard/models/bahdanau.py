"""Attention of Bahdanau et al. 2015, "Neural machine translation by jointly learning to align and translate":

    e_tj = v · tanh(W s_(t-1) + U h_j),   α_t = softmax(e_t),   c_t = Σ_j α_tj h_j        eq. 5 and 6, A.1.2
    s_t = cell([y_(t-1), c_t], s_(t-1)),   s_0 = tanh(W_s h_1 of the backward direction)   A.2.2
    vector_t = maxout(U_o s_t + V_o y_(t-1) + C_o c_t)                                     A.2.2

h_j is the annotation of source position j, both directions side by side; U h_j is computed once for a sentence. The
last *state* looks, so a step waits for the one before; only what the state does not touch (y's gates, the readout) is
computed for all steps at once. The paper's readout takes s_(t-1); here it takes s_t, which has seen more. Any of the six
scores can stand in the place of the additive one.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attention import Look, SoftAttention, make_score
from regard.blocks.recurrent import Recurrent
from regard.models.config import BahdanauConfig
from regard.models.recurrent import RecurrentMemory, RecurrentModel, RecurrentState
from regard.noise import dropout


class Bahdanau(RecurrentModel):
    """The decoder's last state looks at the source; what it sees joins the next step and the readout."""

    config: BahdanauConfig

    def __init__(
        self, config: BahdanauConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        self.embed_and_encode()
        width, hidden = config.width, config.hidden
        self.attention = SoftAttention(
            make_score(config.score, hidden, hidden, config.max_length), temperature=config.temperature
        )
        self.decoder = Recurrent(config.cell, width, hidden, config.layers, config.dropout, fed=hidden)
        self.first = nn.Linear(hidden // 2 if config.bidirectional else hidden, hidden)
        self.readout = nn.Linear(hidden + width + hidden, 2 * width)
        self.finish(self.target.table)

    def begin(self, memory: RecurrentMemory) -> RecurrentState:
        """Each layer starts from what the backward direction made of the whole source; an LSTM's cell from zeros."""
        assert memory.last is not None
        layers = []
        for h, *cell in memory.last:
            back = h[:, -self.first.in_features :]  # (B, hidden / 2)
            layers.append((self.first(back).tanh(), *(torch.zeros_like(c) for c in cell)))
        return RecurrentState(layers, self.attention.project(memory.vectors, memory.mask))

    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        gates = self.decoder.gates(y)  # (B, T, gates)
        asked, states, looks = [], [], []
        for t in range(y.size(1)):
            asked.append(_top(state, len(y)))
            s, look, state = self._one(gates[:, t : t + 1], state)
            states.append(s)
            looks.append(look)
            state = replace(state, read=t + 1)
        s = torch.cat(states, dim=1)  # (B, T, hidden)
        whole = Look.stacked(looks)
        assert state.source is not None
        self.attention.tell(torch.cat(asked, dim=1), state.source, whole)
        return self._vectors(s, y, whole.context)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        asked = _top(state, len(y))
        s, look, state = self._one(self.decoder.gates(y), state)
        assert state.source is not None
        self.attention.tell(asked, state.source, look)
        return self._vectors(s, y, look.context), state

    def _one(self, gates: Tensor, state: RecurrentState) -> tuple[Tensor, Look, RecurrentState]:
        """One step of every hypothesis, from the gates (B, W, gates) of its newest token: s (B, W, hidden)."""
        assert state.source is not None
        q = _top(state, len(gates))  # (B, W, hidden)
        look = self.attention.look(q, state.source, torch.full((1,), state.read, device=q.device))
        s, layers = self.decoder.step(gates.flatten(0, 1), state.layers, look.context.flatten(0, 1))
        return s.view_as(q), look, replace(state, layers=layers)

    def _vectors(self, s: Tensor, y: Tensor, context: Tensor) -> Tensor:
        """Maxout over pairs of units (Goodfellow et al. 2013): (B, T, D)."""
        both = self.readout(torch.cat([s, y, context], dim=-1)).unflatten(-1, (-1, 2))  # (B, T, D, 2)
        out = both.amax(dim=-1)
        return dropout(out, self.config.dropout) if self.training else out


def _top(state: RecurrentState, rows: int) -> Tensor:
    """The last layer's state of every hypothesis: (B, W, hidden)."""
    return state.layers[-1][0].unflatten(0, (rows, -1))
