"""Exercises of chapters 15 to 18: pictures, long sequences, whether attention explains, memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from regard.course.exercise import Answer, Exercise, Mistake, Point, compare

# --- 15: pictures


def cut_patches(picture: np.ndarray, size: int) -> np.ndarray:
    """Patches row by row, each flattened row by row: (patches, size · size · channels)."""
    height, width = picture.shape[:2]
    found = [
        [picture[top + y, left + x, c] for y in range(size) for x in range(size) for c in range(picture.shape[2])]
        for top in range(0, height, size)
        for left in range(0, width, size)
    ]
    return np.array(found)


def _check_patches(answer: Answer) -> Iterator[Point]:
    for height, width, size in ((4, 4, 2), (6, 9, 3)):
        picture = np.arange(height * width * 3, dtype=np.float64).reshape(height, width, 3)
        wanted = cut_patches(picture, size)
        turned = cut_patches(picture.transpose(1, 0, 2), size)
        down = wanted.reshape(height // size, width // size, -1).transpose(1, 0, 2).reshape(wanted.shape)
        mistakes = (
            Mistake(picture.reshape(wanted.shape), "a patch is a square: reshape alone takes parts of lines"),
            Mistake(turned, "row by row: the first index of the picture is the line"),
            Mistake(down, "the patches come row by row, the upper ones from left to right first"),
        )
        found = answer.call("patches", picture, size)
        hint = "patch (r, c) is picture[r·size : (r+1)·size, c·size : (c+1)·size], flattened as it stands"
        yield compare(f"patches of {height} x {width} pixels, size {size}", found, wanted, hint, mistakes)


def _check_size(answer: Answer) -> Iterator[Point]:
    for width, kernel, stride, padding in ((7, 3, 2, 0), (7, 3, 2, 1), (224, 3, 1, 1), (9, 4, 3, 0)):
        line = range(-padding, width + padding - kernel + 1, stride)  # where windows begin
        mistakes = (
            Mistake((width + padding - kernel) // stride + 1, "padding is on both sides: 2 p"),
            Mistake(len(line) - 1, "+ 1: the window at the beginning counts"),
            Mistake(
                (width + 2 * padding - kernel) / stride + 1, "a window that does not fit is left out: use // for /"
            ),
        )
        found = answer.call("size", width, kernel, stride, padding)
        yield compare(
            f"size({width}, {kernel}, {stride}, {padding})", found, len(line), "⌊(w + 2p - k) / s⌋ + 1", mistakes
        )


PICTURES = Exercise(
    """1. Write patches(picture, size): what a ViT reads. picture is a NumPy array (height, width, 3), height
   and width are multiples of size. Return an array of one row for each patch, the patches row by row
   from the upper left; in a row the numbers of the patch as they stand: line by line, pixel by pixel,
   its three colours together.

2. Write size(w, k, s, p): how many windows of k pixels fit into a line of w pixels with p pixels of
   padding on each side, if the window moves by s pixels.

Check it with: regard course check 15""",
    """
import numpy as np


def patches(picture, size):
    return None


def size(w, k, s, p):
    return None
""",
    (_check_patches, _check_size),
)

# --- 16: long sequences


def featured(x: np.ndarray) -> np.ndarray:
    """elu(x) + 1, above zero everywhere."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal linear attention by its definition, all pairs: what the running sums must equal."""
    likeness = np.tril(featured(q) @ featured(k).T)  # (T, T)
    found: np.ndarray = likeness @ v / likeness.sum(axis=1, keepdims=True)
    return found


def _check_linear(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(16)
    for length, width, out in ((3, 2, 4), (7, 5, 3)):
        q, k, v = (dice.normal(size=(length, each)) for each in (width, width, out))
        likeness = featured(q) @ featured(k).T
        bare = np.tril(likeness)
        mistakes = (
            Mistake(likeness @ v / likeness.sum(axis=1, keepdims=True), "token t may only see the keys up to t"),
            Mistake(bare @ v, "divide by φ(q_t) · m, so that the weights add up to one"),
            Mistake(np.tril(q @ k.T) @ v / np.tril(q @ k.T).sum(axis=1, keepdims=True), "put q and k through φ first"),
        )
        found = answer.call("linear", q, k, v)
        hint = "M = M + φ(k_t) v_tᵀ, m = m + φ(k_t), then output = φ(q_t) M / (φ(q_t) · m)"
        yield compare(f"linear attention over {length} tokens", found, linear_attention(q, k, v), hint, mistakes)


def _check_scan(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(17)
    for length, states in ((1, 2), (6, 3)):
        a, b, c = dice.uniform(0.2, 0.95, states), dice.normal(size=states), dice.normal(size=states)
        x = dice.normal(size=length)
        kernel = [float(c @ (a**lag * b)) for lag in range(length)]  # as a convolution, not as a recurrence
        wanted = [sum(kernel[lag] * x[time - lag] for lag in range(time + 1)) for time in range(length)]
        early = [sum(kernel[lag] * x[time - 1 - lag] for lag in range(time)) for time in range(length)]
        mistakes = (Mistake(early, "read x_t into the state first, then write the output"),)
        found = answer.call("state_space", a, b, c, x)
        yield compare(
            f"state_space over {length} numbers", found, wanted, "h = A h + B x_t, output_t = C · h", mistakes
        )


LONG = Exercise(
    """1. Write linear(q, k, v): causal linear attention in one pass. With phi(x) = x + 1 where x > 0 and
   exp(x) elsewhere, keep a matrix M (width of k x width of v) and a vector m (width of k), both zeros at
   the beginning; at every token t

    M = M + phi(k_t) v_t^T,   m = m + phi(k_t),   output_t = phi(q_t) M / (phi(q_t) . m)

q, k and v have one row for each token. Return one row for each token.

2. Write state_space(A, B, C, x): the smallest state space model. A, B and C are vectors of as many
   numbers as the state h has, x is a sequence of numbers:

    h = A * h + B * x_t   (number by number; zeros at the beginning),   output_t = C . h

Return all outputs.

Check it with: regard course check 16""",
    """
import numpy as np


def linear(q, k, v):
    return None


def state_space(A, B, C, x):
    return None
""",
    (_check_linear, _check_scan),
)

# --- 17: does attention explain?


def faithful(weights: np.ndarray, falls: np.ndarray) -> float:
    """Between a random word (0) and the word that is missed most (1): the word that is looked at most, over all predictions."""
    attended = random = best = 0.0
    for row, fall in zip(weights, falls, strict=True):
        attended += fall[int(np.argmax(row))]
        random += sum(fall) / len(fall)
        best += max(fall)
    return (attended - random) / (best - random)


def _check_faithful(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(18)
    for rows, words in ((1, 3), (4, 6)):
        weights, falls = dice.dirichlet(np.ones(words), size=rows), dice.exponential(size=(rows, words))
        wanted = faithful(weights, falls)
        each = np.mean([faithful(row[None], fall[None]) for row, fall in zip(weights, falls, strict=True)])
        mistakes = [Mistake(float((weights * falls).sum(axis=1).mean()), "only the most attended word counts")]
        mistakes += [Mistake(each, "add up over all predictions first, then divide once")] if rows > 1 else []
        hint = "Σ (attended - random) / Σ (best - random)"
        found = answer.call("faithfulness", weights, falls)
        yield compare(f"faithfulness of {rows} predictions over {words} words", found, wanted, hint, mistakes)
    told = np.array([[0.1, 0.9], [0.8, 0.2]])
    yield compare("faithfulness of a perfect map", answer.call("faithfulness", told, told), 1.0, "it must be 1")


def _check_rollout(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(19)
    for layers, tokens in ((1, 3), (3, 4)):
        maps = dice.dirichlet(np.ones(tokens), size=(layers, tokens))
        wanted, bare, back = np.eye(tokens), np.eye(tokens), np.eye(tokens)
        for each in maps:
            wanted = (each / 2 + np.eye(tokens) / 2) @ wanted
            bare = each @ bare
            back = back @ (each / 2 + np.eye(tokens) / 2)
        mistakes = [Mistake(bare, "half of each layer is the residual: map/2 + I/2")]
        mistakes += (
            [Mistake(back, "the later layer stands to the left: (map_2/2 + I/2) (map_1/2 + I/2)")] if layers > 1 else []
        )
        found = answer.call("rollout", maps)
        yield compare(
            f"rollout of {layers} layers",
            found,
            wanted,
            "multiply map/2 + I/2 of all layers, later ones on the left",
            mistakes,
        )


EXPLAIN = Exercise(
    """1. Write faithfulness(weights, falls). Both have one row for each word that the model wrote and one
   column for each word that it read: weights says where it looked, falls by how much the
   log-probability of what it wrote fell when the word was taken away.

    sum (attended - random) / sum (best - random)     both sums over all rows

attended is the fall of the word with the greatest weight, random the mean of the row's falls, best the
greatest.

2. Write rollout(maps): maps has one square map for each layer, the first layer first. Multiply (map/2
   + I/2) of all layers, later ones on the left, where I is the identity.

Check it with: regard course check 17""",
    """
import numpy as np


def faithfulness(weights, falls):
    return None


def rollout(maps):
    return None
""",
    (_check_faithful, _check_rollout),
)

# --- 18: memory


def read_in_hops(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The question (D,) after every hop over keys and values (hops, S, D), sentence by sentence (Sukhbaatar et al. 2015)."""
    for k, v in zip(keys, values, strict=True):
        powers = [math.exp(sum(a * b for a, b in zip(q, row, strict=True))) for row in k]
        q = q + sum(power / sum(powers) * row for power, row in zip(powers, v, strict=True))
    return q


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers: np.ndarray = np.exp(scores)
    return powers / powers.sum()


def _check_hops(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(20)
    for hops, sentences, width in ((1, 3, 2), (3, 5, 4)):
        q, (keys, values) = dice.normal(size=width), dice.normal(size=(2, hops, sentences, width))
        alone, swapped, hard = q, q, q
        for k, v in zip(keys, values, strict=True):
            alone = _softmax(k @ alone) @ v
            swapped = swapped + _softmax(k @ swapped) @ k
            hard = hard + v[int((k @ hard).argmax())]
        mistakes = (
            Mistake(alone, "q = q + read: what was asked is kept, and what was read is added"),
            Mistake(swapped, "compare q with the keys, and add up the values"),
            Mistake(hard, "not the best sentence alone: all, each with its weight"),
        )
        found = answer.call("hops", q, keys, values)
        hint = "for each hop n: weights = softmax(keys[n] @ q), then q = q + weights @ values[n]"
        yield compare(f"{hops} hops over {sentences} sentences", found, read_in_hops(q, keys, values), hint, mistakes)


def _check_write(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(21)
    for rows, width in ((3, 2), (5, 4)):
        memory, weights = dice.normal(size=(rows, width)), dice.dirichlet(np.ones(rows))
        erase, add = dice.uniform(size=width), dice.normal(size=width)
        wanted = [
            [memory[j, n] * (1 - weights[j] * erase[n]) + weights[j] * add[n] for n in range(width)]
            for j in range(rows)
        ]
        mistakes = (
            Mistake((memory + np.outer(weights, add)) * (1 - np.outer(weights, erase)), "erase first, then add"),
            Mistake(memory + np.outer(weights, add), "the erasing is missing"),
            Mistake(memory * (1 - erase) + np.outer(weights, add), "a row is erased only as much as the head is there"),
        )
        found = answer.call("write", memory, weights, erase, add)
        hint = "M_j = M_j * (1 - weight_j * erase) + weight_j * add; np.outer(weights, erase) has all rows at once"
        yield compare(f"write to {rows} rows of {width} numbers", found, wanted, hint, mistakes)


def _check_shares(answer: Answer) -> Iterator[Point]:
    cases = {(0.2, 0.3, 0.7, 0.9): [0.2, 0.3, 0.5], (0.995, 0.5): [1.0], (0.5, 0.49, 0.6): [0.5, 0.5]}
    for chances, wanted in cases.items():
        own = list(chances[: len(wanted)])
        mistakes = (
            Mistake(own, "the last step has what is left to one, not its own chance"),
            Mistake([*own[:-1], 1 - sum(own)], "what is left to one behind the steps before the last one"),
        )
        hint = "the first step at which the sum is 0.99 or more is the last; its share is 1 - the sum before it"
        yield compare(f"shares({list(chances)})", answer.call("shares", list(chances)), wanted, hint, mistakes)


MEMORY = Exercise(
    """1. Write hops(q, keys, values): a memory network. keys[n] and values[n] are those of hop n, one row for
   each sentence (NumPy arrays). At each hop, with weights = softmax(keys[n] q) over the sentences,

    q = q + sum_j weights_j values[n]_j

Return the last q.

2. Write write(M, weights, erase, add): the memory after a head has written. M has one row for each
   weight; erase and add are as wide as a row.

    M_j = M_j * (1 - weight_j * erase) + weight_j * add

3. Write shares(chances): chances of stopping at step 1, 2, 3, ... Thinking ends at the first step at
   which their sum is 0.99 or more. Return a list with the share of each step up to that one: its own
   chance, and for the last what is left to one.

Check it with: regard course check 18""",
    """
import numpy as np


def hops(q, keys, values):
    return None


def write(M, weights, erase, add):
    return None


def shares(chances):
    return None
""",
    (_check_hops, _check_write, _check_shares),
)
