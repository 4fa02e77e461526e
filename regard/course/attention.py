"""Exercises of chapters 6 to 10: self-attention by hand, masks, heads, positions, the block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regard.course.exercise import Answer, Exercise, Mistake, Point, compare, expect, rounded, short

# The worked example of chapter 6, as `regard walk --example three-tokens` has it, and the sentence of chapter 9.
X = ((1, 0, 1, 0), (0, 2, 0, 2), (1, 1, 1, 1))
W_Q = ((1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 1, 1))
W_K = ((0, 0, 1), (1, 1, 0), (0, 1, 0), (1, 1, 0))
W_V = ((0, 2, 0), (0, 3, 0), (1, 0, 3), (1, 1, 0))
SENTENCE = ("man", "eats", "small", "dinosaur")
HIDDEN = -np.inf
ITSELF = "a word may see itself: hide only j > i, else the first row has nothing to look at"
DOWN = "the softmax goes over the keys, along each row of Q Kᵀ (axis=1), not down its columns"


def softmax_rows(scores: np.ndarray) -> np.ndarray:
    """The softmax of each row; a row of minus infinities becomes NaN, as by the plain formula."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares: np.ndarray = raised / raised.sum(axis=-1, keepdims=True)
    return shares


@dataclass(frozen=True, eq=False)
class Attended:
    """Every matrix of self-attention."""

    products: np.ndarray  # Q Kᵀ
    weights: np.ndarray
    v: np.ndarray
    z: np.ndarray


def self_attention(x: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray, scale: float = 1.0) -> Attended:
    """softmax(Q Kᵀ · scale) V."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    weights = softmax_rows(q @ k.T * scale)
    return Attended(q @ k.T, weights, v, weights @ v)


# --- 6: by hand


def _given() -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    dice = np.random.default_rng(6)
    yield "of the three tokens of the chapter", tuple(np.array(each, dtype=np.float64) for each in (X, W_Q, W_K, W_V))
    for tokens, width, inner, out in ((2, 3, 5, 7), (5, 4, 2, 3)):
        sizes = ((tokens, width), (width, inner), (width, inner), (width, out))
        yield f"of {tokens} random tokens", tuple(dice.normal(size=size) for size in sizes)


def _check_attend(answer: Answer) -> Iterator[Point]:
    for what, (x, w_q, w_k, w_v) in _given():
        plain = self_attention(x, w_q, w_k, w_v)
        scaled = self_attention(x, w_q, w_k, w_v, w_q.shape[1] ** -0.5)
        down = softmax_rows(plain.products.T).T
        shifted = np.exp(plain.products - plain.products.max(axis=1, keepdims=True))
        turned = softmax_rows(plain.products.T)
        mistakes = (
            Mistake(plain.weights, "these are the weights; multiply them by V"),
            Mistake(scaled.z, "you divided the scores by √E; this example does not, and the exercise neither"),
            Mistake(plain.products @ plain.v, "the softmax is missing"),
            *(Mistake(each @ plain.v, DOWN) for each in (down, shifted / shifted.sum(axis=0))),
            Mistake(shifted / shifted.sum() @ plain.v, "each row is divided by its own sum, not by that of all scores"),
            Mistake(turned @ plain.v, "Q Kᵀ, not K Qᵀ: each row belongs to a query"),
        )
        found = answer.call("attend", x, w_q, w_k, w_v)
        yield compare(
            f"attend {what}", found, plain.z, "softmax(Q Kᵀ) V with Q = x W_q, K = x W_k, V = x W_v", mistakes
        )


def _check_first(answer: Answer) -> Iterator[Point]:
    found = answer.value("FIRST")
    x, w_q, w_k, w_v = (np.array(each, dtype=np.float64) for each in (X, W_Q, W_K, W_V))
    wanted = self_attention(x, w_q, w_k, w_v).z[0]
    hint = "the scores of the first token are 2, 4, 4; its weights are 0.0634, 0.4683, 0.4683"
    yield rounded("FIRST, the first output", found, wanted, 3, hint)


BY_HAND = Exercise(
    """1. Write attend(x, W_q, W_k, W_v): self-attention of all tokens, without dividing the scores by
   anything,

    Q = x W_q,  K = x W_k,  V = x W_v,  softmax(Q K^T) V

x has one row for each token. Return one row for each token. Plain Python or NumPy; no library that has
attention ready.

2. With a pencil: the output of the first token of the chapter's example, three numbers with three
   digits behind the point.

Check it with: regard course check 6""",
    """
import numpy as np


def attend(x, W_q, W_k, W_v):
    return None


FIRST = None  # such as [1.000, 2.000, 3.000]
""",
    (_check_attend, _check_first),
)

# --- 7: masks


def causal_weights(scores: np.ndarray) -> np.ndarray:
    """Softmax over what each query may see, row by row in a loop."""
    found = np.zeros_like(scores)
    for place, row in enumerate(scores):
        raised = np.exp(row[: place + 1] - row[: place + 1].max())
        found[place, : place + 1] = raised / raised.sum()
    return found


def _check_causal(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(7)
    ahead = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]])
    cases = {"of “<start> I am fine”": ahead, "of 6 random tokens": dice.normal(scale=3, size=(6, 6))}
    for what, scores in cases.items():
        seen = np.tri(len(scores))
        strict = np.where(np.tri(len(scores), k=-1) > 0, scores, HIDDEN)
        late = softmax_rows(scores) * seen
        mistakes = (
            Mistake(late, "× 0 behind the softmax: rows no longer add up to 1. Put -inf before it"),
            Mistake(softmax_rows(scores * seen), "a score of 0 is not hidden: e^0 = 1. Use -inf"),
            *(Mistake(each, ITSELF) for each in (softmax_rows(strict), np.nan_to_num(softmax_rows(strict)))),
            Mistake(softmax_rows(np.where(seen.T > 0, scores, HIDDEN)), "you have hidden the past, not the future"),
            Mistake(softmax_rows(scores), "nothing is hidden yet"),
        )
        found = answer.call("causal", scores)
        hint = "row i may see columns 0 to i; the others get -inf, then the softmax"
        yield compare(f"causal {what}", found, causal_weights(scores), hint, mistakes)


def _check_seen(answer: Answer) -> Iterator[Point]:
    found = answer.value("PAIRS")
    hint = "the first token sees 1, the second 2, ... the tenth 10"
    yield compare("PAIRS", found, 55, hint, (Mistake(100, "without a mask it is 10 · 10"), Mistake(45, hint)))


MASKS = Exercise(
    """1. Write causal(scores): the weights of a decoder. scores is a square NumPy array, row i for the token
   that looks, column j for the token that is looked at. A token may see itself and what came before it.
   Return an array of the same shape.

2. Ten tokens with this mask: how many pairs (i, j) are there in which i may look at j? PAIRS.

Check it with: regard course check 7""",
    """
import numpy as np


def causal(scores):
    return None


PAIRS = None  # a whole number
""",
    (_check_causal, _check_seen),
)

# --- 8: heads


def many_heads(x: np.ndarray, matrices: Sequence[np.ndarray], heads: int, wide: int | None = None) -> np.ndarray:
    """Multi-head self-attention, head after head; scores are divided by the root of `wide`, by default that of a head."""
    w_q, w_k, w_v, w_o = matrices
    size = w_q.shape[1] // heads
    parts = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        parts.append(self_attention(x, w_q[:, own], w_k[:, own], w_v[:, own], (wide or size) ** -0.5).z)
    found: np.ndarray = np.concatenate(parts, axis=1) @ w_o
    return found


def _check_heads(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(8)
    for tokens, width, heads in ((3, 4, 2), (5, 6, 3), (2, 4, 1)):
        x, matrices = dice.normal(size=(tokens, width)), [dice.normal(size=(width, width)) for _ in range(4)]
        wanted = many_heads(x, matrices, heads)
        order = np.arange(width).reshape(-1, heads).T.ravel()  # every heads-th column together
        mixed = many_heads(x, [*(each[:, order] for each in matrices[:3]), matrices[3]], heads)
        mistakes = [
            Mistake(many_heads(x, [*matrices[:3], np.eye(width)], heads), "multiply by W_o at the end"),
            Mistake(many_heads(x, matrices, 1), "that is one head; cut Q, K and V into heads first"),
            Mistake(
                many_heads(x, matrices, heads, wide=width),
                "divide by the root of the width of a head, not of the model",
            ),
            Mistake(
                mixed, "a head has columns that stand side by side: the first width / heads of them, then the next"
            ),
        ]
        found = answer.call("heads", x, *matrices, heads)
        hint = "for each head its columns of Q, K, V; softmax(q kᵀ / √E) v; side by side; times W_o"
        yield compare(f"{heads} heads of {tokens} tokens of width {width}", found, wanted, hint, mistakes)


HEADS = Exercise(
    """Write heads(x, W_q, W_k, W_v, W_o, count): self-attention with several heads.

Q = x W_q, K = x W_k, V = x W_v. Head 0 has the first (width / count) columns of Q, K and V (not of x),
head 1 the next, and so on. In each head softmax(q k^T / sqrt(E)) v, where E = width / count. Put the results of the
heads side by side, in order, and multiply by W_o.

Check it with: regard course check 8""",
    """
import numpy as np


def heads(x, W_q, W_k, W_v, W_o, count):
    return None
""",
    (_check_heads,),
)

# --- 9: positions


def sine_table(places: int, width: int) -> np.ndarray:
    """Sines in even columns, cosines of the same angles in odd ones, one number at a time."""
    found = np.empty((places, width))
    for place in range(places):
        for pair in range(width // 2):
            angle = place / 10000 ** (2 * pair / width)
            found[place, 2 * pair : 2 * pair + 2] = math.sin(angle), math.cos(angle)
    return found


def _check_order(answer: Answer) -> Iterator[Point]:
    found = answer.value("SECOND")
    words = found.split() if isinstance(found, str) else found
    what, sentence = "SECOND", " ".join(SENTENCE)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        yield Point(False, f"{what}: {short(found)} is no sentence", f'such as "{sentence}"')
    elif sorted(words) != sorted(SENTENCE):
        told = f"{short(' '.join(words))} has other words than “{sentence}”, which a model sees without positions too"
        yield Point(False, f"{what}: {told}", "the same four words, each once")
    else:
        yield expect(
            what, tuple(words) != SENTENCE, f"“{sentence}” is the same sentence", "put the words in another order"
        )


def _check_table(answer: Answer) -> Iterator[Point]:
    for places, width in ((4, 4), (7, 6)):
        wanted = sine_table(places, width)
        halves = np.concatenate([wanted[:, ::2], wanted[:, 1::2]], axis=1)
        each = np.arange(places)[:, None] / 10000.0 ** (np.arange(width) / width)
        own = np.where(np.arange(width) % 2 == 0, np.sin(each), np.cos(each))
        half = np.arange(places)[:, None] / 10000.0 ** (np.arange(width) // 2 / width)
        slow = np.where(np.arange(width) % 2 == 0, np.sin(half), np.cos(half))
        swapped = wanted.reshape(places, -1, 2)[:, :, ::-1].reshape(places, width)
        mistakes = (
            Mistake(halves, "sines and cosines take turns: columns 0, 2, 4 are sines, 1, 3, 5 cosines"),
            Mistake(
                own, "a sine and the cosine behind it have the same angle: p / 10000^(2i/D) for columns 2i and 2i+1"
            ),
            Mistake(swapped, "the even columns are sines, the odd ones cosines"),
            Mistake(np.repeat(wanted[:, ::2], 2, axis=1), "the odd columns are cosines"),
            Mistake(np.repeat(wanted[:, 1::2], 2, axis=1), "the even columns are sines"),
            Mistake(slow, "the exponent is 2i / D, the number of the even column, not i / D"),
        )
        found = answer.call("sinusoid", places, width)
        hint = "PE[p, 2i] = sin(p / 10000^(2i/D)), PE[p, 2i+1] = cos(p / 10000^(2i/D)), p from 0"
        yield compare(f"sinusoid({places}, {width})", found, wanted, hint, mistakes)


POSITIONS = Exercise(
    """1. Give a sentence that a model without positions cannot tell from "man eats small dinosaur", and that
   is another sentence.

2. Write sinusoid(places, width): the table of positions of the first Transformer, an array of `places`
   rows and `width` columns (an even number), with D = width and p the row, from 0:

    PE[p, 2i]     = sin(p / 10000 ** (2i / D))
    PE[p, 2i + 1] = cos(p / 10000 ** (2i / D))

Check it with: regard course check 9""",
    """
import numpy as np

SECOND = None  # such as "man eats small dinosaur"


def sinusoid(places, width):
    return None
""",
    (_check_order, _check_table),
)

# --- 10: the block


def normed(x: np.ndarray) -> np.ndarray:
    """Layer norm of each row, without gain and bias."""
    found = np.empty_like(x)
    for place, row in enumerate(x):
        mean = sum(row) / len(row)
        variance = sum((each - mean) ** 2 for each in row) / len(row)
        found[place] = (row - mean) / math.sqrt(variance + 1e-5)
    return found


def fed(x: np.ndarray, w_1: np.ndarray, b_1: np.ndarray, w_2: np.ndarray, b_2: np.ndarray) -> np.ndarray:
    """max(0, x W_1 + b_1) W_2 + b_2."""
    hidden: np.ndarray = np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2
    return hidden


def _check_norm(answer: Answer) -> Iterator[Point]:
    x = np.random.default_rng(10).normal(2, 3, size=(3, 5))
    columns = normed(x.T).T
    mixed = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    sample = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, ddof=1, keepdims=True) + 1e-5)
    mistakes = (
        Mistake(columns, "that is over the tokens; a layer norm goes over the numbers of each token, a row"),
        Mistake(mixed, "the mean is that of the numbers of each token, a row (axis=1)"),
        Mistake(sample, "the variance is the mean of the squares: divide by D, not by D - 1"),
        Mistake(x - x.mean(axis=1, keepdims=True), "divide by the root of the variance"),
    )
    yield compare("norm of 3 tokens", answer.call("norm", x), normed(x), "(x - mean) / √(variance + 1e-5)", mistakes)


def _check_block(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(11)
    for tokens, width, wide in ((3, 4, 8), (2, 5, 7)):
        x, attended = dice.normal(size=(tokens, width)), dice.normal(size=(tokens, width))
        weights = tuple(dice.normal(size=size) for size in ((width, wide), (wide,), (wide, width), (width,)))
        middle = normed(x + attended)
        wanted = normed(middle + fed(middle, *weights))
        cold = normed(attended)
        mistakes = (
            Mistake(middle + fed(middle, *weights), "the second norm is missing"),
            Mistake(normed(fed(middle, *weights)), "add what went into the feed-forward: the second residual"),
            Mistake(normed(cold + fed(cold, *weights)), "add x to what attention gave: the first residual"),
            Mistake(normed(middle + ((middle @ weights[0] + weights[1]) @ weights[2] + weights[3])), "ReLU is missing"),
        )
        found = answer.call("block", x, attended, *weights)
        hint = "middle = norm(x + attended); norm(middle + max(0, middle W_1 + b_1) W_2 + b_2)"
        yield compare(f"block of {tokens} tokens of width {width}", found, wanted, hint, mistakes, 1e-4)


def _check_parameters(answer: Answer) -> Iterator[Point]:
    for width, wide in ((64, 256), (512, 2048)):
        wanted = 4 * width * width + 2 * width * wide + wide + width + 4 * width
        parts = f"4·D² + (D·F + F) + (F·D + D) + 2·2·D with D = {width}, F = {wide}"
        mistakes = (
            Mistake(wanted - 4 * width, "the two norms have a gain and a bias of D numbers each"),
            Mistake(wanted - wide - width, "the two biases of the feed-forward are missing"),
            Mistake(wanted - width * width, "W_o is a matrix of D · D, too"),
        )
        yield compare(f"parameters({width}, {wide})", answer.call("parameters", width, wide), wanted, parts, mistakes)


BLOCK = Exercise(
    """1. Write norm(x): the layer norm of each row of x, (x - mean) / sqrt(variance + 1e-5), without gain and
   bias.

2. Write block(x, attended, W_1, b_1, W_2, b_2): the rest of a block as in 2017, norms behind each
   residual. attended is what attention has already made of x.

    middle = norm(x + attended)
    output = norm(middle + max(0, middle W_1 + b_1) W_2 + b_2)

3. Write parameters(D, F): how many numbers one such block learns: W_q, W_k, W_v and W_o (D x D, no
   biases), W_1 (D x F) and b_1, W_2 (F x D) and b_2, and two norms that have a gain and a bias of D
   numbers each.

Check it with: regard course check 10""",
    """
import numpy as np


def norm(x):
    return None


def block(x, attended, W_1, b_1, W_2, b_2):
    return None


def parameters(D, F):
    return None
""",
    (_check_norm, _check_block, _check_parameters),
)
