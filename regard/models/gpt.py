"""Decoder-only Transformers: GPT, GPT-2, GPT-3 and LLaMA are the same blocks with other parts.

Also a stepper of decoding: a prompt is read at once, then one token after another. Nothing is stored on the module between
calls. Where nobody looks on, a search takes `fast/language.py` instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.attention import Causal, Mask
from regard.blocks import Block, BlockState, Experts, Residual, Stack, initialise_normal, make_feed_forward, make_norm
from regard.embed import TokenEmbedding, positions
from regard.models.attention import block_positions, make_attention, places_of
from regard.models.config import GPTLineConfig
from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.language import LanguageModel


@dataclass(frozen=True)
class GPTState:
    """Between two steps of decoding: of each block its past, and how many tokens have been read."""

    blocks: list[BlockState]
    read: int = 0
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> GPTState:
        return replace(self, blocks=[BlockState(block.own.select(rows)) for block in self.blocks])


class GPT(LanguageModel):
    """`model(batch)` is the loss; `start` and `step` write."""

    config: GPTLineConfig

    def __init__(self, config: GPTLineConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, smoothing)
        table = nn.Embedding(vocabulary, config.width)
        places = positions(
            config.positions, config.width, config.max_length, config.random_offset, config.positions_where
        )
        self.tokens = TokenEmbedding(table, places, config.dropout, scaled=False)
        distances = places_of(config, causal=True)
        inside = block_positions(config.positions, config.positions_where, config.width, config.max_length)
        blocks = (decoder_block(config, number, distances, inside) for number in range(config.layers))
        self.blocks = Stack(blocks, reversible=config.reversible)
        self.norm = decoder_norm(config) if config.norm == "pre" else nn.Identity()
        self.output = nn.Linear(config.width, vocabulary, bias=False)
        if config.tied:
            self.output.weight = table.weight
        scale = 1.0 if config.kind == "gpt1" else 1 / math.sqrt(2 * config.layers)
        initialise_normal(self, residual_scale=scale)

    def read(self, ids: Tensor, mask: Mask | None = None) -> Tensor:
        """Padding stands behind, where causality hides it."""
        x = self.tokens(ids)  # (B, T, D)
        return self.norm(self.blocks(x, Causal() if mask is None else mask))

    def depths(self) -> dict[str, int]:
        """How deep each parameter lies: 0 for embeddings, then the number of its block, then what is above them."""
        return {name: _depth(name, len(self.blocks)) for name, _ in self.named_parameters()}

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, GPTState]:
        """Read the prefix (B, P) at once; `source` is not used. Gives logits (B, 1, V) of what follows."""
        x = self.tokens(prefix)  # (B, P, D)
        states = self.blocks.start(None, None, x)
        x = self.blocks.read(x, states)
        return self.output(self.norm(x[:, -1:])), GPTState(states, prefix.size(1))

    def step(self, ids: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        x = self.tokens(ids.reshape(-1, 1), start=state.read)  # (B * W, 1, D)
        x = self.blocks.step(x.view(*ids.shape, -1), state.blocks)  # (B, W, D)
        return self.output(self.norm(x)), replace(state, read=state.read + 1)

    def reorder(self, state: GPTState, parents: Tensor) -> GPTState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def regroup(self, state: GPTState, hypotheses: int) -> GPTState:
        """Sources of one hypothesis each, N of them, as N / W sources of W."""
        return replace(state, hypotheses=hypotheses)

    def keep(self, state: GPTState, rows: Tensor) -> GPTState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))


def _depth(name: str, blocks: int) -> int:
    parts = name.split(".")
    if "blocks" in parts:
        return int(parts[parts.index("blocks") + 1]) + 1
    return 0 if "tokens" in parts else blocks + 1


def decoder_norm(config: GPTLineConfig) -> nn.Module:
    return make_norm(config.norm_kind, config.width, config.epsilon)


def decoder_block(config: GPTLineConfig, number: int, distances: dict[str, Any], places: nn.Module | None) -> Block:
    """Block `number`, which sees nothing behind a token."""
    attention = make_attention(
        config.attention,
        config.width,
        config.heads,
        role="causal",
        number=number,
        longest=config.max_length,
        groups=config.groups or None,
        bias=config.bias,
        dropout=config.attention_dropout,
        **distances,
        band=config.band if number % 2 else 0,
    )

    def around() -> Residual:
        return Residual(decoder_norm(config), config.dropout, order=config.norm)

    return Block(attention, None, _feed_forward(config), around, places)


def _feed_forward(config: GPTLineConfig) -> nn.Module | None:
    """One for all tokens, experts to choose from, or none."""
    if not config.feed_forward:
        return None
    make = partial(make_feed_forward, config.width, config.feed_forward, activation=config.activation, bias=config.bias)
    return Experts(config.width, config.experts, config.experts_used, make) if config.experts else make()
