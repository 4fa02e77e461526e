"""One look of a recurrent decoder, computed plainly in float64 (Bahdanau et al. 2015, eq. 5 and 6; Luong et al. 2015):

weights = softmax(score(s, h_j) / temperature) · fall-off,   context = Σ_j weight_j h_j
"""

from __future__ import annotations

import numpy as np

from regard.look.walk.given import Array, Place, Soft
from regard.look.walk.softmax import masked, softmax


def terms(given: Soft) -> tuple[Array, Array]:
    """What is multiplied, component by component, and then added up: of the query side and of each key, both (S, ...)."""
    s, h, weight = given.s, given.h, given.weights
    if given.score == "additive":
        inner = np.tanh(s @ weight["W"] + h @ weight["U"])
        return np.broadcast_to(weight["v"], inner.shape), inner
    if given.score == "location":
        known = np.zeros((len(h), len(s)))
        rows = weight["W"][: len(h)]
        known[: len(rows)] = rows
        return np.broadcast_to(s, known.shape), known
    if given.score == "cosine":
        unit = h / length(h)[:, None]
        return np.broadcast_to(s / length(s), unit.shape), unit
    keys = h @ weight["W"] if given.score == "general" else h
    return np.broadcast_to(s, keys.shape), keys


def factor(given: Soft) -> float:
    """What sums are multiplied by."""
    if given.score == "cosine":
        return float(np.exp(given.weights["log β"][0]))
    return float(given.weights["scale"][0]) if given.score == "scaled-dot" else 1.0


def scores(given: Soft) -> Array:
    """Before the temperature: (S,)."""
    left, right = terms(given)
    return (left * right).sum(axis=1) * factor(given)


def length(x: Array) -> Array:
    """‖x‖ over the last axis; a vector of zeros stays zeros, as torch has it."""
    return np.maximum(np.sqrt(np.square(x).sum(axis=-1)), 1e-12)


def middle(place: Place, s: Array, keys: int) -> float:
    """p of Luong et al. 2015, section 3.2: the target's own position, or a predicted one (eq. 9)."""
    if place.kind == "local-m":
        return float(min(place.time, keys - 1))
    assert place.inner is not None and place.outer is not None
    return float(keys / (1 + np.exp(-(np.tanh(s @ place.inner) @ place.outer))))


def fall_off(given: Soft) -> Array | None:
    """By how much weights fall off around p (eq. 10): (S,)."""
    if given.place is None or given.place.kind != "local-p":
        return None
    p = middle(given.place, given.s, len(given.h))
    return np.exp(-((np.arange(len(given.h)) - p) ** 2) / (2 * (given.place.reach / 2) ** 2))


def look(given: Soft) -> tuple[Array, Array]:
    """Weights (S,) and context (K,)."""
    weights = softmax(masked(scores(given) / given.temperature, given.allowed))
    weaker = fall_off(given)
    weights = weights if weaker is None else weights * weaker
    return weights, weights @ given.h


def combined(given: Soft) -> Array:
    """Luong's attentional vector (eq. 5): tanh(W_c [context, state])."""
    assert given.w_c is not None
    out = np.concatenate([look(given)[1], given.s]) @ given.w_c
    return np.tanh(out if given.b_c is None else out + given.b_c)
