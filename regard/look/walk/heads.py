"""Multi-head attention of one query (Vaswani et al. 2017, eq. 1 and section 3.2.2), computed plainly in float64:

head_i = Σ_s softmax_s(q_i · k_s / √E) v_s,   output = [head_1 .. head_H] W_o + b_o
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.look.walk.given import Array, Heads, Turn
from regard.look.walk.softmax import masked, softmax


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
