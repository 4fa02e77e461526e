"""A Transformer for translation without its modules: the encoder, and the decoder as a laid-out stepper.

A source is read once, queries, keys and values in one product; its keys and values for all layers of the decoder are one
product, too. Then one token of each hypothesis at a time (`stepper.py`). `Transformer.encode` and the model's own steps are
the reference, and are what runs where blocks have parts that only modules know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Lengths, Mask, MultiHead, Rotary
from regard.blocks import Block, FeedForward
from regard.models.encoder_decoder import Memory
from regard.models.fast.layer import worthwhile_keys
from regard.models.fast.native import Panels, Stack, read, remember, stack_of
from regard.models.fast.products import (
    Function,
    MakeProduct,
    Product,
    added_to_scores,
    attend_heads,
    feed_forward_function,
    is_exact,
    joined,
    norm_function,
    product_of_any,
    scale_of,
)
from regard.models.fast.slots import Slots
from regard.models.fast.stepper import FastStepper, embeds_plainly
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
        blocks = list(model.encoder.each())
        self.embed, self.norm = model.source, norm_function(model.encoder_norm)
        native = product is product_of_any
        self.native = stack_of(blocks, model.encoder_norm, model.source.table.weight) if native else None
        self._blocks, self._product = blocks, product

    @cached_property
    def layers(self) -> list[EncoderLayer]:
        """The blocks in torch, laid out when they are first needed."""
        return [_encoder_layer(block, self._product) for block in self._blocks]

    def __call__(self, ids: Tensor, lengths: Tensor) -> Memory:
        rows, length = ids.shape
        mask = None if bool((lengths == length).all()) else Lengths(lengths)
        if self.native is not None and self.native.is_best(rows * length):
            return Memory(read(self.native, self.embed(ids), lengths), mask)
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
    if isinstance(model, Transformer) and all(_is_plain_encoder(block) for block in model.encoder.each()):
        return FastEncoder(model, product)
    return model.encode


def _is_plain_encoder(block: Block) -> bool:
    plain = block.around_attention.residual and isinstance(block.feed_forward, FeedForward) and block.places is None
    return plain and is_exact(block.attention)


def _encoder_layer(block: Block, product: MakeProduct) -> EncoderLayer:
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


class FastDecoder(FastStepper):
    """A Transformer as a search's `Stepper` (`regard.decode.stepper`)."""

    def __init__(self, model: TransformerDecoder, product: MakeProduct = product_of_any) -> None:
        blocks = list(model.decoder.each())
        super().__init__(blocks, model.target, model.decoder_norm, model.output, product)
        self.longest, self.encode = model.longest, encoder_of(model, product)
        make = product if self.native is None else partial(Panels, self.native.library)
        self.memory = _memory_product(blocks, make)

    @classmethod
    def of(cls, model: nn.Module, product: MakeProduct = product_of_any) -> FastDecoder | None:
        """Lay out a model, its weights as `product` has them; None where its decoder has parts that are not known here."""
        if not isinstance(model, TransformerDecoder) or not embeds_plainly(model.target):
            return None
        return cls(model, product) if all(_is_plain(block) for block in model.decoder.each()) else None

    def start(self, source: tuple[Tensor, ...], prefix: Tensor) -> tuple[Tensor, Slots]:
        """Read the sources (what `encode` takes) and the prefix (B, P): logits (B, 1, V) of what follows."""
        state = self._begin(self.encode(*source))
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def _begin(self, memory: Memory) -> Slots:
        rows, length, width = memory.vectors.shape
        if self.native is not None and isinstance(self.memory, Panels):
            return self._begin_natively(self.native, self.memory, memory)
        both = self.memory(memory.vectors.reshape(rows * length, width))  # (B * S, L * 2 D)
        both = both.view(rows, length, -1, 2, self.heads, self.head_width).permute(2, 3, 0, 4, 1, 5)
        state = self.empty(rows)
        state.memory, state.padding = _padded(both.contiguous(), memory.mask)  # (L, 2, B, H, S, E)
        least = worthwhile_keys(self.head_width)
        if rows > 1 and length < least:
            state.memory, state.padding = _lengthened(state.memory, state.padding, least)
        state.reach = state.memory.size(4)
        return state

    def _begin_natively(self, native: Stack, product: Panels, memory: Memory) -> Slots:
        """As `_begin`, by the kernels: of a source nothing is computed behind its end."""
        rows, length, _ = memory.vectors.shape
        state = self.empty(rows)
        lengths = torch.full((rows,), length)
        state.reach = length
        if memory.mask is not None:
            real = memory.mask.dense(1, length, memory.vectors.device).expand(rows, -1, -1, -1)  # (B, 1, 1, S)
            nowhere = ~real.any(dim=-1, keepdim=True)
            places = torch.arange(1, length + 1) * real[:, 0, 0]  # (B, S)
            lengths = places.amax(dim=1)
            state.padding = added_to_scores(real | nowhere, memory.vectors)
        state.memory = remember(native, product, memory.vectors, lengths)  # (L, 2, B, H, S, E)
        return state


def _padded(both: Tensor, mask: Mask | None) -> tuple[Tensor, Tensor | None]:
    """The memory's keys and values (L, 2, B, H, S, E), and where it is padding. Who may look nowhere sees zeros."""
    if mask is None:
        return both, None
    real = mask.dense(1, both.size(4), both.device)  # (B, 1, 1, S)
    if not mask.always_somewhere:
        nowhere = ~real.any(dim=-1, keepdim=True)  # (B, 1, 1, 1)
        both, real = both.masked_fill(nowhere, 0.0), real | nowhere
    return both, added_to_scores(real, both)


def _lengthened(memory: Tensor, padding: Tensor | None, length: int) -> tuple[Tensor, Tensor]:
    """A memory of so many positions, the last of which are padding."""
    more = length - memory.size(4)
    padding = memory.new_zeros(memory.size(2), 1, 1, memory.size(4)) if padding is None else padding
    return pad(memory, (0, 0, 0, more)), pad(padding, (0, more), value=-math.inf)


def _is_plain(block: Block) -> bool:
    return _is_plain_encoder(block) and is_exact(block.cross)


def _memory_product(blocks: list[Block], product: MakeProduct) -> Product:
    """A memory's vectors (N, D) -> keys and values of every layer, (N, L * 2 D)."""
    return joined([block.cross.key_value for block in blocks if block.cross is not None], product)
