"""The kernels of `regard/native` as a laid-out model calls them: structures of pointers to its weights and a step's state.

Fields stand as in `products.h`, `blocks.h` and `steps.c`. What a structure points to is kept beside it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from ctypes import Structure, addressof, byref, c_double, c_int64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import MultiHead, Rotary
from regard.blocks import Block, FeedForward, GatedFeedForward
from regard.blocks.feed_forward import ACTIVATIONS
from regard.embed import LearnedPositions, SinusoidalPositions
from regard.models.fast.products import joined, scale_of
from regard.models.fast.slots import Slots
from regard.native.compiled import Kernels
from regard.native.logits import Digest, kernels_for, with_digest
from regard.native.threads import Share, on_threads, shares_of

LAYER_NORM, ROOT_MEAN_SQUARE = 1, 2
RELU, SWISH, GELU, GELU_TANH, GATE = range(5)
FEW_THREADS, MUCH = (
    2,
    2**26,
)  # threads of torch up to which, and multiply-adds up to which, the kernels on one are as fast
SOME = 64  # positions and slots that a call is made for in advance
FRESH = 2**18  # logits up to which each step has its own; fresh memory for more is 4% of the time of a beam


class ProductFields(Structure):
    _fields_: ClassVar = [("weight", c_void_p), ("bias", c_void_p), ("inputs", c_int64), ("outputs", c_int64)]


class NormFields(Structure):
    _fields_: ClassVar = [("weight", c_void_p), ("bias", c_void_p), ("epsilon", c_double), ("kind", c_int64)]


class BlockFields(Structure):
    _fields_: ClassVar = [
        *((name, NormFields) for name in ("own_norm", "cross_norm", "last_norm")),
        *((name, ProductFields) for name in ("project", "join", "ask", "reply", "up", "down")),
        *((name, c_int64) for name in ("norms_first", "narrow", "crosses", "activation")),
    ]


class SizesFields(Structure):
    _fields_: ClassVar = [(name, c_int64) for name in ("layers", "width", "heads", "groups", "each", "inner")]


class StackFields(Structure):
    _fields_: ClassVar = [("sizes", SizesFields), ("blocks", c_void_p), ("last", NormFields)]


class StepFields(Structure):
    _fields_: ClassVar = [
        *((name, c_int64) for name in ("sources", "width", "begin", "end", "first", "room", "rows")),
        *((name, c_int64) for name in ("reach", "memory_room", "memory_rows", "band")),
        *((name, c_void_p) for name in ("ids", "row", "read", "table")),
        ("scale", c_double),
        *((name, c_void_p) for name in ("positions", "cosine", "sine", "past", "visible", "at", "memory", "padding")),
        *((name, c_void_p) for name in ("scratch", "out")),
    ]  # fmt: skip


class SourcesFields(Structure):
    _fields_: ClassVar = [
        *((name, c_int64) for name in ("sources", "longest")),
        *((name, c_void_p) for name in ("lengths", "cosine", "sine", "vectors", "scratch")),
    ]


class Panels:
    """A weight (O, I) in panels of some outputs, and its bias."""

    def __init__(self, library: Kernels, weight: Tensor, bias: Tensor | None) -> None:
        panel, (outputs, inputs) = library.regard_panel(), weight.shape
        count = -(-outputs // panel)
        self.library, self.outputs, self.panels = library, outputs, count
        filled = pad(weight.detach(), (0, 0, 0, count * panel - outputs))
        self.weight = filled.view(count, panel, inputs).transpose(1, 2).contiguous()  # (panels, I, panel)
        self.bias = weight.new_zeros(count * panel)
        if bias is not None:
            self.bias[:outputs] = bias.detach()
        self.fields = ProductFields(self.weight.data_ptr(), self.bias.data_ptr(), inputs, outputs)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x Wᵀ + b of rows x (N, I)."""
        x = x.contiguous()
        found = x.new_empty(len(x), self.outputs) if out is None else out
        self.library.regard_multiply(byref(self.fields), x.data_ptr(), found.data_ptr(), len(x))
        return found


class Stack:
    """Blocks and the norm behind them, as the kernels read them."""

    def __init__(self, library: Kernels, blocks: Sequence[Block], norm: nn.Module) -> None:
        self.library, self.kept = library, list[Any]()
        self.numbers = sum(weight.numel() for block in blocks for weight in block.parameters())
        own = blocks[0].attention
        assert isinstance(own, MultiHead)
        self.rotary: Rotary | None = own.rotary
        fields = [self._block(block) for block in blocks]
        self.blocks = (BlockFields * len(fields))(*fields)
        inner = max(each.up.outputs for each in fields)
        sizes = SizesFields(len(fields), fields[0].project.inputs, own.heads, own.groups, own.head_width, inner)
        self.fields = StackFields(sizes, addressof(self.blocks), self._norm(norm))
        self.at = byref(self.fields)

    def turns(self, end: int, like: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Cosines and sines of positions 0 .. end - 1, where positions turn: each (end, E / 2)."""
        if self.rotary is None:
            return None, None
        cosine, sine = (each.to(like.dtype).contiguous() for each in self.rotary.rows(end))
        return cosine, sine

    def _block(self, block: Block) -> BlockFields:
        own, cross, forward = block.attention, block.cross, block.feed_forward
        assert isinstance(own, MultiHead) and isinstance(forward, FeedForward | GatedFeedForward)
        found = BlockFields(
            own_norm=self._norm(block.around_attention.norm),
            last_norm=self._norm(block.around_feed_forward.norm),
            project=self._joined([own.query, own.key_value], scale_of(own)),
            join=self._joined([own.out]),
            up=self._joined([forward.gate_up if isinstance(forward, GatedFeedForward) else forward.up]),
            down=self._joined([forward.down]),
            norms_first=block.around_attention.order == "pre",
            narrow=bool(own.band),
            crosses=cross is not None,
            activation=_activation(forward),
        )
        if cross is not None and block.around_cross is not None:
            found.cross_norm = self._norm(block.around_cross.norm)
            found.ask, found.reply = self._joined([cross.query], scale_of(cross)), self._joined([cross.out])
        return found

    def _joined(self, linears: list[nn.Linear], scale: float = 1.0) -> ProductFields:
        panels = joined(linears, lambda weight, bias: Panels(self.library, weight, bias), scale)
        assert isinstance(panels, Panels)
        self.kept.append(panels)
        return panels.fields

    def _norm(self, norm: nn.Module) -> NormFields:
        if isinstance(norm, nn.Identity):
            return NormFields()
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        weight, bias = (None if each is None else each.detach() for each in (norm.weight, getattr(norm, "bias", None)))
        self.kept += [weight, bias]
        epsilon = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
        return NormFields(
            _at(weight), _at(bias), epsilon, LAYER_NORM if isinstance(norm, nn.LayerNorm) else ROOT_MEAN_SQUARE
        )

    def is_best(self, tokens: int) -> bool:
        """Whether the kernels are as fast as torch for so many tokens, on all of its threads."""
        return torch.get_num_threads() <= FEW_THREADS or tokens * self.numbers <= MUCH


def is_known(block: Block, norm: nn.Module) -> bool:
    """Whether the kernels have all parts of a block, which is one that steps are laid out for."""
    arounds = (block.around_attention, block.around_cross, block.around_feed_forward)
    norms = [norm, *(around.norm for around in arounds if around is not None)]
    forward = block.feed_forward
    known = isinstance(forward, GatedFeedForward) or (
        isinstance(forward, FeedForward) and forward.activation in ACTIVATIONS.values()
    )
    return known and all(isinstance(each, nn.Identity | nn.LayerNorm | nn.RMSNorm) for each in norms)


def stack_of(blocks: Sequence[Block], norm: nn.Module, like: Tensor) -> Stack | None:
    """Blocks laid out for the kernels; None where there are no kernels, or not for these parts."""
    known = all(
        is_known(block, norm) and all(each.dtype == like.dtype for each in block.parameters()) for block in blocks
    )
    library = kernels_for(like) if known else None
    return None if library is None else Stack(library, blocks, norm)


def _activation(forward: FeedForward | GatedFeedForward) -> int:
    if isinstance(forward, GatedFeedForward):
        return GATE
    names = {id(function): name for name, function in ACTIVATIONS.items()}
    return {"relu": RELU, "swish": SWISH, "gelu": GELU, "gelu-tanh": GELU_TANH}[names[id(forward.activation)]]


def _at(tensor: Tensor | None) -> int | None:
    """Where the numbers of a tensor lie."""
    return None if tensor is None else tensor.data_ptr()


# --- Calls


def read(stack: Stack, vectors: Tensor, lengths: Tensor) -> Tensor:
    """The vectors (B, S, D) of sources, of which the first `lengths` (B,) are there, through all blocks: written over."""
    vectors, lengths = vectors.contiguous(), lengths.contiguous()
    cosine, sine = stack.turns(vectors.size(1), vectors)
    fields = SourcesFields(*vectors.shape[:2], *map(_at, (lengths, cosine, sine, vectors)))
    scratch = vectors.new_empty(stack.library.regard_read_scratch(stack.at, byref(fields)))
    fields.scratch = scratch.data_ptr()
    stack.library.regard_read(stack.at, byref(fields))
    return vectors


def remember(stack: Stack, product: Panels, vectors: Tensor, lengths: Tensor) -> Tensor:
    """Keys and values (L, 2, B, H, S, E) of every layer for vectors (B, S, D); 0 behind the first `lengths` (B,)."""
    vectors, sizes = vectors.contiguous(), stack.fields.sizes
    rows, length = vectors.shape[:2]
    memory = vectors.new_zeros(sizes.layers, 2, rows, sizes.heads, length, sizes.each)
    fields = SourcesFields(rows, length, *map(_at, (lengths, None, None, vectors)))
    scratch = vectors.new_empty(stack.library.regard_remember_scratch(byref(sizes), byref(fields)))
    fields.scratch = scratch.data_ptr()
    stack.library.regard_remember(byref(product.fields), byref(sizes), byref(fields), memory.data_ptr())
    return memory


class Call:
    """The call of a step for the buffers of a state, to be made again as long as they stay: half a step of one sentence goes
    into making it."""

    def __init__(self, stack: Stack, embedding: Embedding, state: Slots) -> None:
        buffers = (state.past, state.visible, state.read, state.memory, state.padding, state.at, state.place)
        assert state.past.is_contiguous() and state.visible.is_contiguous() and state.read.is_contiguous()
        self.stack, self.embedding, self.buffers = stack, embedding, buffers
        self.padding = None if state.padding is None else state.padding.contiguous()
        self.scratch: Tensor | None = None
        self.tables: tuple[Tensor | None, ...] = ()
        self.end = self.needed = 0  # positions that tables have, and slots that there is scratch for
        self.shares: list[Share] = []  # of the sources, one for each thread
        memory, table = state.memory, embedding.table
        self.fields = StepFields(
            sources=len(state), width=state.visible.size(1), room=state.past.size(4), rows=state.past.size(2),
            reach=state.reach, memory_room=0 if memory is None else memory.size(4),
            memory_rows=0 if memory is None else memory.size(2), band=embedding.band, row=_at(state.place),
            read=_at(state.read), table=_at(table), scale=embedding.scale, past=_at(state.past), visible=_at(state.visible),
            at=_at(state.at), memory=_at(memory), padding=_at(self.padding),
        )  # fmt: skip

    def fits(self, state: Slots) -> bool:
        now = (state.past, state.visible, state.read, state.memory, state.padding, state.at, state.place)
        return self.fields.reach == state.reach and all(map(operator.is_, now, self.buffers))

    def __call__(self, ids: Tensor, state: Slots) -> Tensor:
        """The newest token of each hypothesis (B, W) through all blocks and the last norm: (B * W, D)."""
        ids, fields, table = ids.contiguous(), self.fields, self.embedding.table
        fields.first = state.filled
        if state.longest >= self.end:
            self._reach(state.longest + 1)
        shares = shares_of(len(ids))
        if state.filled >= self.needed or shares != self.shares:
            self.shares = shares
            self._make_room(state.filled)
        out = table.new_empty(ids.numel(), table.size(1))
        fields.ids, fields.out = ids.data_ptr(), out.data_ptr()
        self._compute()
        return out

    def _compute(self) -> None:
        """Each share on a thread of its own, with the fields as they are now but for who computes what, and where."""
        step, at, fields = self.stack.library.regard_step, self.stack.at, self.fields
        if len(self.shares) == 1:
            fields.begin, fields.end = self.shares[0]
            step(at, byref(fields))
            return
        assert self.scratch is not None
        calls = []
        for (begin, end), place in zip(self.shares, self.scratch, strict=True):
            own = StepFields.from_buffer_copy(fields)
            own.begin, own.end, own.scratch = begin, end, place.data_ptr()
            calls.append(partial(step, at, byref(own)))
        on_threads(calls)

    def _reach(self, end: int) -> None:
        """Tables for so many positions, and a few more where they are known."""
        self.end = self.embedding.reach(end)
        self.tables = (self.embedding.rows(self.end), *self.stack.turns(self.end, self.embedding.table))
        self.fields.positions, self.fields.cosine, self.fields.sine = map(_at, self.tables)

    def _make_room(self, filled: int) -> None:
        """Scratch for lists of so many slots, and of some more, for each thread."""
        self.needed = self.fields.first = filled + SOME
        numbers = self.stack.library.regard_step_scratch(self.stack.at, byref(self.fields))
        self.scratch = self.embedding.table.new_empty(len(self.shares), numbers)
        self.fields.scratch, self.fields.first = self.scratch.data_ptr(), filled


@dataclass(frozen=True)
class Embedding:
    """How tokens become vectors: their table (V, D), a factor, what is added at a position; and how far back layers see."""

    table: Tensor
    scale: float
    positions: SinusoidalPositions | LearnedPositions | None
    rotary: Rotary | None
    band: int

    def reach(self, end: int) -> int:
        """Positions to have tables for where `end` are needed: more, as far as they are known without being computed."""
        known = [len(self.positions.table)] if self.positions is not None else []
        known += [len(self.rotary.cosine)] if self.rotary is not None else []
        return max(end, min([end + SOME, *known]))

    def rows(self, end: int) -> Tensor | None:
        """What is added at positions 0 .. end - 1: (end, D)."""
        if self.positions is None:
            return None
        return self.positions.rows(end).detach().to(self.table.dtype).contiguous()


def step(stack: Stack, embedding: Embedding, ids: Tensor, state: Slots) -> Tensor:
    """The newest token of each hypothesis (B, W) through all blocks and the last norm: (B * W, D)."""
    call = state.call
    if call is None or not call.fits(state):
        call = state.call = Call(stack, embedding, state)
    found: Tensor = call(ids, state)
    return found


def logits_of(output: Panels, x: Tensor, state: Slots) -> Tensor:
    """What the output layer gives of vectors (N, D): (N, V), of many in a place that all steps share.

    Norms of the logits come with them where they were asked for at the last step.
    """
    rows, count = len(x), output.outputs
    if rows * count <= FRESH:
        logits = x.new_empty(rows, count)
    else:
        if state.logits is None or len(state.logits) < rows:
            state.logits = x.new_empty(rows, count)
        logits = state.logits[:rows]
    digest = Digest(output.library, logits)
    digest.write(byref(output.fields), x, state.digest is not None and state.digest.asked)
    state.digest = digest
    return with_digest(logits.view(len(state), -1, count), digest)
