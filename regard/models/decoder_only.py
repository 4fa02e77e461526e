"""Translation by one causal stack: source, separator and target are one sequence (Wang et al. 2021, "Language models are good
translators"), as language models do it; no encoder, no attention to a memory.

    source … </s> <s> target …      loss on what stands behind <s>

A token of the target sees the source and the target before it in one softmax. The source itself is read from left to right,
or with `prefix` to both sides (Raffel et al. 2020, "T5", figure 4: a prefix language model).

In training each source stands directly before its target, whatever its length, and padding stands behind both. In decoding,
sources end at the same column and padding stands before them, so that the next token of every hypothesis is one column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Causal, Dense, Mask, Role
from regard.attention.cache import StepCache
from regard.blocks import Block, BlockState, FeedForward, Residual, Stack, make_norm
from regard.embed import LearnedPositions, NoPositions, SinusoidalPositions, TokenEmbedding, positions
from regard.models.attention import make_attention, relative_positions, rotary_positions
from regard.models.configs.attention import ExactConfig
from regard.models.configs.translation import DecoderOnlyConfig
from regard.models.encoder_decoder import EncoderDecoder, rows_of_parents, rows_of_sources
from regard.noise import dropout


@dataclass(frozen=True)
class Sources:
    """What stands before the targets: there is no encoder, so these are ids."""

    ids: Tensor  # (B, S)
    lengths: Tensor  # (B,)


@dataclass(frozen=True)
class DecoderOnlyState:
    """Between two steps of decoding: of each block its past, and how many tokens of each sequence have been read."""

    blocks: list[BlockState]
    read: Tensor  # (B,): of each source, with its hypothesis so far
    hypotheses: int = 1  # of each source: W


class DecoderOnly(EncoderDecoder):
    """`model(batch)` is the loss; `start` and `step` write."""

    config: DecoderOnlyConfig
    looks: Role = "causal"

    def __init__(
        self, config: DecoderOnlyConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        source_table, target_table = self.tables()
        hidden = config.token_dropout
        self.source = TokenEmbedding(source_table, NoPositions(), 0.0, token_rate=hidden)
        self.target = TokenEmbedding(target_table, NoPositions(), 0.0, token_rate=hidden)
        self.places = positions(config.positions, config.width, config.max_length)
        self.decoder = Stack(_blocks(config))
        self.decoder_norm = make_norm("layer", config.width) if config.norm == "pre" else nn.Identity()
        self.finish(target_table)

    def encode(self, ids: Tensor, lengths: Tensor) -> Sources:
        """Nothing is computed of a source before its target is there."""
        return Sources(ids, lengths)

    def decode(self, ids: Tensor, memory: Sources) -> Tensor:
        """Vectors that predict the token after each of `ids` (B, T), behind their sources."""
        lengths, wide, more = memory.lengths, memory.ids.size(1), ids.size(1)
        columns = torch.arange(wide + more, device=ids.device)
        order = torch.where(columns < lengths[:, None], columns, columns - lengths[:, None] + wide)  # (B, N)
        both = torch.cat([self.source(memory.ids), self.target(ids)], dim=1)  # (B, S + T, D)
        x = both.take_along_dim(order.clamp(max=wide + more - 1)[..., None], 1)  # (B, N, D)
        x = self._dropped(self.places(x))
        x = self.decoder_norm(self.decoder(x, self._mask(lengths, len(columns))))
        behind = lengths[:, None] + torch.arange(more, device=ids.device)  # (B, T)
        return x.take_along_dim(behind[..., None], 1)

    def start(self, source: tuple[Tensor, ...], prefix: Tensor) -> tuple[Tensor, DecoderOnlyState]:
        """Read the sources, ids (B, S) and lengths (B,), and the prefix (B, P): logits (B, 1, V) of what follows."""
        ids, lengths = source
        padding = ids.size(1) - lengths  # (B,): columns before each source
        columns = torch.arange(ids.size(1), device=ids.device) - padding[:, None]  # (B, S)
        ids = ids.take_along_dim(columns.clamp(min=0), 1)
        x = torch.cat([self.source(ids), self.target(prefix)], dim=1)  # (B, S + P, D)
        places = torch.arange(x.size(1), device=ids.device) - padding[:, None]
        x = self._placed(x, places.clamp(min=0))
        states = self.decoder.start(None, None, x)
        for state in states:
            assert isinstance(state.own, StepCache)
            state.own.padding = padding if bool(padding.any()) else None
        both_sides = Causal() if not self.config.prefix else _seeing(torch.full_like(lengths, ids.size(1)), x.size(1))
        x = self.decoder.read(x, states, both_sides)
        return self.output(self.decoder_norm(x[:, -1:])), DecoderOnlyState(states, lengths + prefix.size(1))

    def step(self, ids: Tensor, state: DecoderOnlyState) -> tuple[Tensor, DecoderOnlyState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        x = self._placed(self.target(ids), state.read[:, None].expand_as(ids))  # (B, W, D)
        x = self.decoder.step(x, state.blocks)
        return self.output(self.decoder_norm(x)), replace(state, read=state.read + 1)

    def reorder(self, state: DecoderOnlyState, parents: Tensor) -> DecoderOnlyState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        rows = rows_of_parents(parents, state.hypotheses)
        return DecoderOnlyState(_selected(state.blocks, rows), state.read, parents.size(1))

    def keep(self, state: DecoderOnlyState, rows: Tensor) -> DecoderOnlyState:
        """Only the sources `rows` go on."""
        chosen = _selected(state.blocks, rows_of_sources(rows, state.hypotheses))
        return replace(state, blocks=chosen, read=state.read[rows])

    def _mask(self, lengths: Tensor, columns: int) -> Mask:
        return _seeing(lengths, columns) if self.config.prefix else Causal()

    def _placed(self, x: Tensor, places: Tensor) -> Tensor:
        """x (B, N, D) with the positions that are added at `places` (B, N), if there are any."""
        if not isinstance(self.places, SinusoidalPositions | LearnedPositions):
            return x
        return x + self.places.rows(int(places.max()) + 1)[places].to(x.dtype)

    def _dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout) if self.training else x


def _seeing(lengths: Tensor, columns: int) -> Mask:
    """Every token sees all of its source, the first `lengths` (B,) columns, and what stands before itself."""
    places = torch.arange(columns, device=lengths.device)
    source = (places < lengths[:, None])[:, None]  # (B, 1, N)
    return Dense(((places <= places[:, None]) | source)[:, None])  # (B, 1, N, N)


def _selected(blocks: list[BlockState], rows: Tensor) -> list[BlockState]:
    return [BlockState(block.own.select(rows)) for block in blocks]


def _blocks(config: DecoderOnlyConfig) -> Iterator[Block]:
    """Blocks of self-attention and feed-forward; what tells them distances is one table for all of them."""
    sizes = (config.width, config.heads)
    rotary = rotary_positions(config.positions, *sizes, 10_000.0, config.max_length)
    relative = relative_positions(config.positions, *sizes, causal=True, reach=config.reach)
    parts: dict[str, Any] = {"rotary": rotary, "relative": relative, "dropout": config.attention_dropout}

    def around() -> Residual:
        return Residual(make_norm("layer", config.width), config.dropout, order=config.norm)

    for number in range(config.layers):
        attention = make_attention(ExactConfig(), *sizes, role="causal", number=number, **parts)
        inner, rate = config.feed_forward, config.activation_dropout
        feed_forward = FeedForward(config.width, inner, activation=config.activation, rate=rate) if inner else None
        yield Block(attention, None, feed_forward, around)
