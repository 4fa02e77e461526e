"""The decoder of a Transformer as a stepper of its own: one token of each hypothesis at a time, nothing but products.

The modules of `transformer.py` are written to be read and to be looked into; a step through them is some hundred small
operations, most of them not products. Here the weights are laid out once for a model (`fast_step.py` says how), queries,
keys and values are one product, and so are the memory's keys and values of all layers. `FastDecoder` is what a search
takes instead of the model where nobody looks on; the model's own steps are the reference, and a test holds them equal.

Caches are never copied when hypotheses branch. Each token that was read has a slot, in which every layer keeps its key
and value; the hypotheses of a source stand side by side as queries of one attention over all slots of that source, and
`visible` says which slots each one sees. Branching reorders `visible` alone. Slots that no hypothesis sees any more are
given up from time to time: of a beam most tokens are soon shared, so that a source has few more slots than tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from regard.attention import Mask, MultiHead, is_changed, is_recorded, is_softened
from regard.attention.relative import Rotary
from regard.blocks import Block, FeedForward
from regard.embed import LearnedPositions, NoPositions, RandomOffset, SinusoidalPositions, TokenEmbedding
from regard.models.encoder_decoder import Memory
from regard.models.fast_encoder import encoder_of
from regard.models.fast_layer import GRAIN, Cross, Layer, Shape, Turn, Workspace
from regard.models.fast_step import (
    Product,
    added_to_scores,
    feed_forward_function,
    is_exact,
    joined,
    norm_function,
    product_of_any,
    scale_of,
)
from regard.models.transformer import TransformerDecoder

ROOM = 64  # slots of a source that buffers begin with
CROWDED = 1.5  # times as many slots as the last time some were given up: look again


@dataclass
class FastState:
    """Between two steps: B sources with W hypotheses each, in rows of buffers that have an order of their own.

    Each source has its own number of tokens read. A source that leaves is overwritten by the one in the last row.
    """

    memory: Tensor  # (L, 2, B, H, S, E) keys and values of the sources
    padding: Tensor | None  # (B, 1, 1, S) 0 where a source has a token, else -inf; None: everywhere
    past: Tensor  # (L, 2, B or more, H, room, E) keys and values of the slots; 0 where none was filled
    visible: Tensor  # (B, W, room) 0 where a hypothesis sees a slot, else -inf
    read: Tensor  # (B,) tokens that each source has read: the position of the next
    longest: int = 0  # the greatest of them
    filled: int = 0  # slots
    crowded: int = ROOM // 2  # slots from which on it may pay to give some up
    place: Tensor | None = None  # (B,) the row of each source; None: they stand in order
    order: Tensor | None = None  # (B,) the source in each row
    work: Workspace | None = None  # where the last step computed; None: shapes or buffers are others since


class FastDecoder:
    """A Transformer as a search's `Stepper` (`regard.decode.stepper`)."""

    def __init__(self, model: TransformerDecoder) -> None:
        blocks = list(model.decoder.each())
        self.model, self.encode = model, encoder_of(model)
        self.layers = [_layer(number, block) for number, block in enumerate(blocks)]
        self.heads = _self_attention(blocks[0]).heads
        self.norm, self.output = norm_function(model.decoder_norm), product_of_any(model.output.weight, None)
        self.memory = _memory_product(blocks)
        self.table, self.scale = model.target.table.weight, model.target.scale
        self.positions = _added_positions(model.target)
        self.rotary = _self_attention(blocks[0]).rotary

    @property
    def longest(self) -> int | None:
        return self.model.longest

    def start(self, source: tuple[Tensor, ...], prefix: Tensor) -> tuple[Tensor, FastState]:
        """Read the sources (what `encode` takes) and the prefix (B, P): logits (B, 1, V) of what follows."""
        state = self._begin(self.encode(*source))
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def _begin(self, memory: Memory) -> FastState:
        rows, length, width = memory.vectors.shape
        heads = self.heads
        both = self.memory(memory.vectors.reshape(rows * length, width))  # (B * S, L * 2 D)
        both = both.view(rows, length, -1, 2, heads, width // heads).permute(2, 3, 0, 4, 1, 5)  # (L, 2, B, H, S, E)
        both, padding = _padded(both.contiguous(), memory.mask)
        past = both.new_zeros(*both.shape[:4], ROOM, width // heads)
        visible = both.new_full((rows, 1, ROOM), -math.inf)
        return FastState(both, padding, past, visible, torch.zeros(rows, dtype=torch.long, device=both.device))

    def step(self, ids: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        rows, width = ids.shape
        state = _with_room(state, width)
        x = self._embedded(ids if state.order is None else ids[state.order], state)  # (B * W, D)
        state.visible.narrow(2, state.filled, width).copy_(_own_slot(width, state.visible))
        work = state.work = self._workspace(state, rows, width)
        work.seen.copy_(work.visible)
        turn = None if self.rotary is None else _turn(self.rotary, state)
        for layer in self.layers:
            x = layer(x, work, state.filled, turn)
        if state.place is not None:
            x = x.view(rows, width, -1)[state.place].flatten(0, 1)
        logits = self.output(self.norm(x)).view(rows, width, -1)
        state.read.add_(1)
        state.longest, state.filled = state.longest + 1, state.filled + width
        return logits, state

    def _embedded(self, ids: Tensor, state: FastState) -> Tensor:
        x = embedding(ids, self.table)  # (B, W, D)
        x = x.mul_(self.scale) if self.scale != 1.0 else x
        if self.positions is not None:
            x = x.add_(self.positions.rows(state.longest + 1).index_select(0, state.read)[:, None].to(x.dtype))
        return x.flatten(0, 1)

    def _workspace(self, state: FastState, rows: int, width: int) -> Workspace:
        slots = -(-(state.filled + width) // GRAIN) * GRAIN
        if state.work is not None and state.work.fits(rows, width, slots):
            return state.work
        shape = Shape(rows, width, self.heads, self.heads, state.past.size(5))
        return Workspace(shape, state.past, state.visible, slots, state.memory, state.padding)

    def reorder(self, state: FastState, parents: Tensor) -> FastState:
        """New hypotheses from old ones: `parents` (B, W') index into W. Nothing but what they see is copied."""
        parents = parents if state.order is None else parents[state.order]
        each = torch.arange(len(parents), device=parents.device)[:, None]
        visible = state.visible[each, parents]  # (B, W', room)
        if visible.shape == state.visible.shape:
            state.visible.copy_(visible)
        else:
            state = replace(state, visible=visible, work=None)
        return state if state.filled < state.crowded else _without_unseen(state)

    def keep(self, state: FastState, rows: Tensor) -> FastState:
        """Only the sources `rows` go on. Rows that they leave empty are filled from behind; no others are copied."""
        place, count = rows if state.place is None else state.place[rows], len(rows)
        behind = place >= count
        if bool(behind.any()):
            empty = torch.ones(count, dtype=torch.bool, device=rows.device)
            empty[place[~behind]] = False
            _move(state, place[behind], (target := empty.nonzero()[:, 0]))
            place = place.masked_scatter(behind, target)
        order = place.argsort()
        return replace(
            state,
            memory=state.memory[:, :, :count],
            padding=None if state.padding is None else state.padding[:count],
            visible=state.visible[:count],
            read=state.read[:count],
            place=place,
            order=order,
            work=None,
        )


def _move(state: FastState, source: Tensor, target: Tensor) -> None:
    """Copy rows of every buffer, of slots those that are filled."""
    past = state.past[..., : state.filled, :]
    for dimension, buffer in ((2, state.memory), (2, past), (0, state.padding), (0, state.visible), (0, state.read)):
        if buffer is not None:
            buffer.index_copy_(dimension, target, buffer.index_select(dimension, source))


def _with_room(state: FastState, width: int) -> FastState:
    """The state, with room for so many more slots."""
    room, needed = state.past.size(4), state.filled + width
    if needed <= room:
        return state
    more = max(-(-needed // ROOM) * ROOM, 2 * room)
    past = state.past.new_zeros(*state.past.shape[:4], more, state.past.size(5))
    past[..., : state.filled, :] = state.past[..., : state.filled, :]
    visible = state.visible.new_full((*state.visible.shape[:2], more), -math.inf)
    visible[..., : state.filled] = state.visible[..., : state.filled]
    return replace(state, past=past, visible=visible, work=None)


def _without_unseen(state: FastState) -> FastState:
    """Give up the slots that no hypothesis sees: the others move to the front, as many as the fullest source has."""
    filled, (layers, _, _, heads, room, width) = state.filled, state.past.shape
    seen = state.visible[..., :filled].amax(dim=1) == 0  # (B, slots)
    left = int(seen.sum(dim=1).max())
    crowded = max(ROOM // 2, int(CROWDED * left))
    if filled < crowded:
        return replace(state, crowded=crowded)
    slots = seen.byte().argsort(dim=1, descending=True, stable=True)[:, :left]  # (B, left)
    rows = len(slots)
    first = torch.arange(rows * heads, device=slots.device).view(rows, heads, 1) * room  # (B, H, 1)
    of_all_rows = state.past.view(2 * layers, -1, width)  # (2 L, B * H * room, E)
    chosen = of_all_rows.index_select(1, (first + slots[:, None]).flatten())  # (2 L, B * H * left, E)
    state.past[:, :, :rows, :, :left] = chosen.view(layers, 2, rows, heads, left, width)
    visible = state.visible.gather(2, slots[:, None].expand(-1, state.visible.size(1), -1))  # (B, W, left)
    state.visible.fill_(-math.inf)[..., :left] = visible
    return replace(state, filled=left, crowded=crowded)


def _own_slot(width: int, like: Tensor) -> Tensor:
    """0 where each of W hypotheses meets its own of the W newest slots, else -inf: (W, W)."""
    return like.new_full((width, width), -math.inf).fill_diagonal_(0.0)


def _padded(both: Tensor, mask: Mask | None) -> tuple[Tensor, Tensor | None]:
    """The memory's keys and values (L, 2, B, H, S, E), and where it is padding. Who may look nowhere sees zeros."""
    if mask is None:
        return both, None
    real = mask.dense(1, both.size(4), both.device)  # (B, 1, 1, S)
    if not mask.always_somewhere:
        nowhere = ~real.any(dim=-1, keepdim=True)  # (B, 1, 1, 1)
        both, real = both.masked_fill(nowhere, 0.0), real | nowhere
    return both, added_to_scores(real, both)


def _turn(rotary: Rotary, state: FastState) -> Turn:
    cosine, sine = (table[state.read][:, None, None] for table in rotary.rows(state.longest + 1))  # (B, 1, 1, E / 2)
    return Turn(cosine.to(state.past.dtype), sine.to(state.past.dtype))


def _added_positions(target: TokenEmbedding) -> SinusoidalPositions | LearnedPositions | None:
    added = target.positions.inner if isinstance(target.positions, RandomOffset) else target.positions
    return added if isinstance(added, SinusoidalPositions | LearnedPositions) else None


# --- Laying out a model


class LaidOut:
    """Choose the stepper of a search over a model: the laid-out one where it can be, the model where someone looks on.

    Weights are laid out when they are first needed, and again when they have changed: each tensor counts its changes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.weights = model, list(model.parameters())
        self._laid_out: tuple[FastDecoder, list[tuple[Tensor, int]]] | None = None  # with the weights as they stood

    def stepper(self) -> nn.Module | FastDecoder:
        """The stepper for a search that begins now, in this thread."""
        model = self.model
        watched = model.training or is_recorded(model) or is_changed(model) or is_softened()
        if watched or not isinstance(model, TransformerDecoder):
            return model
        known = self._laid_out  # one assignment: several threads may ask at once
        if known is None or not all(map(_is_as_it_stood, self.weights, known[1])):
            if not _is_plain(model):
                return model
            with torch.inference_mode():
                known = self._laid_out = (
                    FastDecoder(model),
                    [(each.detach(), _changes(each)) for each in self.weights],
                )
        return known[0]


def _is_as_it_stood(weight: Tensor, stood: tuple[Tensor, int]) -> bool:
    before, changes = stood
    same = weight.data_ptr() == before.data_ptr() and weight.dtype == before.dtype
    return same and _changes(weight) == changes


def _changes(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version


def _is_plain(model: TransformerDecoder) -> bool:
    """Whether the decoder has no parts but those that are known here."""
    target, known = model.target, RandomOffset | SinusoidalPositions | LearnedPositions | NoPositions
    embeds = isinstance(target.positions, known) and target.norm is None and target.segments is None
    return embeds and all(_is_plain_block(block) for block in model.decoder.each())


def _is_plain_block(block: Block) -> bool:
    plain = block.around_attention.residual and isinstance(block.feed_forward, FeedForward)
    return plain and is_exact(block.attention) and is_exact(block.cross)


def _self_attention(block: Block) -> MultiHead:
    assert isinstance(block.attention, MultiHead)
    return block.attention


def _layer(number: int, block: Block) -> Layer:
    own, cross, around = _self_attention(block), block.cross, block.around_cross
    assert cross is not None and around is not None
    return Layer(
        number,
        pre=around.order == "pre",
        norms=(norm_function(block.around_attention.norm), norm_function(block.around_feed_forward.norm)),
        project=joined([own.query, own.key_value]),
        join=joined([own.out]),
        scale=scale_of(own),
        cross=Cross(norm_function(around.norm), joined([cross.query]), joined([cross.out]), scale_of(cross)),
        feed_forward=feed_forward_function(block.feed_forward, product_of_any),
    )


def _memory_product(blocks: list[Block]) -> Product:
    """A memory's vectors (N, D) -> keys and values of every layer, (N, L * 2 D)."""
    return joined([block.cross.key_value for block in blocks if block.cross is not None])
