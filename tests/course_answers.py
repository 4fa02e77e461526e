"""Right answers to the exercises of the course, and typical mistakes: (chapter, old, new, what the check says)."""

from __future__ import annotations

RIGHT = {
    1: """
import math


def tfidf(texts):
    split = [text.split() for text in texts]
    occurs = lambda word: sum(word in words for words in split)
    return [{word: words.count(word) * math.log(len(texts) / occurs(word)) for word in words} for words in split]


SILENT = "the"
""",
    2: """
import numpy as np


def read(xs, W, U):
    h = np.zeros(len(U))
    for x in xs:
        h = np.tanh(x @ W + h @ U)
    return h


def left_of_first(gates):
    left = 1.0
    for gate in gates[1:]:
        left *= gate
    return left


STEPS = 44
""",
    3: """
def encode(sentence):
    state = 0
    for word in sentence:
        state = (3 * state + word) % 10
    return state


FIRST = [0, 0, 3]
SECOND = [0, 1, 0]

TOO_LONG = 11
""",
    4: """
import numpy as np


def weights(s, h, W, U, v):
    scores = np.tanh(s @ W + h @ U) @ v
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def context(s, h, W, U, v):
    return weights(s, h, W, U, v) @ h
""",
    5: """
import numpy as np


def dot(q, k):
    return k @ q


def scaled(q, k):
    return k @ q / np.sqrt(len(q))


def cosine(q, k):
    return k @ q / (np.linalg.norm(q) * np.linalg.norm(k, axis=1))


TEMPERATURE = 0.44
""",
    6: """
import numpy as np


def attend(x, W_q, W_k, W_v):
    scores = (x @ W_q) @ (x @ W_k).T
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True) @ (x @ W_v)


FIRST = [1.937, 6.683, 1.595]
""",
    7: """
import numpy as np


def softmax(rows):
    raised = np.exp(rows - rows.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def causal(scores):
    seen = np.tri(len(scores), dtype=bool)
    return softmax(np.where(seen, scores, -np.inf))


PAIRS = 55
""",
    8: """
import numpy as np


def heads(x, W_q, W_k, W_v, W_o, count):
    Q, K, V = x @ W_q, x @ W_k, x @ W_v
    size = Q.shape[1] // count
    parts = []
    for head in range(count):
        own = list(range(head * size, head * size + size))
        scores = Q[:, own] @ K[:, own].T / np.sqrt(size)
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        parts.append(raised / raised.sum(axis=1, keepdims=True) @ V[:, own])
    return np.concatenate(parts, axis=1) @ W_o
""",
    9: """
import numpy as np

SECOND = "dinosaur eats small man"


def sinusoid(places, width):
    table = np.empty((places, width))
    for i in range(width // 2):
        angle = np.arange(places) / 10000 ** (2 * i / width)
        table[:, 2 * i] = np.sin(angle)
        table[:, 2 * i + 1] = np.cos(angle)
    return table
""",
    10: """
import numpy as np


def norm(x):
    mean = x.mean(axis=1, keepdims=True)
    variance = x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


def block(x, attended, W_1, b_1, W_2, b_2):
    y = norm(x + attended)
    return norm(y + np.maximum(0, y @ W_1 + b_1) @ W_2 + b_2)


def parameters(D, F):
    return 4 * D * D + D * F + F + F * D + D + 4 * D
""",
    11: """
def rate(step, width, warmup):
    return width**-0.5 * min(step**-0.5, step * warmup**-1.5)


PEAK = 4000


def smoothed(label, classes, smoothing):
    target = [smoothing / classes] * classes
    target[label] += 1 - smoothing
    return target
""",
    12: """
import math


def beam(table, size, length):
    kept = [(0.0, [0])]
    for _ in range(length):
        longer = []
        for total, tokens in kept:
            for token in range(len(table)):
                longer.append((total + math.log(table[tokens[-1]][token]), tokens + [token]))
        kept = sorted(longer, reverse=True)[:size]
    return kept[0][1][1:]


ALPHA = 0.75
""",
    13: """
def pairs(words):
    found = {}
    for word in words:
        for left, right in zip(word, word[1:]):
            found[left, right] = found.get((left, right), 0) + 1
    return found


def join(pieces, left, right):
    found, place = [], 0
    while place < len(pieces):
        if pieces[place : place + 2] == [left, right]:
            found.append(left + right)
            place += 2
        else:
            found.append(pieces[place])
            place += 1
    return found
""",
    14: """
import math


def next_token(tokens):
    return [(["<s>"] + tokens[:place], tokens[place]) for place in range(len(tokens))]


def masked(tokens, places):
    seen = ["[MASK]" if place in places else token for place, token in enumerate(tokens)]
    return seen, {place: tokens[place] for place in places}


def perplexity(probabilities):
    return math.exp(-sum(math.log(p) for p in probabilities) / len(probabilities))
""",
    15: """
import numpy as np


def patches(picture, size):
    found = []
    for top in range(0, picture.shape[0], size):
        for left in range(0, picture.shape[1], size):
            found.append(picture[top : top + size, left : left + size].reshape(-1))
    return np.array(found)


def size(w, k, s, p):
    return (w + 2 * p - k) // s + 1
""",
    16: """
import numpy as np


def phi(x):
    return np.where(x > 0, x + 1, np.exp(x))


def linear(q, k, v):
    M, m, found = np.zeros((k.shape[1], v.shape[1])), np.zeros(k.shape[1]), []
    for t in range(len(q)):
        M = M + np.outer(phi(k[t]), v[t])
        m = m + phi(k[t])
        found.append(phi(q[t]) @ M / (phi(q[t]) @ m))
    return found


def state_space(A, B, C, x):
    h, found = np.zeros(len(A)), []
    for now in x:
        h = A * h + B * now
        found.append(C @ h)
    return found
""",
    17: """
import numpy as np


def faithfulness(weights, falls):
    attended = falls[np.arange(len(falls)), weights.argmax(axis=1)]
    random, best = falls.mean(axis=1), falls.max(axis=1)
    return (attended - random).sum() / (best - random).sum()


def rollout(maps):
    found = np.eye(maps.shape[1])
    for each in maps:
        found = (each / 2 + np.eye(len(each)) / 2) @ found
    return found
""",
    18: """
import numpy as np


def hops(q, keys, values):
    for k, v in zip(keys, values):
        raised = np.exp(k @ q)
        q = q + raised / raised.sum() @ v
    return q


def write(M, weights, erase, add):
    return M * (1 - np.outer(weights, erase)) + np.outer(weights, add)


def shares(chances):
    found, total = [], 0.0
    for chance in chances:
        if total + chance >= 0.99:
            return found + [1 - total]
        found.append(chance)
        total += chance
""",
}

WRONG = [
    (1, "math.log(len", "math.log10(len", "natural logarithm"),
    (1, "sum(word in words for words in split)", "sum(words.count(word) for words in split)", "n_j counts texts"),
    (1, "words.count(word) * ", "", "multiply by tf"),
    (1, "words.count(word) * ", "words.count(word) / len(words) * ", "do not divide by the length"),
    (1, '"the"', '"dog"', "you have 'dog'"),
    (2, "for x in xs:", "for x in xs[::-1]:", "from the last word to the first"),
    (2, "np.tanh(x @ W + h @ U)", "x @ W + h @ U", "tanh at every step"),
    (2, " + h @ U", "", "the state before each step has to go in"),
    (2, "gates[1:]", "gates", "the gate of step 1"),
    (2, "STEPS = 44", "STEPS = 43", "0.9 ** 43 = 0.01078"),
    (3, "% 10", "% 9", "encode([1, 2, 3])"),
    (3, "SECOND = [0, 1, 0]", "SECOND = [0, 0, 3]", "two different sentences"),
    (3, "SECOND = [0, 1, 0]", "SECOND = [0, 1, 1]", "[0, 0, 3] ends in the state 3, [0, 1, 1] in 4"),
    (3, "SECOND = [0, 1, 0]", "SECOND = [3]", "no list of three digits"),
    (3, "TOO_LONG = 11", "TOO_LONG = 10", "still fit"),
    (4, "np.tanh(s @ W + h @ U) @ v", "(s @ W + h @ U) @ v", "the tanh is missing"),
    (4, "    return raised / raised.sum()", "    return scores", "put them through a softmax"),
    (4, "weights(s, h, W, U, v) @ h", "h.mean(axis=0)", "that is the mean"),
    (5, "k @ q / np.sqrt(len(q))", "k @ q / len(q)", "by √4, not by 4"),
    (5, " * np.linalg.norm(k, axis=1)", "", "divide by both lengths"),
    (5, "0.44", "1.0", "a lower temperature"),
    (5, "0.44", "0.2", "a higher temperature"),
    (6, "(x @ W_k).T", "(x @ W_k).T / np.sqrt(W_q.shape[1])", "divided the scores by √E"),
    (6, "raised.sum(axis=1, keepdims=True)", "raised.sum(axis=0, keepdims=True)", "not down its columns"),
    (6, "raised.sum(axis=1, keepdims=True)", "raised.sum()", "its own sum"),
    (6, "return raised / raised.sum(axis=1, keepdims=True) @ (x @ W_v)", "return raised / raised.sum(axis=1, keepdims=True)",
     "multiply them by V"),
    (6, "(x @ W_q) @ (x @ W_k).T", "(x @ W_k) @ (x @ W_q).T", "not K Qᵀ"),
    (6, "6.683", "7.0", "you have 7, it is 6.683"),
    (7, "softmax(np.where(seen, scores, -np.inf))", "softmax(scores) * seen", "rows no longer add up to 1"),
    (7, "-np.inf", "0.0", "a score of 0 is not hidden"),
    (7, "np.tri(len(scores), dtype=bool)", "np.tri(len(scores), dtype=bool).T", "hidden the past"),
    (7, "softmax(np.where(seen, scores, -np.inf))", "softmax(scores)", "nothing is hidden yet"),
    (7, "softmax(np.where(seen, scores, -np.inf))",
     "np.nan_to_num(softmax(np.where(np.tri(len(scores), k=-1, dtype=bool), scores, -np.inf)))", "a word may see itself"),
    (7, "np.tri(len(scores), dtype=bool)", "np.tri(len(scores), k=-1, dtype=bool)", "a word may see itself"),
    (7, "PAIRS = 55", "PAIRS = 100", "without a mask"),
    (8, "np.sqrt(size)", "np.sqrt(len(W_q))", "the width of a head"),
    (8, " @ W_o", "", "multiply by W_o"),
    (8, "list(range(head * size, head * size + size))", "list(range(head, Q.shape[1], count))", "stand side by side"),
    (9, '"dinosaur eats small man"', '"man eats small dinosaur"', "another order"),
    (9, '"dinosaur eats small man"', '"dinosaur eats big man"', "has other words"),
    (9, "np.sin(angle)", "np.cos(angle)", "the even columns are sines"),
    (9, "(2 * i / width)", "(i / width)", "the exponent is 2i / D"),
    (10, "x.mean(axis=1, keepdims=True)", "x.mean(axis=0, keepdims=True)", "the mean is that of the numbers of each token"),
    (10, "x.var(axis=1, keepdims=True)", "x.var(axis=1, ddof=1, keepdims=True)", "divide by D, not by D - 1"),
    (10, "norm(x + attended)", "norm(attended)", "the first residual"),
    (10, "norm(y + np.maximum(0, y @ W_1 + b_1) @ W_2 + b_2)", "norm(np.maximum(0, y @ W_1 + b_1) @ W_2 + b_2)",
     "the second residual"),
    (10, "np.maximum(0, y @ W_1 + b_1)", "(y @ W_1 + b_1)", "ReLU is missing"),
    (10, " + 4 * D\n", "\n", "the two norms"),
    (11, "width**-0.5 * ", "", "multiply by width"),
    (11, "min(", "max(", "min, not max"),
    (11, "PEAK = 4000", "PEAK = 1", "you have 1, it is 4000"),
    (11, "target[label] += 1 - smoothing", "target[label] = 1", "every class gets"),
    (12, "[:size]", "[:1]", "keep the `size` likeliest"),
    (12, "[1][1:]", "[1]", "leave out the first 0"),
    (12, "reverse=True", "reverse=False", "you have"),
    (12, "ALPHA = 0.75", "ALPHA = 0.5", "at 0.5 the short one scores"),
    (12, "ALPHA = 0.75", "ALPHA = 1", "the least of the five"),
    (13, "    for word in words:\n", "    for word in [[piece for word in words for piece in word]]:\n",
     "from one word into the next"),
    (13, "place += 2", "place += 1", "go on behind what you have joined"),
    (14, "tokens[:place], tokens[place]", "tokens[: place + 1], tokens[place]", "must not see the token"),
    (14, '["<s>"] + ', "", "<s> first"),
    (14, "{place: tokens[place] for place in places}", "places", "a dictionary from each place"),
    (14, " / len(probabilities)", "", "divide the sum"),
    (15, "return np.array(found)", "return picture.reshape(len(found), -1)", "takes parts of lines"),
    (15, "2 * p", "p", "padding is on both sides"),
    (15, "// s + 1", "/ s + 1", "use // for /"),
    (15, "// s + 1", "// s", "the window at the beginning counts"),
    (16, "@ M / (phi(q[t]) @ m)", "@ M", "divide by φ(q_t)"),
    (16, "return np.where(x > 0, x + 1, np.exp(x))", "return x", "put q and k through φ"),
    (16, "        h = A * h + B * now\n        found.append(C @ h)",
     "        found.append(C @ h)\n        h = A * h + B * now",
     "read x_t into the state first"),
    (17, "(attended - random).sum() / (best - random).sum()", "((attended - random) / (best - random)).mean()",
     "then divide once"),
    (17, "(each / 2 + np.eye(len(each)) / 2) @ found", "each @ found", "map/2 + I/2"),
    (17, "(each / 2 + np.eye(len(each)) / 2) @ found", "found @ (each / 2 + np.eye(len(each)) / 2)",
     "the later layer stands to the left"),
    (18, "q = q + raised", "q = raised", "what was asked is kept"),
    (18, "raised.sum() @ v", "raised.sum() @ k", "add up the values"),
    (18, "raised = np.exp(k @ q)", "raised = 1.0 * (k @ q == (k @ q).max())", "not the best sentence alone"),
    (18, "(1 - np.outer(weights, erase))", "(1 - erase)", "only as much as the head is there"),
    (18, "M * (1 - np.outer(weights, erase)) + np.outer(weights, add)", "M + np.outer(weights, add)", "the erasing is missing"),
    (18, "[1 - total]", "[chance]", "not its own chance"),
    (18, "0.99", "1", "the sum is 0.99 or more"),
]  # fmt: skip
