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
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from regard.attention import Mask, MultiHead, is_changed, is_recorded, is_softened
from regard.attention.relative import Rotary, turned
from regard.blocks import Block, FeedForward
from regard.embed import LearnedPositions, NoPositions, RandomOffset, SinusoidalPositions, TokenEmbedding
from regard.models.encoder_decoder import Memory
from regard.models.fast_encoder import encoder_of
from regard.models.fast_step import (
    Function,
    added_to_scores,
    attend_heads,
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
    past: Tensor  # (L, 2, B or more, H, room, E) keys and values of the slots
    visible: Tensor | None  # (B, 1, W, room) 0 where a hypothesis sees a slot, else -inf; None: W = 1 sees all filled
    read: Tensor  # (B,) tokens that each source has read: the position of the next
    longest: int = 0  # the greatest of them
    filled: int = 0  # slots
    crowded: int = ROOM // 2  # slots from which on it may pay to give some up
    place: Tensor | None = None  # (B,) the row of each source; None: they stand in order
    order: Tensor | None = None  # (B,) the source in each row


@dataclass(frozen=True)
class Layer:
    """One block of the decoder, as functions of the N = B * W newest tokens."""

    pre: bool  # norms stand before each sub-layer, not behind; without norms, they are the identity
    norms: tuple[Function, Function, Function]
    project: Function  # (N, D) -> (N, 3 D): queries, keys and values
    join: Function
    ask: Function  # (N, D) -> (N, D): queries to the memory
    join_asked: Function
    feed_forward: Function
    heads: int
    scales: tuple[float, float]  # of products with the past, with the memory

    def __call__(self, x: Tensor, past: Past, memory: tuple[Tensor, Tensor], padding: Tensor | None) -> Tensor:
        """Vectors (N, D) -> (N, D); keys and values join the past. What a sub-layer gives is fresh, and is added to."""
        first, second, third = self.norms
        if self.pre:
            x = self._look_back(first(x), past).add_(x)
            x = self._look_at(second(x), memory, padding).add_(x)
            return self.feed_forward(third(x)).add_(x)
        x = first(self._look_back(x, past).add_(x))
        x = second(self._look_at(x, memory, padding).add_(x))
        return third(self.feed_forward(x).add_(x))

    def _look_back(self, x: Tensor, past: Past) -> Tensor:
        parts = self.project(x).view(len(past), -1, 3, self.heads, x.size(1) // self.heads)  # (B, W, 3, H, E)
        queries, keys, values = past.append(parts.permute(2, 0, 3, 1, 4))  # (B, H, W, E), twice (B, H, slots, E)
        return self.join(attend_heads(queries, keys, values, past.visible, self.scales[0]))

    def _look_at(self, x: Tensor, memory: tuple[Tensor, Tensor], padding: Tensor | None) -> Tensor:
        rows, heads, _, width = memory[0].shape
        queries = self.ask(x).view(rows, -1, heads, width).transpose(1, 2)  # (B, H, W, E)
        return self.join_asked(attend_heads(queries, *memory, padding, self.scales[1]))


@dataclass(frozen=True)
class Past:
    """The slots of one layer at one step: where the newest go, and all that are filled then."""

    newest: Tensor  # (2, B, H, W, E)
    filled: tuple[Tensor, Tensor]  # each (B, H, slots, E)
    visible: Tensor | None  # (B, H, W, slots)
    turn: Callable[[Tensor], Tensor] | None  # queries and keys to their positions, where positions turn

    def __len__(self) -> int:
        return self.newest.size(1)

    def append(self, parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and the keys and values of all slots, after `parts` (3, B, H, W, E) of the newest have joined them."""
        queries = parts[0]
        if self.turn is None:
            self.newest.copy_(parts[1:])
        else:
            queries, keys = self.turn(parts[:2]).unbind(0)
            self.newest[0], self.newest[1] = keys, parts[2]
        return (queries, *self.filled)


class FastDecoder:
    """A Transformer as a search's `Stepper` (`regard.decode.stepper`)."""

    def __init__(self, model: TransformerDecoder) -> None:
        blocks = list(model.decoder.each())
        self.model, self.layers, self.encode = model, [_layer(block) for block in blocks], encoder_of(model)
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
        heads = self.layers[0].heads
        both = self.memory(memory.vectors.reshape(rows * length, width))  # (B * S, L * 2 D)
        both = both.view(rows, length, -1, 2, heads, width // heads).permute(2, 3, 0, 4, 1, 5)  # (L, 2, B, H, S, E)
        both, padding = _padded(both.contiguous(), memory.mask)
        past = both.new_empty(*both.shape[:4], ROOM, width // heads)
        return FastState(both, padding, past, None, torch.zeros(rows, dtype=torch.long, device=both.device))

    def step(self, ids: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        rows, width = ids.shape
        state = _with_room(state, width)
        x = self._embedded(ids if state.order is None else ids[state.order], state)  # (B * W, D)
        memories = [both.unbind(0) for both in state.memory.unbind(0)]
        padding = self._for_heads(state.padding)
        for layer, past, memory in zip(self.layers, self._pasts(state, rows, width), memories, strict=True):
            x = layer(x, past, memory, padding)  # type: ignore[arg-type]
        if state.place is not None:
            x = x.view(rows, width, -1)[state.place].flatten(0, 1)
        logits = self.output(self.norm(x)).view(rows, width, -1)
        state.read, state.longest, state.filled = state.read + 1, state.longest + 1, state.filled + width
        return logits, state

    def _embedded(self, ids: Tensor, state: FastState) -> Tensor:
        x = embedding(ids, self.table)  # (B, W, D)
        x = x.mul_(self.scale) if self.scale != 1.0 else x
        if self.positions is not None:
            x = x.add_(self.positions.rows(state.longest + 1).index_select(0, state.read)[:, None].to(x.dtype))
        return x.flatten(0, 1)

    def _pasts(self, state: FastState, rows: int, width: int) -> list[Past]:
        """The past of each layer, with the newest slots, which each hypothesis sees its own of."""
        end, visible = state.filled + width, state.visible
        if visible is not None:
            visible[..., state.filled : end] = _own_slot(width, visible)
            visible = self._for_heads(visible[..., :end])
        turn = None if self.rotary is None else _turn(self.rotary, state)
        past = state.past[:, :, :rows, :, :end]
        newest = past[..., state.filled :, :]
        pairs = zip(newest.unbind(0), past.unbind(0), strict=True)
        return [Past(new, each.unbind(0), visible, turn) for new, each in pairs]  # type: ignore[arg-type]

    def _for_heads(self, bias: Tensor | None) -> Tensor | None:
        """Lay out for each head what is added to scores: (B, 1, W or 1, S) -> (B, H, W or 1, S)."""
        return None if bias is None else bias.expand(-1, self.layers[0].heads, -1, -1).contiguous()

    def reorder(self, state: FastState, parents: Tensor) -> FastState:
        """New hypotheses from old ones: `parents` (B, W') index into W. Nothing but what they see is copied."""
        rows, width = parents.shape
        if state.visible is None:  # of one hypothesis each
            visible = state.past.new_full((rows, 1, width, state.past.size(4)), -math.inf)
            visible[..., : state.filled] = 0.0
            return replace(state, visible=visible)
        parents = parents if state.order is None else parents[state.order]
        each = torch.arange(rows, device=parents.device)[:, None]
        state = replace(state, visible=state.visible[each, 0, parents][:, None])  # (B, 1, W', room)
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
            visible=None if state.visible is None else state.visible[:count],
            read=state.read[:count],
            place=place,
            order=order,
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
    more = max(needed, 2 * room)
    past = state.past.new_empty(*state.past.shape[:4], more, state.past.size(5))
    past[..., : state.filled, :] = state.past[..., : state.filled, :]
    if state.visible is None:
        return replace(state, past=past)
    visible = state.visible.new_full((*state.visible.shape[:3], more), -math.inf)
    visible[..., : state.filled] = state.visible[..., : state.filled]
    return replace(state, past=past, visible=visible)


def _without_unseen(state: FastState) -> FastState:
    """Give up the slots that no hypothesis sees: the others move to the front, as many as the fullest source has."""
    assert state.visible is not None
    filled, (layers, _, _, heads, room, width) = state.filled, state.past.shape
    seen = state.visible[:, 0, :, :filled].amax(dim=1) == 0  # (B, slots)
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
    visible = torch.full_like(state.visible, -math.inf)
    each = slots[:, None, None].expand(-1, 1, visible.size(2), -1)  # (B, 1, W, left)
    visible[..., :left] = state.visible.gather(3, each)
    return replace(state, visible=visible, filled=left, crowded=crowded)


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


def _turn(rotary: Rotary, state: FastState) -> Callable[[Tensor], Tensor]:
    cosine, sine = (table[state.read][:, None, None] for table in rotary.rows(state.longest + 1))  # (B, 1, 1, E / 2)
    return lambda x: turned(x, cosine.to(x.dtype), sine.to(x.dtype))


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


def _layer(block: Block) -> Layer:
    own, cross, around = _self_attention(block), block.cross, block.around_cross
    assert cross is not None and around is not None
    arounds = (block.around_attention, around, block.around_feed_forward)
    return Layer(
        pre=around.order == "pre",
        norms=(norm_function(arounds[0].norm), norm_function(arounds[1].norm), norm_function(arounds[2].norm)),
        project=joined([own.query, own.key_value]),
        join=joined([own.out]),
        ask=joined([cross.query]),
        join_asked=joined([cross.out]),
        feed_forward=feed_forward_function(block.feed_forward, product_of_any),
        heads=own.heads,
        scales=(scale_of(own), scale_of(cross)),
    )


def _memory_product(blocks: list[Block]) -> Function:
    """A memory's vectors (N, D) -> keys and values of every layer, (N, L * 2 D)."""
    return joined([block.cross.key_value for block in blocks if block.cross is not None])
