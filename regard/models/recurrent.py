"""What the recurrent families share: an encoder that leaves annotations and a last state, and a decoder's stepper.

A family says how its decoder begins (`begin`), reads a whole target (`read`), and takes one step (`advance`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

from torch import Tensor

from regard.attention import Lengths, Mask, MemoryKeys
from regard.blocks.recurrent import LayerStates, RecurrentEncoder
from regard.embed import TokenEmbedding, positions
from regard.models.config import BahdanauConfig, LuongConfig, Seq2SeqConfig
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.hypotheses import rows_of_parents, rows_of_sources
from regard.models.memory import Memory


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
