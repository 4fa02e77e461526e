"""Recurrent translators: sequence to sequence (Sutskever et al. 2014), Bahdanau et al. 2015, Luong et al. 2015."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention import Lengths, Look, Mask, MemoryKeys, Score, SoftAttention, make_score
from regard.attention.soft import make_place
from regard.blocks.recurrent import LayerStates, Recurrent, RecurrentEncoder, backwards
from regard.embed import TokenEmbedding, positions
from regard.models.configs.translation import BahdanauConfig, LuongConfig, Seq2SeqConfig
from regard.models.encoder_decoder import EncoderDecoder, Memory, rows_of_parents, rows_of_sources
from regard.noise import dropout


@dataclass(frozen=True)
class RecurrentMemory(Memory):
    """Annotations of the source, and the state in which the encoder ended: of each layer."""

    last: LayerStates | None = None


@dataclass(frozen=True)
class RecurrentState:
    """Between two steps of decoding. What belongs to a source stands apart: it is never tiled over its hypotheses."""

    layers: LayerStates  # each (B * W, hidden)
    source: MemoryKeys | None = None  # annotations to look at, or a context that joins every step
    fed: Tensor | None = None  # (B * W, D): what the last step gives to the next besides its state
    read: int = 0
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> RecurrentState:
        """The hypotheses `rows` of B * W."""
        layers = [tuple(part.index_select(0, rows) for part in layer) for layer in self.layers]
        return replace(self, layers=layers, fed=None if self.fed is None else self.fed.index_select(0, rows))


class RecurrentModel(EncoderDecoder):
    """The base of the recurrent families."""

    config: Seq2SeqConfig | BahdanauConfig | LuongConfig

    def embed_and_encode(self) -> None:
        """The parts that read: embeddings of both sides and the encoder."""
        config = self.config
        source, target = self.tables()
        self.source = TokenEmbedding(source, positions("none", config.width, 0), config.dropout)
        self.target = TokenEmbedding(target, positions("none", config.width, 0), config.dropout)
        self.encoder = RecurrentEncoder(
            config.cell, config.width, config.hidden, config.layers, config.dropout, bidirectional=config.bidirectional
        )

    def encode(self, ids: Tensor, lengths: Tensor) -> RecurrentMemory:
        mask: Mask | None = None if bool((lengths == ids.size(1)).all()) else Lengths(lengths)
        annotations, last = self.encoder(self.source(ids), lengths)
        return RecurrentMemory(annotations, mask, last=last)

    def in_order(self, ids: Tensor) -> Tensor:
        """Sources (B, S) in the order in which they are read."""
        return ids

    def embedded(self, ids: Tensor) -> Tensor:
        """Sources (B, S) as the encoder reads them: (B, S, D)."""
        return self.source(ids)

    def last_state(self, x: Tensor) -> Tensor:
        """The last state of the forward encoder over whole sources (B, S, D): (B, hidden)."""
        return self.encoder.last_state(x)

    def decode(self, ids: Tensor, memory: RecurrentMemory) -> Tensor:
        return self.read(self.target(ids), self.begin(memory))

    @abstractmethod
    def begin(self, memory: RecurrentMemory) -> RecurrentState:
        """The decoder's state before the first token, one hypothesis for each source."""

    @abstractmethod
    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        """Embeddings of the target so far (B, T, D) -> the vectors (B, T, D) that predict what follows each."""

    @abstractmethod
    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """`read` for one step of every hypothesis: (B, W, D) -> (B, W, D)."""

    def start(self, source: tuple[Tensor, ...], prefix: Tensor) -> tuple[Tensor, RecurrentState]:
        """Read the sources (what `encode` takes) and the prefix (B, P): logits (B, 1, V) of what follows."""
        state = self.begin(self.encode(*source))
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V)."""
        vectors, state = self.advance(self.target(ids), state)
        return self.output(vectors), replace(state, read=state.read + 1)

    def reorder(self, state: RecurrentState, parents: Tensor) -> RecurrentState:
        """New hypotheses from old ones: `parents` (B, W') index into W. The source's part stays as it is."""
        return replace(state.select(rows_of_parents(parents, state.hypotheses)), hypotheses=parents.size(1))

    def keep(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """Only the sources `rows` go on."""
        flat = rows_of_sources(rows, state.hypotheses)
        return replace(state.select(flat), source=None if state.source is None else state.source.keep(rows))


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

    def in_order(self, ids: Tensor) -> Tensor:
        return ids.flip(1) if self.config.reverse else ids

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


def _score(config: BahdanauConfig | LuongConfig) -> Score:
    """The score that says how well a state of the decoder and an annotation agree; both are as wide."""
    sizes = (config.hidden, config.hidden, config.max_length)
    return make_score(config.score, *sizes, back=config.back, back_learned=config.back_learned)


class Bahdanau(RecurrentModel):
    """The decoder's last state looks at the source; what it sees joins the next step and the readout."""

    config: BahdanauConfig

    def __init__(
        self, config: BahdanauConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        self.embed_and_encode()
        width, hidden = config.width, config.hidden
        self.attention = SoftAttention(_score(config), temperature=config.temperature)
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
            s, look, state = self._look_and_step(gates[:, t : t + 1], state)
            states.append(s)
            looks.append(look)
            state = replace(state, read=t + 1)
        s = torch.cat(states, dim=1)  # (B, T, hidden)
        whole = Look.stacked(looks)
        assert state.source is not None
        self.attention.report(torch.cat(asked, dim=1), state.source, whole)
        return self._vectors(s, y, whole.context)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        asked = _top(state, len(y))
        s, look, state = self._look_and_step(self.decoder.gates(y), state)
        assert state.source is not None
        self.attention.report(asked, state.source, look)
        return self._vectors(s, y, look.context), state

    def _look_and_step(self, gates: Tensor, state: RecurrentState) -> tuple[Tensor, Look, RecurrentState]:
        """Look with the last state, then one step of every hypothesis from the gates (B, W, gates) of its newest token."""
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
            _score(config),
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
            h, look, out, state = self._look_and_step(gates[:, t : t + 1], state)
            states.append(h)
            looks.append(look)
            vectors.append(out)
            state = replace(state, read=t + 1)
        whole = Look.stacked(looks)
        assert state.source is not None
        self.attention.report(torch.cat(states, dim=1), state.source, whole)
        return torch.cat(vectors, dim=1)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        h, look, out, state = self._look_and_step(self.decoder.gates(y), state)
        assert state.source is not None
        self.attention.report(h, state.source, look)
        return out, state

    def _look_and_step(self, gates: Tensor, state: RecurrentState) -> tuple[Tensor, Look, Tensor, RecurrentState]:
        """One step of every hypothesis from the gates (B, W, gates) of its newest token, then look with the new state."""
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
