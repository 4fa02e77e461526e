"""Multi-head attention of one query (Vaswani et al. 2017, eq. 1 and section 3.2.2), computed plainly in float64:

head_i = Σ_s softmax_s(q_i · k_s / √E) v_s,   output = [head_1 .. head_H] W_o + b_o
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.look.walk.embedding import Array, Norm
from regard.look.walk.softmax import masked, softmax


@dataclass(frozen=True, eq=False)
class Turn:
    """Rotary positions: base and scale of the angles (Su et al. 2021, eq. 34)."""

    base: float
    scale: float


@dataclass(frozen=True, eq=False)
class Heads:
    """One multi-head attention, and which query and head of it are looked at."""

    queries: tuple[str, ...]  # T labels
    keys: tuple[str, ...]  # S labels
    query: int
    asker: str  # who looks, in a sentence
    head: int
    heads: int
    groups: int  # key-value heads
    x: Array  # (T, D): what the sub-layer is given, before a norm
    memory: Array | None  # (S, D): what is looked at; None: x itself
    w_q: Array  # (D, H E)
    w_k: Array  # (D, G E)
    w_v: Array  # (D, G E)
    w_o: Array | None  # (H E, D)
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    b_o: Array | None = None
    norm: Norm | None = None
    order: str = "none"  # of norm and sub-layer: pre, post, none
    residual: bool = False
    scale: float | None = None  # what products are multiplied by; None: 1 / √E
    turn: Turn | None = None
    relative: str = ""  # positions that join the scores: alibi, t5, shaw, tree
    bias: Array | None = None  # (H, S): what they add to this query's scores, where that is known without q
    key_rows: Array | None = None  # (S, E): a vector for each key's distance, which q meets (Shaw et al. 2018)
    value_rows: Array | None = None  # (S, E): and one that is added to its value
    allowed: Array | None = None  # (H, S): where the query may look; None: everywhere
    reasons: tuple[str, ...] = ()  # why not, of each key
    blocks: int = 0  # that x came through
    encoder: int = 0  # blocks that the memory came through

    @property
    def width(self) -> int:
        """Of a head: E."""
        return self.w_q.shape[1] // self.heads

    @property
    def group(self) -> int:
        """The key-value head that this head looks at."""
        return self.head // (self.heads // self.groups)


@dataclass(frozen=True, eq=False)
class Looked:
    """What one head computes for one query."""

    q: Array  # (E,)
    k: Array  # (S, E)
    v: Array  # (S, E)
    turned_q: Array  # q and k as they meet: after rotary positions, or the same
    turned_k: Array
    products: Array  # (S, E): q_e k_se
    scaled: Array  # (S,)
    bias: Array | None  # (S,)
    scores: Array  # (S,): scaled, with bias
    weights: Array  # (S,)
    weighted: Array  # (S, E)
    out: Array  # (E,)


def entering(given: Heads) -> tuple[Array, Array]:
    """What queries are made of (T, D), and what keys and values are made of (S, D): normed first, if the norm stands there."""
    x = given.norm(given.x) if given.norm is not None and given.order == "pre" else given.x
    return x, x if given.memory is None else given.memory


def look(given: Heads, head: int) -> Looked:
    """One head of the given attention."""
    x, memory = entering(given)
    group = head // (given.heads // given.groups)
    q = _part(x[given.query], given.w_q, given.b_q, head, given.width)  # (E,)
    k = _part(memory, given.w_k, given.b_k, group, given.width)  # (S, E)
    v = _part(memory, given.w_v, given.b_v, group, given.width)
    turned_q, turned_k = q, k
    if given.turn is not None:
        turned_q = turned(q[None], given.turn, given.query)[0]
        turned_k = turned(k, given.turn)
    products = turned_q * turned_k
    scaled = products.sum(axis=1) * scale_of(given)
    bias = bias_of(given, turned_q, head)
    scores = scaled if bias is None else scaled + bias
    weights = softmax(masked(scores, None if given.allowed is None else given.allowed[head]))
    weighted = weights[:, None] * (v if given.value_rows is None else v + given.value_rows)
    return Looked(q, k, v, turned_q, turned_k, products, scaled, bias, scores, weights, weighted, weighted.sum(axis=0))


def joined(given: Heads) -> tuple[Array, Array]:
    """What all heads saw (H, E), and what W_o makes of it (D,)."""
    heads = np.stack([look(given, head).out for head in range(given.heads)])
    if given.w_o is None:
        return heads, heads.reshape(-1)
    out = heads.reshape(-1) @ given.w_o
    return heads, out if given.b_o is None else out + given.b_o


def around(given: Heads, out: Array) -> tuple[Array, Array]:
    """What leaves the sub-layer: with the residual, and normed if the norm stands there. Both (D,)."""
    added = given.x[given.query] + out if given.residual else out
    return added, given.norm(added) if given.norm is not None and given.order == "post" else added


def scale_of(given: Heads) -> float:
    return given.width**-0.5 if given.scale is None else given.scale


def bias_of(given: Heads, q: Array, head: int) -> Array | None:
    """What positions add to the scores: (S,)."""
    if given.key_rows is not None:
        return given.key_rows @ q / np.sqrt(given.width)
    return None if given.bias is None else given.bias[head]


def angles(width: int, turn: Turn, place: int) -> Array:
    """By how much each pair of a head is turned at a position: (E / 2,)."""
    return place / turn.scale * turn.base ** (-np.arange(0, width, 2) / width)


def turned(x: Array, turn: Turn, start: int = 0) -> Array:
    """x (N, E), its first row at position `start`: each pair (e, e + E/2) turned by its angle."""
    every = np.stack([angles(x.shape[1], turn, start + row) for row in range(len(x))])  # (N, E / 2)
    first, second = np.split(x, 2, axis=1)
    cosine, sine = np.cos(every), np.sin(every)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=1)


def part_of(matrix: Array, number: int, width: int) -> Array:
    """The columns, or entries, of one head."""
    return matrix[..., number * width : (number + 1) * width]


def _part(x: Array, weight: Array, bias: Array | None, number: int, width: int) -> Array:
    out = x @ part_of(weight, number, width)
    return out if bias is None else out + part_of(bias, number, width)
