"""Exercises of chapters 15 to 17: pictures, long sequences, and whether attention explains."""

from __future__ import annotations

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
            Mistake(bare @ v, "divide by φ(q_t) · z, so that the weights add up to one"),
            Mistake(np.tril(q @ k.T) @ v / np.tril(q @ k.T).sum(axis=1, keepdims=True), "put q and k through φ first"),
        )
        found = answer.call("linear", q, k, v)
        hint = "S = S + φ(k_t) v_tᵀ, z = z + φ(k_t), then output = φ(q_t) S / (φ(q_t) · z)"
        yield compare(f"linear attention over {length} tokens", found, linear_attention(q, k, v), hint, mistakes)


def _check_scan(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(17)
    for length, states in ((1, 2), (6, 3)):
        a, b, c = dice.uniform(0.2, 0.95, states), dice.normal(size=states), dice.normal(size=states)
        x = dice.normal(size=length)
        kernel = [float(c @ (a**lag * b)) for lag in range(length)]  # as a convolution, not as a recurrence
        wanted = [sum(kernel[lag] * x[time - lag] for lag in range(time + 1)) for time in range(length)]
        early = [sum(kernel[lag] * x[time - 1 - lag] for lag in range(time)) for time in range(length)]
        mistakes = (Mistake(early, "read x_t into the state first, then write y_t"),)
        found = answer.call("state_space", a, b, c, x)
        yield compare(f"state_space over {length} numbers", found, wanted, "h = a h + b x_t, y_t = c · h", mistakes)


LONG = Exercise(
    """1. Write linear(q, k, v): causal linear attention in one pass. With phi(x) = x + 1 where x > 0 and
   exp(x) elsewhere, keep a matrix S (width x width of v) and a vector z, both zeros at the beginning;
   at every token t

    S = S + phi(k_t) v_t^T,   z = z + phi(k_t),   output_t = phi(q_t) S / (phi(q_t) . z)

q, k and v have one row for each token. Return one row for each token.

2. Write state_space(a, b, c, x): the smallest state space model. a, b, c are vectors of N numbers, x is
   a sequence of numbers:

    h = a * h + b * x_t   (number by number; zeros at the beginning),   y_t = c . h

Return all y.

Check it with: regard course check 16""",
    """
import numpy as np


def linear(q, k, v):
    return None


def state_space(a, b, c, x):
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
        mistakes = [Mistake(bare, "half of each layer is the residual: A/2 + I/2")]
        mistakes += (
            [Mistake(back, "the later layer stands to the left: (A_2/2 + I/2) (A_1/2 + I/2)")] if layers > 1 else []
        )
        found = answer.call("rollout", maps)
        yield compare(
            f"rollout of {layers} layers", found, wanted, "multiply A/2 + I/2, later layers on the left", mistakes
        )


EXPLAIN = Exercise(
    """1. Write faithfulness(weights, falls). Both have one row for each word that the model wrote and one
   column for each word that it read: weights says where it looked, falls by how much the
   log-probability of what it wrote fell when the word was taken away.

    sum (attended - random) / sum (best - random)     both sums over all rows

attended is the fall of the word with the greatest weight, random the mean of the row's falls, best the
greatest.

2. Write rollout(maps): maps has one square map for each layer, the first layer first. Multiply (A/2 +
   I/2) of all layers, later ones on the left, where I is the identity.

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
