"""Worked examples of lectures on attention, by name, with exactly their numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np

from regard.errors import UsageError
from regard.look.walk.embedding import sinusoid
from regard.look.walk.examples.given import GivenNumbers, ScoreGrid
from regard.look.walk.examples.matrices import walk_of, work_out
from regard.look.walk.softmax import masked, softmax
from regard.look.walk.steps import Array, Numbers, Step, Walk, WorkedLine, column

# Three tokens of four dimensions, keys of width three, without scaling: outputs [1.937, 6.683, 1.595] and so on.
X = ((1, 0, 1, 0), (0, 2, 0, 2), (1, 1, 1, 1))
W_K = ((0, 0, 1), (1, 1, 0), (0, 1, 0), (1, 1, 0))
W_Q = ((1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 1, 1))
W_V = ((0, 2, 0), (0, 3, 0), (1, 0, 3), (1, 1, 0))
HELLO = ((98, 27, 10, 12), (27, 89, 31, 67), (10, 31, 91, 54), (12, 67, 54, 92))
AHEAD = ((0.7, 0.1, 0.1, 0.1), (0.1, 0.6, 0.2, 0.1), (0.1, 0.3, 0.6, 0.1), (0.1, 0.3, 0.3, 0.3))
SENTENCE = ("man", "eats", "small", "dinosaur")
WORDS = ((1, 0, 2, 0), (0, 1, 0, 2), (2, 0, 1, 0), (0, 2, 0, 1))  # vectors of the words of the sentence


def _matrix(rows: tuple[tuple[float, ...], ...]) -> Array:
    return np.array(rows, dtype=np.float64)


def three_tokens(query: int | str | None = None, *, scale: float | None = 1.0) -> Walk:
    """Three tokens, keys of width three: unscaled, or with None divided by √3."""
    labels = ("input 1", "input 2", "input 3")
    given = GivenNumbers(_matrix(X), _matrix(W_Q), _matrix(W_K), _matrix(W_V), scale=scale, labels=labels)
    return walk_of(given, query, "Three tokens, four dimensions, keys of width three")


def hello_walk(query: int | str | None = None) -> Walk:
    """A grid of scores, divided by 8 (the root of a width of 64), and its softmax."""
    labels = ("Hi", "how", "are", "you")
    return walk_of(ScoreGrid(_matrix(HELLO), labels, labels, scale=0.125), query, "The scores of “Hi how are you”")


# --- The look-ahead mask


def look_ahead(query: int | str | None = None) -> Walk:
    """The mask of a decoder, and two ways to get it wrong."""
    labels = ("<start>", "I", "am", "fine")
    scores, allowed = _matrix(AHEAD), np.tri(len(AHEAD), dtype=bool)
    found = walk_of(ScoreGrid(scores, labels, labels, allowed, causal=True), query, "The look-ahead mask")
    return replace(found, steps=(*found.steps, _times_zero(scores, allowed, labels), _not_itself(scores, labels)))


def _times_zero(scores: Array, allowed: Array, labels: tuple[str, ...]) -> Step:
    """Show why weights must not be multiplied by the mask behind the softmax."""
    cut = softmax(scores) * allowed
    arrays = (
        Numbers("softmax, then times 0", cut, labels, labels, shading="weight"),
        column("sum of the row", cut.sum(axis=1), labels, shading="plain", beside=True),
    )
    text = (
        "Some slides multiply the weights by a mask of 1 and 0 instead. Then rows no longer sum to one, and what a word sees "
        "of the past shrinks with how much it would have liked to see of the future: the hidden words have taken their share "
        "before they were hidden, so that the future still leaks into the present. -∞ before the softmax leaves no trace."
    )
    numbers = (*(float(each) for each in cut[1, :2]), float(cut[1].sum()))
    line = WorkedLine("{} + {} = {}", numbers, ("sum of the row", 1, 0))
    return Step("Wrong: times 0 behind the softmax", "softmax(scores) · mask", text, arrays, (line,))


def _not_itself(scores: Array, labels: tuple[str, ...]) -> Step:
    """Show why a mask must not hide a word from itself."""
    hidden = masked(scores, np.tri(len(scores), k=-1, dtype=bool))
    text = (
        "Some slides hide j ≥ i, the word itself included. Then the first word may look nowhere: all its scores are -∞, and "
        "its softmax is 0 / 0 (here shown as zeros). A word may see itself: it was read, and what must be hidden is only the "
        "word that is still to be predicted, which stands one place later."
    )
    arrays = (
        Numbers("j ≥ i hidden", hidden, labels, labels),
        Numbers("weights without itself", softmax(hidden), labels, labels, shading="weight"),
    )
    return Step("Wrong: a word that may not see itself", "mask where j ≥ i", text, arrays)


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
        _all_orders(places),
        Step(
            "How far a word moves",
            "max |z of a word in one order - in another|",
            "The farthest that any number of any word moves over all orders of the four words: without positions nothing "
            "but rounding.",
            (column("farthest", list(apart.values()), tuple(apart), shading="plain"),),
        ),
    )
    return Walk("The orders of “man eats small dinosaur”", "Attention alone does not know what comes first.", steps)


def _all_orders(places: Array) -> Step:
    """The vector of the last word of the sentence in each order, without positions and with them."""
    orders, word = list(permutations(range(len(SENTENCE)))), len(SENTENCE) - 1
    named = tuple(" ".join(SENTENCE[each] for each in order) for order in orders)
    without, told = [], []
    for order in orders:
        x = _matrix(WORDS)[list(order)]
        without.append(attended(x)[order.index(word)])
        told.append(attended(x + places)[order.index(word)])
    text = (
        f"Every order, and what “{SENTENCE[word]}” becomes in it. Without positions it is always the same, whoever eats whom; "
        "with them each order has its own."
    )
    arrays = (
        Numbers(f"z of “{SENTENCE[word]}” without PE", np.stack(without), named),
        Numbers(f"z of “{SENTENCE[word]}” with PE", np.stack(told), named),
    )
    return Step(f"All {len(orders)} orders", "z = softmax(x xᵀ / √4) x,  x or x + PE", text, arrays)


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
