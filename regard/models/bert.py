"""BERT (Devlin et al. 2019): an encoder that sees both sides of every token, trained by filling gaps.

A sequence is [CLS] text [SEP], or [CLS] text [SEP] text [SEP] with the embedding of its segment on every token.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import Lengths, Mask
from regard.blocks import Block, Residual, Stack, initialise_normal, make_feed_forward, make_norm
from regard.blocks.feed_forward import ACTIVATIONS
from regard.blocks.norm import reading_rows
from regard.data.batch import MaskedBatch
from regard.embed import TokenEmbedding, positions
from regard.errors import UsageError
from regard.models.attention import block_positions, make_attention, places_of
from regard.models.config import BertConfig
from regard.models.encoder_decoder import Memory
from regard.models.loss import Loss, Part, output_loss


class BertEncoder(nn.Module):
    """ids (B, S) -> a vector for every token that has seen the whole sequence."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        norm = partial(make_norm, config.norm_kind, config.width, config.epsilon)
        self.tokens = TokenEmbedding(
            nn.Embedding(vocabulary, config.width),
            positions(config.positions, config.width, config.max_length, config.random_offset, config.positions_where),
            config.dropout,
            scaled=False,
            segments=nn.Embedding(config.segments, config.width),
            norm=norm() if config.norm == "post" else None,
        )
        distances = places_of(config, causal=False)
        inside = block_positions(config.positions, config.positions_where, config.width, config.max_length)
        blocks = (_block(config, number, distances, inside) for number in range(config.layers))
        self.blocks = Stack(blocks, reversible=config.reversible)
        self.norm = norm() if config.norm == "pre" else nn.Identity()
        self.pooler = nn.Linear(config.width, config.width) if config.pooler or config.next_sentence else None

    def forward(
        self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None, distances: Tensor | None = None
    ) -> Memory:
        """`distances` (B, S, S) are for positions that the data give."""
        mask: Mask | None = None if bool((lengths == ids.size(1)).all()) else Lengths(lengths)
        with reading_rows(lengths):
            x = self.tokens(ids, segments=segments)  # (B, S, D)
            return Memory(self.norm(self.blocks(x, mask, distances=distances)), mask)

    def pooled(self, vectors: Tensor) -> Tensor:
        """The vector of [CLS], through the pooler if there is one: (B, D)."""
        first = vectors[:, 0]
        return first if self.pooler is None else self.pooler(first).tanh()

    def depths(self) -> dict[str, int]:
        """How deep each parameter lies: 0 for embeddings, then the number of its block, then what is above them."""
        return {name: self._depth(name.split(".")) for name, _ in self.named_parameters()}

    def _depth(self, parts: list[str]) -> int:
        if parts[0] == "blocks":
            return int(parts[1]) + 1
        return 0 if parts[0] == "tokens" else len(self.blocks) + 1


class GapHead(nn.Module):
    """From a token's vector to what stands in its place: a layer, a norm, and the table of embeddings with a bias."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.layer = nn.Linear(config.width, config.width)
        self.norm = make_norm("layer", config.width, config.epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.activation = ACTIVATIONS.get(config.activation, ACTIVATIONS["gelu"])

    def forward(self, vectors: Tensor) -> Tensor:
        return self.norm(self.activation(self.layer(vectors)))

    def with_bias(self, vectors: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors and table one wider, so that their product has the bias in it."""
        one = vectors.new_ones(*vectors.shape[:-1], 1)
        return torch.cat([vectors, one], dim=-1), torch.cat([table, self.bias[:, None]], dim=-1)


class Bert(nn.Module):
    """`model(batch)` is the loss of filling gaps, and of telling which text follows if the configuration asks for it."""

    def __init__(self, config: BertConfig, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config, self.vocabulary, self.smoothing = config, vocabulary, smoothing
        self.encoder = BertEncoder(config, vocabulary)
        self.head = GapHead(config, vocabulary) if config.head else None
        self.follows = nn.Linear(config.width, 2) if config.next_sentence else None
        initialise_normal(self)

    def forward(self, batch: MaskedBatch) -> Loss:
        vectors = self.encoder(batch.ids, batch.lengths, batch.segments).vectors  # (B, S, D)
        if self.head is None:
            raise UsageError("this model has no head that fills gaps, so it cannot learn to: set model.head = true")
        hidden, table = self.head.with_bias(self.head(vectors[batch.places]), self.table)
        smooth, plain = output_loss(hidden, table, batch.wanted, self.smoothing if self.training else 0.0)
        count = len(batch.wanted)
        parts = {"loss": Part(smooth, count), "nll": Part(plain, count, weight=0.0)}
        if self.follows is not None and batch.follows is not None:
            scores = self.follows(self.encoder.pooled(vectors))  # (B, 2): 0 follows, 1 does not, as in the paper's code
            parts["next"] = Part(cross_entropy(scores, 1 - batch.follows, reduction="sum"), len(scores))
        return Loss(parts)

    @property
    def table(self) -> Tensor:
        return self.encoder.tokens.table.weight

    def logits(self, batch: MaskedBatch) -> Tensor:
        """Logits of every place, chosen or not: (B, S, V)."""
        return self.gaps(self.encoder(batch.ids, batch.lengths, batch.segments).vectors)

    def gaps(self, vectors: Tensor) -> Tensor:
        """Logits of the token at each place: (..., D) -> (..., V)."""
        assert self.head is not None
        return self.head(vectors) @ self.table.mT + self.head.bias

    def depths(self) -> dict[str, int]:
        deepest = len(self.encoder.blocks) + 1
        inside = {f"encoder.{name}": depth for name, depth in self.encoder.depths().items()}
        return {name: inside.get(name, deepest) for name, _ in self.named_parameters()}


def _block(config: BertConfig, number: int, distances: dict[str, Any], places: nn.Module | None) -> Block:
    attention = make_attention(
        config.attention,
        config.width,
        config.heads,
        role="self",
        number=number,
        longest=config.max_length,
        dropout=config.attention_dropout,
        **distances,
    )
    inner = config.feed_forward
    feed_forward = make_feed_forward(config.width, inner, activation=config.activation) if inner else None

    def around() -> Residual:
        return Residual(make_norm(config.norm_kind, config.width, config.epsilon), config.dropout, order=config.norm)

    return Block(attention, None, feed_forward, around, places)
