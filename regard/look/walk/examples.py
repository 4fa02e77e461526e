"""Worked examples of lectures on attention, by name, with exactly their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from regard.errors import UsageError, nearest
from regard.look.walk.embedding import sinusoid
from regard.look.walk.given import GivenNumbers, ScoreGrid
from regard.look.walk.matrices import grid_walk, matrix_walk, query_walk, work_out
from regard.look.walk.steps import Array, Numbers, Step, Walk, column

# Three tokens of four dimensions, keys of width three, without scaling: outputs [1.937, 6.683, 1.595] and so on.
X = ((1, 0, 1, 0), (0, 2, 0, 2), (1, 1, 1, 1))
W_K = ((0, 0, 1), (1, 1, 0), (0, 1, 0), (1, 1, 0))
W_Q = ((1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 1, 1))
W_V = ((0, 2, 0), (0, 3, 0), (1, 0, 3), (1, 1, 0))
HELLO = ((98, 27, 10, 12), (27, 89, 31, 67), (10, 31, 91, 54), (12, 67, 54, 92))
AHEAD = ((0.7, 0.1, 0.1, 0.1), (0.1, 0.6, 0.2, 0.1), (0.1, 0.3, 0.6, 0.1), (0.1, 0.3, 0.3, 0.3))
SENTENCE = ("man", "eats", "small", "dinosaur")
WORDS = ((1, 0, 2, 0), (0, 1, 0, 2), (2, 0, 1, 0), (0, 2, 0, 1))  # vectors of the words of the sentence


@dataclass(frozen=True)
class Example:
    """One example: what it shows, and its walk, of one query or (None) of all at once."""

    about: str
    walk: Callable[[int | str | None], Walk]


def example_walk(name: str, query: int | str | None = None) -> Walk:
    """The walk through the example of that name; with `query`, one query term by term."""
    if name not in EXAMPLES:
        raise UsageError(f"no example {name}", nearest(name, tuple(EXAMPLES)))
    return EXAMPLES[name].walk(query)


def walk_of(given: GivenNumbers | ScoreGrid, query: int | str | None, title: str = "") -> Walk:
    """The walk through given numbers: of all queries as matrices, or of one term by term."""
    if isinstance(given, ScoreGrid):
        if query is not None:
            raise UsageError("scores alone have no query to go through term by term", "leave out the query")
        return grid_walk(given, title)
    return matrix_walk(given, title) if query is None else query_walk(given, query, title)


def _matrix(rows: tuple[tuple[float, ...], ...]) -> Array:
    return np.array(rows, dtype=np.float64)


def _three_tokens(scale: float | None) -> Callable[[int | str | None], Walk]:
    labels = ("input 1", "input 2", "input 3")

    def walk(query: int | str | None) -> Walk:
        given = GivenNumbers(_matrix(X), _matrix(W_Q), _matrix(W_K), _matrix(W_V), scale=scale, labels=labels)
        return walk_of(given, query, "Three tokens, four dimensions, keys of width three")

    return walk


def _look_ahead(query: int | str | None) -> Walk:
    labels = ("<start>", "I", "am", "fine")
    allowed = np.tri(len(AHEAD), dtype=bool)
    return walk_of(ScoreGrid(_matrix(AHEAD), labels, labels, allowed, causal=True), query, "The look-ahead mask")


def _hello(query: int | str | None) -> Walk:
    labels = ("Hi", "how", "are", "you")
    return walk_of(ScoreGrid(_matrix(HELLO), labels, labels, scale=0.125), query, "The scores of “Hi how are you”")


# --- The order of words


def order_walk(query: int | str | None = None) -> Walk:
    """All orders of one sentence, without positions and with them."""
    if query is not None:
        raise UsageError("the orders of a sentence are shown for all its words", "leave out the query")
    x, places = _matrix(WORDS), sinusoid(len(SENTENCE), len(WORDS[0]))
    turned = tuple(reversed(range(len(SENTENCE))))
    named = tuple(SENTENCE[place] for place in turned)
    apart = {
        told: farthest(positions) for told, positions in (("without PE", np.zeros_like(places)), ("with PE", places))
    }
    steps = (
        Step(
            "Four words as vectors", "x", "Made up, small and whole; a model learns them.", (Numbers("x", x, SENTENCE),)
        ),
        Step(
            "In this order",
            "z = softmax(x xᵀ / √4) x",
            "Self-attention without learned matrices: each word becomes an average of all.",
            (Numbers("z", attended(x), SENTENCE),),
        ),
        Step(
            "In another order",
            "z of the words backwards",
            "Dinosaur small eats man: the rows have changed places, and their numbers have not. To attention a sentence is "
            "a bag of words.",
            (Numbers("z backwards", attended(x[list(turned)]), named),),
        ),
        Step(
            "With positions",
            "x_p + PE(p)",
            "A row of sines and cosines for each place is added to the word that stands there (Vaswani et al. 2017, section "
            "3.5). The same word now has another vector in another place.",
            (
                Numbers("PE", places, tuple(f"place {place}" for place in range(len(places)))),
                Numbers("z with PE", attended(x + places), SENTENCE),
                Numbers("z backwards with PE", attended(x[list(turned)] + places), named),
            ),
        ),
        Step(
            "All 24 orders",
            "max |z of a word in one order - in another|",
            "The farthest that any number of any word moves over all orders of the four words: without positions nothing "
            "but rounding.",
            (column("farthest", list(apart.values()), tuple(apart), shading="plain"),),
        ),
    )
    return Walk("The orders of “man eats small dinosaur”", "Attention alone does not know what comes first.", steps)


def attended(x: Array) -> Array:
    """Self-attention of x (T, D) whose queries, keys and values are x itself."""
    same = np.eye(x.shape[1])
    return work_out(GivenNumbers(x, same, same, same)).z


def farthest(positions: Array) -> float:
    """How far any number of a word's output moves over all orders of the sentence."""
    found = []
    for order in permutations(range(len(SENTENCE))):
        z = attended(_matrix(WORDS)[list(order)] + positions)
        found.append(z[np.argsort(order)])  # by word again
    return float(np.ptp(np.stack(found), axis=0).max())


EXAMPLES = {
    "three-tokens": Example("keys of width three, scores unscaled: from x to every output", _three_tokens(1.0)),
    "three-tokens-scaled": Example("the same, scores divided by √3", _three_tokens(None)),
    "look-ahead": Example("the mask of a decoder on “<start> I am fine”", _look_ahead),
    "hi-how-are-you": Example("a grid of scores, divided by 8, and its softmax", _hello),
    "orders": Example("“man eats small dinosaur” in all orders, with and without positions", order_walk),
}
