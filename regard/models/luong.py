"""Attention of Luong et al. 2015, "Effective approaches to attention-based neural machine translation":

    h_t = cell(y_(t-1), h_(t-1)),   c_t = Σ_s align(h_t, h_s) h_s,   vector_t = tanh(W_c [c_t, h_t])     eq. 5

The *new* state looks, and what it sees does not change the state: so all states are computed first, by torch's fused
kernel, and then all of them look at once. With input feeding (section 3.3) vector_t joins the input of the next step, and
the steps must wait for each other. `where` is global, local-m or local-p (section 3.2, `regard.attention.local`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attention import Look, SoftAttention, make_score
from regard.attention.local import make_place
from regard.blocks.recurrent import Recurrent
from regard.models.config import LuongConfig
from regard.models.recurrent import RecurrentMemory, RecurrentModel, RecurrentState
from regard.noise import dropout


class Luong(RecurrentModel):
    """The decoder's new state looks at the source; what it sees predicts the token."""

    config: LuongConfig

    def __init__(
        self, config: LuongConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        self.embed_and_encode()
        width, hidden = config.width, config.hidden
        self.attention = SoftAttention(
            make_score(config.score, hidden, hidden, config.max_length),
            place=make_place(config.where, hidden, config.window),
            temperature=config.temperature,
        )
        fed = width if config.input_feeding else 0
        self.decoder = Recurrent(config.cell, width, hidden, config.layers, config.dropout, fed=fed)
        self.combine = nn.Linear(2 * hidden, width)  # W_c
        self.finish(self.target.table)

    def begin(self, memory: RecurrentMemory) -> RecurrentState:
        """Each layer goes on from the encoder's last state; nothing was fed yet."""
        assert memory.last is not None
        source = self.attention.project(memory.vectors, memory.mask)
        fed = memory.vectors.new_zeros(len(memory.vectors), self.config.width) if self.config.input_feeding else None
        return RecurrentState(memory.last, source, fed)

    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        if self.config.input_feeding:
            return self._read_stepwise(y, state)
        assert state.source is not None
        h, _ = self.decoder(y, state.layers)  # (B, T, hidden)
        context = self.attention(h, state.source, torch.arange(y.size(1), device=y.device))
        return self._vectors(h, context)

    def _read_stepwise(self, y: Tensor, state: RecurrentState) -> Tensor:
        gates = self.decoder.gates(y)  # (B, T, gates)
        states, looks, vectors = [], [], []
        for t in range(y.size(1)):
            h, look, out, state = self._one(gates[:, t : t + 1], state)
            states.append(h)
            looks.append(look)
            vectors.append(out)
            state = replace(state, read=t + 1)
        whole = Look.stacked(looks)
        assert state.source is not None
        self.attention.tell(torch.cat(states, dim=1), state.source, whole)
        return torch.cat(vectors, dim=1)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        h, look, out, state = self._one(self.decoder.gates(y), state)
        assert state.source is not None
        self.attention.tell(h, state.source, look)
        return out, state

    def _one(self, gates: Tensor, state: RecurrentState) -> tuple[Tensor, Look, Tensor, RecurrentState]:
        """One step of every hypothesis, from the gates (B, W, gates) of its newest token: state, look and vector."""
        assert state.source is not None
        rows, width = gates.shape[:2]
        h, layers = self.decoder.step(gates.flatten(0, 1), state.layers, state.fed)
        h = h.view(rows, width, -1)  # (B, W, hidden)
        look = self.attention.look(h, state.source, torch.full((1,), state.read, device=h.device))
        out = self._vectors(h, look.context)  # (B, W, D)
        fed = out.flatten(0, 1) if self.config.input_feeding else None
        return h, look, out, replace(state, layers=layers, fed=fed)

    def _vectors(self, h: Tensor, context: Tensor) -> Tensor:
        out = self.combine(torch.cat([context, h], dim=-1)).tanh()
        return dropout(out, self.config.dropout) if self.training else out
