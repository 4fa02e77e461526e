"""Image Transformer (Parmar et al. 2018): attention over the pixels before each one, as far back as a memory reaches.

A pixel attends to the `memory` tokens before it, itself included (section 3.2.1, local attention in one dimension; here each
query has a memory of its own length, where the paper shares one among the queries of a block). What tells where a pixel is are
vectors of its row and of its column, added to its own (section 3.1). Blocks are those of GPT-2.

Also a stepper of decoding: keys and values of what was written are kept.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Causal
from regard.blocks import Stack, initialise_normal
from regard.models.config import GPT2Config
from regard.models.configs.pixels import BEFORE, ImageTransformerConfig
from regard.models.encoder_decoder import rows_of_parents, rows_of_sources
from regard.models.gpt import GPTState, decoder_block, decoder_norm
from regard.models.language import LanguageModel
from regard.noise import dropout


class ImageTransformer(LanguageModel):
    """`model(batch)` is the loss; `start` and `step` write."""

    config: ImageTransformerConfig

    def __init__(self, config: ImageTransformerConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__(config, vocabulary, smoothing)
        blocks = GPT2Config(
            layers=config.layers,
            width=config.width,
            heads=config.heads,
            feed_forward=config.feed_forward,
            max_length=BEFORE + config.rows * config.columns,
            dropout=config.dropout,
            band=config.memory,
        )
        self.table = nn.Embedding(vocabulary, config.width)
        self.row_table = nn.Parameter(torch.empty(config.rows, config.width))
        self.column_table = nn.Parameter(torch.empty(config.columns, config.width))
        odd = range(1, 2 * config.layers, 2)  # blocks of odd numbers are banded
        self.blocks = Stack(decoder_block(blocks, number, {}, None) for number in odd)
        self.norm = decoder_norm(blocks)
        self.output = nn.Linear(config.width, vocabulary, bias=False)
        initialise_normal(self, residual_scale=(2 * config.layers) ** -0.5)
        for weight in (self.row_table, self.column_table):
            nn.init.normal_(weight, std=0.02)

    def embedded(self, ids: Tensor, start: int = 0) -> Tensor:
        """Tokens (B, T), of which the first has number `start`, with their places: (B, T, D).

        A token tells the place of the pixel that it is followed by.
        """
        first = start + 1 - BEFORE
        numbers = torch.arange(max(0, first), first + ids.size(1), device=ids.device)  # of the pixels that follow
        numbers = numbers.clamp(max=self.config.rows * self.config.columns - 1)
        columns = self.config.columns
        places = self.row_table[numbers // columns] + self.column_table[numbers % columns]
        x = self.table(ids) + pad(places, (0, 0, ids.size(1) - len(numbers), 0))  # begin has none
        return dropout(x, self.config.dropout) if self.training else x

    def read(self, ids: Tensor) -> Tensor:
        return self.norm(self.blocks(self.embedded(ids), Causal()))

    def start(self, source: object, prefix: Tensor) -> tuple[Tensor, GPTState]:
        """Read the prefix (B, P) at once; `source` is not used. Gives logits (B, 1, V) of what follows."""
        x = self.embedded(prefix)  # (B, P, D)
        states = self.blocks.start(None, None, x)
        x = self.blocks.read(x, states)
        return self.output(self.norm(x[:, -1:])), GPTState(states, prefix.size(1))

    def step(self, ids: Tensor, state: GPTState) -> tuple[Tensor, GPTState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        x = self.embedded(ids.reshape(-1, 1), start=state.read)  # (B * W, 1, D)
        x = self.blocks.step(x.view(*ids.shape, -1), state.blocks)  # (B, W, D)
        return self.output(self.norm(x)), replace(state, read=state.read + 1)

    def reorder(self, state: GPTState, parents: Tensor) -> GPTState:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        chosen = state.select(rows_of_parents(parents, state.hypotheses))
        return replace(chosen, hypotheses=parents.size(1))

    def keep(self, state: GPTState, rows: Tensor) -> GPTState:
        """Only the sources `rows` go on."""
        return state.select(rows_of_sources(rows, state.hypotheses))
