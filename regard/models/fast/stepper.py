"""Laid-out steppers: one token of each hypothesis at a time, nothing but products (`FastStepper`).

The modules of a model are written to be read and to be looked into; a step through them is some hundred small operations,
most of them not products. Here the weights are laid out once for a model (`products.py` says how), and queries, keys and
values are one product. `FastDecoder` and `FastLanguage` are what a search takes instead of the model where nobody looks
on (`LaidOut` chooses); the model's own steps are the reference, and tests hold them equal. What they keep between steps is
in `slots.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from regard.attention import MultiHead, is_changed, is_recorded, is_softened
from regard.blocks import Block
from regard.embed import LearnedPositions, NoPositions, RandomOffset, SinusoidalPositions, TokenEmbedding
from regard.models.fast.layer import Cross, Layer, Shape, Turn, Workspace
from regard.models.fast.native import Embedding, Panels, Stack, logits_of, stack_of
from regard.models.fast.native import step as native_step
from regard.models.fast.products import (
    Function,
    MakeProduct,
    Product,
    feed_forward_function,
    joined,
    norm_function,
    product_of_any,
    scale_of,
    writes_in_place,
)
from regard.models.fast.slots import FIRST, ROOM, Slots, kept, reordered, with_room, zeros
from regard.models.fast.slots import joined as joined_slots
from regard.models.fast.small import FEW, Look, SmallSteps, small_steps

VERSION = operator.attrgetter("_version")

Fast = TypeVar("Fast")  # a laid-out stepper


class FastStepper:
    """A stepper (`regard.decode.stepper`) of a stack of blocks whose sources come and go."""

    def __init__(
        self,
        blocks: Sequence[Block],
        tokens: TokenEmbedding,
        norm: nn.Module,
        output: nn.Linear,
        product: MakeProduct = product_of_any,
    ) -> None:
        self.native = stack_of(blocks, norm, tokens.table.weight) if product is product_of_any else None
        self._parts, self._product = (blocks, norm, output), product
        if self.native is not None:
            self._panels = Panels(self.native.library, output.weight, None)
        self.vocabulary, self.in_place = len(output.weight), product is product_of_any
        self.table, self.scale, self.positions = tokens.table.weight, tokens.scale, _added_positions(tokens)
        heads = self_attention(blocks[0])
        self.heads, self.groups, self.head_width, self.rotary = (
            heads.heads,
            heads.groups,
            heads.head_width,
            heads.rotary,
        )
        self.band = max(self_attention(block).band for block in blocks)
        self.embedding = Embedding(self.table, self.scale, self.positions, self.rotary, self.band)

    @cached_property
    def layers(self) -> list[Layer]:
        """The blocks in torch, laid out when they are first needed, as is all that the kernels have by themselves."""
        blocks, _, _ = self._parts
        return [_layer(number, block, self._product) for number, block in enumerate(blocks)]

    @cached_property
    def norm(self) -> Function:
        return norm_function(self._parts[1])

    @cached_property
    def output(self) -> Product:
        return self._product(self._parts[2].weight, None)

    @cached_property
    def small(self) -> SmallSteps | None:
        blocks, norm, _ = self._parts
        return None if self.band else small_steps(blocks, norm)

    def step(self, ids: Tensor, state: Slots) -> tuple[Tensor, Slots]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V), until the next step. The state is consumed."""
        rows, width = ids.shape
        state = with_room(state, width)
        if self.native is not None and self.native.is_best(rows * width):
            return self._native(self.native, ids, state)
        if rows == 1 and width <= FEW and self.small is not None:
            x = self._small(self.small, ids, state)  # (W, D)
        else:
            state.visible.narrow(2, state.filled, width).copy_(_own_slot(width, state.visible))
            work = state.work = self._workspace(state, width)
            x = self._through(state.in_rows(ids), state.read[:, None], state, work)  # (B * W, D)
            x = self.norm(state.of_sources(x.view(rows, width, -1)).flatten(0, 1))
        state.read.add_(1)
        state.longest, state.filled = state.longest + 1, state.filled + width
        return self._logits(x, state).view(rows, width, -1), state

    def _native(self, native: Stack, ids: Tensor, state: Slots) -> tuple[Tensor, Slots]:
        """As `step`, by the kernels."""
        x = native_step(native, self.embedding, ids, state)  # (B * W, D)
        state.read.add_(1)
        state.longest, state.filled = state.longest + 1, state.filled + ids.size(1)
        return logits_of(self._panels, x, state), state

    def _logits(self, x: Tensor, state: Slots) -> Tensor:
        """What the output layer gives of vectors (N, D): (N, V), of many in a place that all steps share.

        Where memory is fresh at each step, the system fills its pages with zeros first: 4% of the time of a beam.
        """
        if not self.in_place or not writes_in_place(len(x)):
            return self.output(x)
        if state.logits is None or len(state.logits) < len(x):
            state.logits = x.new_empty(len(x), self.vocabulary)
        return self.output(x, state.logits[: len(x)])

    def reorder(self, state: Slots, parents: Tensor) -> Slots:
        """New hypotheses from old ones: `parents` (B, W') index into W."""
        return reordered(state, parents)

    def keep(self, state: Slots, rows: Tensor) -> Slots:
        """Only the sources `rows` go on, in this order."""
        return kept(state, rows)

    def join(self, state: Slots, other: Slots) -> Slots:
        """The sources of both, the other's behind."""
        return joined_slots(state, other)

    def empty(self, rows: int) -> Slots:
        """The state of so many sources that have read nothing yet."""
        shape = (len(self.layers), 2, rows, self.groups, FIRST, self.head_width)
        past, read = zeros(shape, self.table), torch.zeros(rows, dtype=torch.long, device=self.table.device)
        at = torch.zeros(rows, FIRST, dtype=torch.long, device=read.device) if self.band else None
        few = ROOM // 2 if self.native is None else 3 * FIRST // 4  # kernels never read what nobody sees
        return Slots(past, past.new_full((rows, 1, FIRST), -math.inf), read, at=at, few=few, crowded=few)

    def _through(self, ids: Tensor, places: Tensor, state: Slots, work: Workspace) -> Tensor:
        """Tokens (B, N) at places (B, N or 1) through all layers, their keys and values into the next N slots: (B * N, D)."""
        x = embedding(ids, self.table)  # (B, N, D)
        x = x.mul_(self.scale) if self.scale != 1.0 else x
        farthest = state.longest + places.size(1)
        if self.positions is not None:
            x = x.add_(self.positions.rows(farthest)[places].to(x.dtype))
        work.seen.copy_(work.visible)
        if state.at is not None:
            state.at[:, state.filled : state.filled + ids.size(1)] = places
            work.narrow(state.at, places, self.band)
        turn = None
        if self.rotary is not None:
            cosine, sine = (table[places][:, :, None].to(x.dtype) for table in self.rotary.rows(farthest))
            turn = Turn.by(cosine, sine)  # each (B, N or 1, 1, E / 2)
        x = x.flatten(0, 1)
        for layer in self.layers:
            x = layer(x, work, state.filled, turn)
        return x

    def _small(self, small: SmallSteps, ids: Tensor, state: Slots) -> Tensor:
        """Tokens (1, W) of one source through all layers and the last norm, in NumPy: (W, D)."""
        place, width, end = state.longest, ids.size(1), state.filled + ids.size(1)
        x = self.table.detach().numpy()[ids.numpy()[0]]  # (W, D)
        if self.scale != 1.0:
            x *= self.scale
        if self.positions is not None:
            x += self.positions.rows(place + 1)[place].detach().to(self.table.dtype).numpy()
        turn = None
        if self.rotary is not None:
            cosine, sine = (table[place].to(self.table.dtype).numpy() for table in self.rotary.rows(place + 1))
            turn = cosine, sine
        visible = state.visible.numpy()[0]  # (W, room)
        visible[np.arange(width), np.arange(state.filled, end)] = 0.0
        padding = None if state.padding is None else state.padding.numpy()[0, 0]  # (1, S)
        look = Look(state.filled, end, visible[:, :end], turn, padding)
        memory = None if state.memory is None else state.memory.numpy()[:, :, 0, :, : state.reach]
        return small(x, look, state.past.numpy()[:, :, 0], memory)

    def _workspace(self, state: Slots, width: int, visible: Tensor | None = None) -> Workspace:
        """Where a step of this shape computes; `visible` (B, N, room) where it is not what hypotheses see."""
        rows = len(state)
        shape = Shape(rows, width, self.heads, self.groups, self.head_width)
        slots = min(shape.slots(state.filled + width), state.past.size(4))
        if visible is None and state.work is not None and state.work.fits(shape, slots):
            return state.work
        memory = None if state.memory is None else state.memory[:, :, :rows, :, : state.reach]
        seen = state.visible if visible is None else visible
        return Workspace(shape, state.past, seen, slots, memory, state.padding)


def _own_slot(width: int, like: Tensor) -> Tensor:
    """0 where each of W hypotheses meets its own of the W newest slots, else -inf: (W, W)."""
    return like.new_full((width, width), -math.inf).fill_diagonal_(0.0)


def _added_positions(tokens: TokenEmbedding) -> SinusoidalPositions | LearnedPositions | None:
    added = tokens.positions.inner if isinstance(tokens.positions, RandomOffset) else tokens.positions
    return added if isinstance(added, SinusoidalPositions | LearnedPositions) else None


def embeds_plainly(tokens: TokenEmbedding) -> bool:
    """Whether embeddings have no parts but those that are known here."""
    known = RandomOffset | SinusoidalPositions | LearnedPositions | NoPositions
    return isinstance(tokens.positions, known) and tokens.norm is None and tokens.segments is None


def self_attention(block: Block) -> MultiHead:
    assert isinstance(block.attention, MultiHead)
    return block.attention


def _layer(number: int, block: Block, product: MakeProduct) -> Layer:
    own = self_attention(block)
    return Layer(
        number,
        pre=block.around_attention.order == "pre",
        norms=(norm_function(block.around_attention.norm), norm_function(block.around_feed_forward.norm)),
        project=joined([own.query, own.key_value], product, scale_of(own)),
        join=joined([own.out], product),
        band=own.band,
        cross=_cross(block, product),
        feed_forward=feed_forward_function(block.feed_forward, product),
    )


def _cross(block: Block, product: MakeProduct) -> Cross | None:
    heads, around = block.cross, block.around_cross
    if heads is None or around is None:
        return None
    ask, join = joined([heads.query], product, scale_of(heads)), joined([heads.out], product)
    return Cross(norm_function(around.norm), ask, join)


class LaidOut(Generic[Fast]):
    """Choose the stepper of a search over a model.

    Weights are laid out when they are first needed, and again when they have changed: each tensor counts its changes.
    """

    def __init__(self, model: nn.Module, lay_out: Callable[[nn.Module], Fast | None]) -> None:
        """`lay_out` gives the laid-out stepper of a model, or None where the model has parts that only modules know."""
        self.model, self.lay_out, self.weights = model, lay_out, list(model.parameters())
        self.counting = [each for each in self.weights if not each.is_inference()]  # their changes
        self._laid_out: tuple[Fast, list[Tensor], list[int]] | None = None  # with the weights as they stood

    def stepper(self) -> nn.Module | Fast:
        """The stepper for a search that begins now, in this thread."""
        model = self.model
        if model.training or is_recorded(model) or is_changed(model) or is_softened():
            return model
        known = self._laid_out  # one assignment: several threads may ask at once
        if known is not None and self._stand() == known[2]:
            return known[0]  # what stood there is kept, so that nothing else can stand in its place
        with torch.inference_mode():
            found = self.lay_out(model)
            if found is None:
                return model
            self._laid_out = (found, [each.detach() for each in self.weights], self._stand())
        return found

    def _stand(self) -> list[int]:
        """Where weights stand, and how often each was changed."""
        return [*map(Tensor.data_ptr, self.weights), *map(VERSION, self.counting)]
