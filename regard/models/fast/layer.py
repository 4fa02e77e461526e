"""One block of a decoder as functions of the newest token of each hypothesis, and the workspace that they compute in.

A step of few tokens is some hundred operations of a few microseconds, and a view into a tensor takes as long as one of them;
143 were made in a step of four layers. So the views are made once for a shape (`Workspace`), and a block is little but
products into them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.models.fast.products import Function, Product

GRAIN, FINE = 16, 8  # slots: attention sees a multiple of it: views last for some steps, and softmax has no odd end
MANY = 32  # tokens from which on computing what nobody sees costs more than views
WORTHWHILE = 400  # products in a matrix below which torch's `bmm` is its own loop (512 of 12 keys: 322 us; of 13: 59)


@dataclass(frozen=True)
class Shape:
    """The sizes of one step: B sources, W hypotheses each, H heads in G groups that share keys, of width E."""

    rows: int
    width: int
    heads: int
    groups: int
    head_width: int

    @property
    def tokens(self) -> int:
        return self.rows * self.width

    def slots(self, filled: int) -> int:
        """As many slots to look at as are filled, or a few more."""
        grain = FINE if self.tokens >= MANY else GRAIN
        return max(
            -(-filled // grain) * grain, worthwhile_keys(self.head_width * self.width * self.heads // self.groups)
        )


def worthwhile_keys(size: int) -> int:
    """With how many keys attention of queries that have so many numbers is left to the library of matrix products.

    Of fewer scores than fit into a vector of the processor, torch's softmax takes one after another (1,920 rows of 13
    scores, AVX-512: 428 us; of 16: 40).
    """
    vector = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
    return max(vector, -(-WORTHWHILE // size))


class Keys:
    """Keys and values of one layer as products take them."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        """Keys and values of slots or of a memory, each (B, G, S, E)."""
        self.turned, self.values = keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1)  # (B G, E, S), (B G, S, E)


class Looking:
    """The places of one kind of attention: queries that are read from `asked`, and what they see.

    Heads that share keys and values are queries side by side of one head: R = H / G of them for each hypothesis.
    """

    def __init__(self, asked: Tensor, shape: Shape) -> None:
        rows, width, groups, each = shape.rows, shape.width, shape.groups, shape.head_width
        shared = shape.heads // groups
        self.asked = asked.view(rows, width, groups, shared, each).permute(0, 2, 3, 1, 4)  # (B, G, R, W, E)
        self.flat = self.asked.reshape(rows * groups, shared * width, each)
        copied = self.flat.data_ptr() != self.asked.data_ptr()  # else a view, as of one source or one hypothesis each
        self._by_head = self.flat.view_as(self.asked) if copied else None
        self.mixed = asked.new_empty(self.flat.shape)
        self.seen = self.mixed.view(rows, -1)  # (B * W, D), in the order of tokens where W = 1
        self._by_token: tuple[Tensor, Tensor] | None = None
        if width > 1:
            self.seen = asked.new_empty(rows * width, groups * shared * each)
            by_head = self.mixed.view(rows, groups, shared, width, each).permute(0, 3, 1, 2, 4)
            self._by_token = (self.seen.view(rows, width, groups, shared, each), by_head)

    def at(self, keys: Keys, bias: Tensor | None) -> Tensor:
        """Attend to keys (B G, S, E), with what is added to scores (B G, R W or 1, S): (B * W, D)."""
        if self._by_head is not None:
            self._by_head.copy_(self.asked)
        if bias is None:
            scores = torch.bmm(self.flat, keys.turned)  # (B G, R W, S)
        else:
            scores = torch.baddbmm(bias, self.flat, keys.turned)
        torch.bmm(torch.softmax(scores, dim=-1), keys.values, out=self.mixed)
        if self._by_token is not None:
            self._by_token[0].copy_(self._by_token[1])
        return self.seen


class Workspace:
    """Where a step of one shape computes: places for what is projected, and what each layer looks at."""

    def __init__(
        self, shape: Shape, past: Tensor, visible: Tensor, slots: int, memory: Tensor | None, padding: Tensor | None
    ) -> None:
        """past (L, 2, B, G, room, E), visible (B, W, room), memory (L, 2, B, H, S, E), padding (B, 1, 1, S)."""
        rows, width, heads, groups, each = shape.rows, shape.width, shape.heads, shape.groups, shape.head_width
        self.shape, self.slots = shape, slots
        self.parts = past.new_empty(rows * width, (heads + 2 * groups) * each)  # queries, keys and values
        by_head = self.parts.view(rows, width, heads + 2 * groups, each)
        self.turning = by_head[:, :, : heads + groups]  # (B, W, H + G, E) what positions turn
        self.newest = by_head[:, :, heads:].unflatten(2, (2, groups)).permute(2, 0, 3, 1, 4)  # (2, B, G, W, E)
        self.back = Looking(by_head[:, :, :heads], shape)
        self.rooms = past[:, :, :rows].unbind(0)  # each (2, B, G, room, E)
        self.past = [Keys(*layer.unbind(0)) for layer in past[:, :, :rows, :, :slots].unbind(0)]
        self.visible = visible[:, None, None, :, :slots]  # (B, 1, 1, W, slots)
        self.seen = past.new_empty(rows, groups, heads // groups, width, slots)  # `visible` for each head
        self.bias = self.seen.view(rows * groups, -1, slots)
        self.near: Tensor | None = None  # as `bias`, for layers that see only the last tokens
        if memory is None:
            return
        self.asked = past.new_empty(rows * width, heads * each)
        self.there = Looking(self.asked, replace(shape, groups=heads))
        self.memory = [Keys(*layer.unbind(0)) for layer in memory.unbind(0)]
        self.padding = None if padding is None else padding.expand(-1, heads, -1, -1).reshape(rows * heads, 1, -1)

    def narrow(self, at: Tensor, places: Tensor, band: int) -> None:
        """Hide from banded layers the slots whose positions `at` (B, room) lie `band` or more before `places` (B, W or 1)."""
        far = at[:, None, : self.slots] <= places[..., None] - band  # (B, W or 1, slots)
        self.near = self.seen.masked_fill(far[:, None, None], -math.inf).view_as(self.bias)

    def fits(self, shape: Shape, slots: int) -> bool:
        return (self.shape, self.slots) == (shape, slots)


@dataclass(frozen=True)
class Turn:
    """Queries and keys of the newest tokens turned to their positions (Su et al. 2021), as `relative.turned` does."""

    cosine: Tensor  # (B, W or 1, 1, E) those of both halves
    sine: Tensor  # those of the first half negative

    @classmethod
    def by(cls, cosine: Tensor, sine: Tensor) -> Turn:
        """By angles whose cosines and sines are (B, W or 1, 1, E / 2)."""
        return cls(torch.cat([cosine, cosine], dim=-1), torch.cat([-sine, sine], dim=-1))

    def __call__(self, x: Tensor) -> None:
        """x (B, W, H + G, E), in place: three operations (16 x 8 x 32: 29 to 12 us)."""
        first, second = x.chunk(2, dim=-1)
        swapped = torch.cat([second, first], dim=-1)
        x.mul_(self.cosine).addcmul_(swapped, self.sine)


@dataclass(frozen=True)
class Cross:
    """Attention to the memory of a source."""

    norm: Function
    ask: Product  # (N, D) -> (N, D): queries, scaled
    join: Product

    def __call__(self, x: Tensor, work: Workspace, number: int) -> Tensor:
        self.ask(x, work.asked)
        return self.join(work.there.at(work.memory[number], work.padding))


@dataclass(frozen=True)
class Layer:
    """One block of a decoder, as functions of the N = B * W newest tokens."""

    number: int
    pre: bool  # norms stand before each sub-layer, not behind; without norms, they are the identity
    norms: tuple[Function, Function]  # of attention and of feed-forward
    project: Product  # (N, D) -> (N, D + 2 G E): queries, scaled, keys and values
    join: Product
    band: int  # how many positions back a token sees, itself included; 0: all
    cross: Cross | None
    feed_forward: Function

    def __call__(self, x: Tensor, work: Workspace, first_slot: int, turn: Turn | None) -> Tensor:
        """Vectors (N, D) -> (N, D); their keys and values go to W slots. What a sub-layer gives is fresh, and is added to."""
        first, last = self.norms
        if self.pre:
            x = self._look_back(first(x), work, first_slot, turn).add_(x)
            if self.cross is not None:
                x = self.cross(self.cross.norm(x), work, self.number).add_(x)
            return self.feed_forward(last(x)).add_(x)
        x = first(self._look_back(x, work, first_slot, turn).add_(x))
        if self.cross is not None:
            x = self.cross.norm(self.cross(x, work, self.number).add_(x))
        return last(self.feed_forward(x).add_(x))

    def _look_back(self, x: Tensor, work: Workspace, first_slot: int, turn: Turn | None) -> Tensor:
        self.project(x, work.parts)
        if turn is not None:
            turn(work.turning)
        work.rooms[self.number].narrow(3, first_slot, work.shape.width).copy_(work.newest)
        bias = work.near if self.band and work.near is not None else work.bias
        return self.join(work.back.at(work.past[self.number], bias))
