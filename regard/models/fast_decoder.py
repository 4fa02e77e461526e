"""The decoder of a Transformer as a laid-out stepper: a source is read once, and its keys and values of all layers are
one product; then one token of each hypothesis at a time (`fast_stepper.py`)."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Mask
from regard.blocks import Block, FeedForward
from regard.models.encoder_decoder import Memory
from regard.models.fast_encoder import encoder_of
from regard.models.fast_layer import worthwhile_keys
from regard.models.fast_step import MakeProduct, Product, added_to_scores, is_exact, joined, product_of_any
from regard.models.fast_stepper import FastStepper, embeds_plainly
from regard.models.slots import Slots
from regard.models.transformer import TransformerDecoder


class FastDecoder(FastStepper):
    """A Transformer as a search's `Stepper` (`regard.decode.stepper`)."""

    def __init__(self, model: TransformerDecoder, product: MakeProduct = product_of_any) -> None:
        blocks = list(model.decoder.each())
        super().__init__(blocks, model.target, model.decoder_norm, model.output, product)
        self.longest, self.encode, self.memory = (
            model.longest,
            encoder_of(model, product),
            _memory_product(blocks, product),
        )

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
        both = self.memory(memory.vectors.reshape(rows * length, width))  # (B * S, L * 2 D)
        both = both.view(rows, length, -1, 2, self.heads, self.head_width).permute(2, 3, 0, 4, 1, 5)
        state = self.empty(rows)
        state.memory, state.padding = _padded(both.contiguous(), memory.mask)  # (L, 2, B, H, S, E)
        least = worthwhile_keys(self.head_width)
        if rows > 1 and length < least:
            state.memory, state.padding = _lengthened(state.memory, state.padding, least)
        state.reach = state.memory.size(4)
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
    plain = block.around_attention.residual and isinstance(block.feed_forward, FeedForward)
    return plain and is_exact(block.attention) and is_exact(block.cross)


def _memory_product(blocks: list[Block], product: MakeProduct) -> Product:
    """A memory's vectors (N, D) -> keys and values of every layer, (N, L * 2 D)."""
    return joined([block.cross.key_value for block in blocks if block.cross is not None], product)
