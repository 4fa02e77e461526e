"""The encoder of a Transformer without its modules, for decoding: queries, keys and values in one product.

`Transformer.encode` is the reference, and is what runs where blocks have parts that only modules know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from regard.attention import Lengths, MultiHead, Rotary
from regard.blocks import Block, FeedForward
from regard.models.encoder_decoder import Memory
from regard.models.fast_step import (
    Function,
    MakeProduct,
    added_to_scores,
    attend_heads,
    feed_forward_function,
    is_exact,
    joined,
    norm_function,
    scale_of,
)
from regard.models.transformer import Transformer, TransformerDecoder


@dataclass(frozen=True)
class EncoderLayer:
    """One block of the encoder, as functions of the N = B * S tokens."""

    pre: bool  # norms stand before each sub-layer, not behind; without norms, they are the identity
    norms: tuple[Function, Function]
    project: Function  # (N, D) -> (N, 3 D): queries, keys and values
    join: Function
    feed_forward: Function
    heads: int
    scale: float
    rotary: Rotary | None

    def __call__(self, x: Tensor, rows: int, padding: Tensor | None) -> Tensor:
        """Vectors (N, D) -> (N, D). What a sub-layer gives is fresh, and is added to."""
        first, second = self.norms
        if self.pre:
            x = self._look(first(x), rows, padding).add_(x)
            return self.feed_forward(second(x)).add_(x)
        x = first(self._look(x, rows, padding).add_(x))
        return second(self.feed_forward(x).add_(x))

    def _look(self, x: Tensor, rows: int, padding: Tensor | None) -> Tensor:
        parts = self.project(x).view(rows, -1, 3, self.heads, x.size(1) // self.heads)  # (B, S, 3, H, E)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, H, S, E)
        if self.rotary is not None:
            queries, keys = self.rotary(queries), self.rotary(keys)
        return self.join(attend_heads(queries, keys, values, padding, self.scale))


class FastEncoder:
    """Ids (B, S) and lengths (B,) -> the memory that the decoder reads, as `Transformer.encode` computes it."""

    def __init__(self, model: Transformer, product: MakeProduct) -> None:
        self.embed, self.layers = model.source, [_layer(block, product) for block in model.encoder.each()]
        self.norm = norm_function(model.encoder_norm)

    def __call__(self, ids: Tensor, lengths: Tensor) -> Memory:
        rows, length = ids.shape
        mask = None if bool((lengths == length).all()) else Lengths(lengths)
        x = self.embed(ids).flatten(0, 1)  # (B * S, D)
        padding = None
        if mask is not None:
            heads = self.layers[0].heads
            padding = added_to_scores(mask.dense(1, length, x.device), x).expand(-1, heads, -1, -1).contiguous()
        for layer in self.layers:
            x = layer(x, rows, padding)
        return Memory(self.norm(x).view(rows, length, -1), mask)


def encoder_of(model: TransformerDecoder, product: MakeProduct) -> Callable[..., Memory]:
    """The encoder of a model, laid out where its blocks are plain."""
    if isinstance(model, Transformer) and all(_is_plain(block) for block in model.encoder.each()):
        return FastEncoder(model, product)
    return model.encode


def _is_plain(block: Block) -> bool:
    return block.around_attention.residual and isinstance(block.feed_forward, FeedForward) and is_exact(block.attention)


def _layer(block: Block, product: MakeProduct) -> EncoderLayer:
    own, around = block.attention, block.around_attention
    assert isinstance(own, MultiHead)
    return EncoderLayer(
        pre=around.order == "pre",
        norms=(norm_function(around.norm), norm_function(block.around_feed_forward.norm)),
        project=joined([own.query, own.key_value], product),
        join=joined([own.out], product),
        feed_forward=feed_forward_function(block.feed_forward, product),
        heads=own.heads,
        scale=scale_of(own),
        rotary=own.rotary,
    )
