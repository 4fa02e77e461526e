"""Multi-head attention (Vaswani et al. 2017, eq. 1 and section 3.2.2), of one query or of all, plainly in float64:

head_i = Σ_s softmax_s(q_i · k_s / √E) v_s,   output = [head_1 .. head_H] W_o + b_o
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from regard.look.walk.softmax import masked, softmax
from regard.look.walk.steps import Array
from regard.look.walk.sublayer import ALONE, Around, LinearNumbers

ALL = slice(None)  # in the place of one query: every query at once


@dataclass(frozen=True, eq=False)
class RotaryNumbers:
    """Rotary positions: base and scale of the angles (Su et al. 2021, eq. 34)."""

    base: float
    scale: float


@dataclass(frozen=True, eq=False)
class RelativeNumbers:
    """Relative positions of the keys, which join the scores, and with `value_rows` the values.

    Shapes are those of one query; for all of them, T stands before S.
    """

    kind: Literal["alibi", "t5", "shaw", "tree"]
    bias: Array | None = None  # (H, S): added to the scores, where that is known without q
    key_rows: Array | None = None  # (S, E): a vector for each key's distance, which q meets (Shaw et al. 2018)
    value_rows: Array | None = None  # (S, E): and one that is added to its value

    def at(self, query: int) -> RelativeNumbers:
        """Those of one query, from those of all."""
        return RelativeNumbers(
            self.kind,
            None if self.bias is None else self.bias[:, query],
            None if self.key_rows is None else self.key_rows[query],
            None if self.value_rows is None else self.value_rows[query],
        )


@dataclass(frozen=True, eq=False)
class MultiHeadLook:
    """A multi-head attention, the vectors that enter it and all its weights; seen from one query and one head, or from all."""

    queries: tuple[str, ...]  # T labels
    keys: tuple[str, ...]  # S labels
    query: int | slice  # a place, or ALL
    asker: str  # who looks, in a sentence
    head: int
    heads: int
    groups: int  # key-value heads
    x: Array  # (T, D): what the sub-layer is given, before a norm
    memory: Array | None  # (S, D): what is looked at; None: x itself
    to_query: LinearNumbers  # (D, H E)
    to_key: LinearNumbers  # (D, G E)
    to_value: LinearNumbers  # (D, G E)
    to_out: LinearNumbers | None  # (H E, D)
    around: Around = ALONE
    scale: float | None = None  # what products are multiplied by; None: 1 / √E
    rotary: RotaryNumbers | None = None
    relative: RelativeNumbers | None = None
    allowed: Array | None = None  # (H, S): where the query may look, of all queries (H, T, S); None: everywhere
    reasons: tuple[str, ...] = ()  # why not, of each key
    blocks: int = 0  # that x came through
    encoder_blocks: int = 0  # that the memory came through

    def at(self, query: int, asker: str, head: int, reasons: tuple[str, ...]) -> MultiHeadLook:
        """The look of one query with one head, from that of all."""
        allowed = None if self.allowed is None else self.allowed[:, query]
        relative = None if self.relative is None else self.relative.at(query)
        return replace(
            self, query=query, asker=asker, head=head, reasons=reasons, allowed=allowed, relative=relative
        )  # fmt: skip

    @property
    def place(self) -> int:
        """The place of the one query."""
        assert isinstance(self.query, int), "this look is of all queries"
        return self.query

    @property
    def label(self) -> str:
        """The token of the query."""
        return self.queries[self.place]

    @property
    def own(self) -> Array:
        """The vector of the query before a norm: (D,), or of all queries (T, D)."""
        return self.x[self.query]

    @property
    def width(self) -> int:
        """The width of a head, E."""
        return self.to_query.weight.shape[1] // self.heads

    @property
    def value_width(self) -> int:
        """The width of a value: that of a head, but for numbers that somebody made up."""
        return self.to_value.weight.shape[1] // self.groups

    @property
    def group(self) -> int:
        """The key-value head that this head looks at."""
        return self.group_of(self.head)

    def group_of(self, head: int) -> int:
        """The key-value head of a head: several heads share one (Ainslie et al. 2023)."""
        return head // (self.heads // self.groups)

    @property
    def value_rows(self) -> Array | None:
        """Vectors of relative positions that are added to the values: (S, E), or of all queries (T, S, E)."""
        return None if self.relative is None else self.relative.value_rows

    def allowed_keys(self, head: int) -> Array | None:
        """Which keys a head may look at: (S,), or of all queries (T, S); None for all."""
        return None if self.allowed is None else self.allowed[head]


@dataclass(frozen=True, eq=False)
class HeadResult:
    """Every number that one head computes for one query; for all queries, T stands first."""

    q: Array  # (E,)
    k: Array  # (S, E)
    v: Array  # (S, E)
    turned_q: Array  # (E,): q as it meets k, after rotary positions, or the same
    turned_k: Array  # (S, E)
    scaled: Array  # (S,)
    bias: Array | None  # (S,)
    scores: Array  # (S,): scaled, with bias
    weights: Array  # (S,)
    values: Array  # (S, E): v, with what relative positions add
    out: Array  # (E,)

    @property
    def products(self) -> Array:
        """q_e k_se: (S, E)."""
        return self.turned_q[..., None, :] * self.turned_k

    @property
    def weighted(self) -> Array:
        """weight_j v_j: (S, E)."""
        return self.weights[..., None] * self.values


def layer_inputs(look: MultiHeadLook) -> tuple[Array, Array]:
    """Vectors for the queries (T, D), and for keys and values (S, D); the first are normed if the norm stands before."""
    x = look.around.enter(look.x)
    return x, x if look.memory is None else look.memory


def attend_head(look: MultiHeadLook, head: int) -> HeadResult:
    """Attend with one head."""
    x, memory = layer_inputs(look)
    group, width = look.group_of(head), look.width
    q = look.to_query.head(head, width)(x[look.query])  # (E,)
    k = look.to_key.head(group, width)(memory)  # (S, E)
    v = look.to_value.head(group, look.value_width)(memory)  # (S, E), or of a width of their own
    turned_q, turned_k = q, k
    if look.rotary is not None:
        turned_q = rotate(np.atleast_2d(q), look.rotary, 0 if look.query == ALL else look.place).reshape(q.shape)
        turned_k = rotate(k, look.rotary)
    scaled = turned_q @ turned_k.T * (width**-0.5 if look.scale is None else look.scale)  # (S,)
    bias = score_bias(look, turned_q, head)
    scores = scaled if bias is None else scaled + bias
    weights = softmax(masked(scores, look.allowed_keys(head)))
    values = v if look.value_rows is None else v + look.value_rows
    out = np.einsum("...s,...se->...e", weights, values)
    return HeadResult(q, k, v, turned_q, turned_k, scaled, bias, scores, weights, values, out)


def join_heads(look: MultiHeadLook) -> tuple[Array, Array]:
    """Attend with all heads: their outputs (H, E), and these side by side times W_o (D,); of all queries (H, T, E), (T, D)."""
    heads = [attend_head(look, head).out for head in range(look.heads)]
    side_by_side = np.concatenate(heads, axis=-1)  # (H E,)
    return np.stack(heads), side_by_side if look.to_out is None else look.to_out(side_by_side)


def leave_layer(look: MultiHeadLook, out: Array) -> tuple[Array, Array]:
    """The output (D,) with the residual added, and the same normed if the norm stands behind."""
    return look.around.leave(look.own, out)


def score_bias(look: MultiHeadLook, q: Array, head: int) -> Array | None:
    """Numbers that positions add to the scores of a query (S,); None if this model has none."""
    if look.relative is None:
        return None
    if look.relative.key_rows is not None:
        return np.einsum("...se,...e->...s", look.relative.key_rows, q) / np.sqrt(look.width)
    return None if look.relative.bias is None else look.relative.bias[head]


def rotary_angles(width: int, rotary: RotaryNumbers, place: int) -> Array:
    """Angles by which each pair of a head is turned at a position: (E / 2,)."""
    return place / rotary.scale * rotary.base ** (-np.arange(0, width, 2) / width)


def rotate(x: Array, rotary: RotaryNumbers, start: int = 0) -> Array:
    """Turn each pair (e, e + E/2) of x (N, E) by its angle; the first row stands at position `start`."""
    angles = np.stack([rotary_angles(x.shape[1], rotary, start + row) for row in range(len(x))])  # (N, E / 2)
    first, second = np.split(x, 2, axis=1)
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=1)
