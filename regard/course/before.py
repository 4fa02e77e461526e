"""Exercises of chapters 1 to 5: counted weights, recurrence, the bottleneck, Bahdanau's look, scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from regard.course.exercise import Answer, Exercise, Mistake, Point, as_numbers, compare, expect, short

# --- 1: counted weights

TEXTS = (
    ("the dog bit the man", "the man fed the dog", "the cat saw the bird", "the bird sang"),
    ("red red blue", "blue green", "green green red grey"),
)


def count_weights(texts: Sequence[str]) -> list[dict[str, float]]:
    """tf · log(N / n_j) of every word of every text."""
    split = [text.split() for text in texts]
    occurs = {word: sum(word in words for words in split) for words in split for word in words}
    return [{word: words.count(word) * math.log(len(texts) / occurs[word]) for word in words} for words in split]


def _check_tfidf(answer: Answer) -> Iterator[Point]:
    for number, texts in enumerate(TEXTS):
        found, wanted = answer.call("tfidf", list(texts)), count_weights(texts)
        what = "tfidf of the texts of the chapter" if number == 0 else f"tfidf of {list(texts)}"
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            yield Point(False, f"{what}: {short(found)} is no list of dictionaries", "one dictionary for each text")
            return
        if [set(each) for each in found] != [set(each) for each in wanted]:
            keys, right = [sorted(map(str, each)) for each in found], [sorted(each) for each in wanted]
            yield Point(
                False, f"{what}: your words are {short(keys)}, they are {short(right)}", "each word once a text"
            )
            return
        yield _weights_point(what, texts, found, wanted)


def _weights_point(
    what: str, texts: Sequence[str], found: list[dict[str, float]], wanted: list[dict[str, float]]
) -> Point:
    split = [text.split() for text in texts]
    every = [word for words in split for word in words]
    places = [(number, word) for number, each in enumerate(wanted) for word in each]
    right = [wanted[number][word] for number, word in places]
    yours = [found[number][word] for number, word in places]
    by_text = [w / len(split[number]) for (number, _), w in zip(places, right, strict=True)]
    by_count = [split[n].count(word) * math.log(len(texts) / every.count(word)) for n, word in places]
    once = [math.log(len(texts) / sum(word in words for words in split)) for _, word in places]
    mistakes = (
        Mistake([each / math.log(10) for each in right], "use the natural logarithm, math.log(x), not log10"),
        Mistake([each / math.log(2) for each in right], "use the natural logarithm, math.log(x), not log2"),
        Mistake(by_text, "tf is how often the word occurs in the text; do not divide by the length of the text"),
        Mistake(by_count, "n_j counts texts that have the word, not how often it occurs in all of them"),
        Mistake(once, "multiply by tf, how often the word occurs in this text"),
    )
    point = compare(what, yours, right, "weight = tf · log(N / n_j)", mistakes)
    if point.right or as_numbers(yours) is None:
        return point
    worst = max(range(len(places)), key=lambda place: abs(float(yours[place]) - right[place]))
    number, word = places[worst]
    told = f"“{word}” in text {number + 1}: you have {float(yours[worst]):.6g}, it is {right[worst]:.6g}"
    return Point(False, f"{what}: {told}", point.hint)


def _check_silent(answer: Answer) -> Iterator[Point]:
    found = answer.value("SILENT")
    hint = "log(N / n_j) is 0 where n_j = N: which word is in all four texts?"
    yield expect("SILENT", found == "the", f"you have {short(found)}, whose weight is not 0 in every text", hint)


COUNTED = Exercise(
    """Write tfidf(texts): for each text a dictionary from each of its words to its weight

    weight = tf * log(N / n_j)

tf is how often the word occurs in this text, N how many texts there are, n_j in how many of them the
word occurs. Words are what stands between spaces; the texts have small letters only.

Then say which word of the four texts of the chapter weighs nothing, in whichever text it stands.

Check it with: regard course check 1""",
    """
import math


def tfidf(texts):
    # texts is a list of strings; return a list of dictionaries, one for each text
    return None


SILENT = None  # a word, such as "dog"
""",
    (_check_tfidf, _check_silent),
)

# --- 2: recurrence


def read_states(xs: np.ndarray, w: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The last state of h_t = tanh(x_t W + h_(t-1) U), from a state of zeros."""
    state = np.zeros(len(u))
    for x in xs:
        state = np.tanh(x @ w + state @ u)
    return state


def _check_read(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(2)
    for length, width, size in ((1, 2, 3), (5, 3, 2)):
        xs, w, u = dice.normal(size=(length, width)), dice.normal(size=(width, size)), dice.normal(size=(size, size))
        found, wanted = answer.call("read", xs, w, u), read_states(xs, w, u)
        turned = read_states(xs[::-1], w, u)
        linear = np.zeros(size)
        for x in xs:
            linear = x @ w + linear @ u
        mistakes = [Mistake(linear, "put the sum through tanh at every step")]
        if length > 1:
            mistakes += [
                Mistake(turned, "you read from the last word to the first"),
                Mistake(np.tanh(xs[-1] @ w), "the state before each step has to go in: h @ U"),
            ]
        yield compare(
            f"read of {length} vectors of {width} numbers", found, wanted, "h = tanh(x @ W + h @ U)", mistakes
        )


def _check_left(answer: Answer) -> Iterator[Point]:
    hint = "the first word was taken in at step 1; it passes the forget gates of steps 2, 3, ... to the last"
    for gates in ([0.3, 0.5, 0.8], [0.9, 0.9, 0.9, 0.9, 0.9], [0.4]):
        mistakes = [Mistake(math.prod(gates), "the gate of step 1 closes over what came before it, not over word 1")]
        mistakes += [Mistake(math.prod(gates[:-1]), "the gate of the last step counts, that of step 1 does not")]
        found = answer.call("left_of_first", gates)
        yield compare(f"left_of_first({gates})", found, math.prod(gates[1:]), hint, mistakes)


def _check_steps(answer: Answer) -> Iterator[Point]:
    found = answer.value("STEPS")
    whole = isinstance(found, int) and not isinstance(found, bool) and found > 0
    now = f"0.9 ** {found} = {0.9**found:.5f}" if whole and found < 10_000 else "that is no number of steps"
    yield expect("STEPS", found == 44, f"you have {short(found)}: {now}", "the least n with 0.9 ** n < 0.01")


RECURRENCE = Exercise(
    """1. Write read(xs, W, U): the last state of a recurrent network that reads the vectors xs one after
   another,

    h_t = tanh(x_t W + h_(t-1) U),   h_0 = zeros

xs has one row for each word; W and U are matrices (NumPy arrays). Return the last h.

2. Write left_of_first(gates): an LSTM's forget gates at step 1, 2, 3, ... are given for one unit. Which
   share of what step 1 took in is left after the last step?

3. With all gates at 0.9: after how many forget gates is less than one hundredth left? STEPS is the
   least number.

Check it with: regard course check 2""",
    """
import numpy as np


def read(xs, W, U):
    h = np.zeros(len(U))
    # for each x of xs: a new h
    return None


def left_of_first(gates):
    return None


STEPS = None  # a whole number
""",
    (_check_read, _check_left, _check_steps),
)

# --- 3: one vector


def last_digit(sentence: Sequence[int]) -> int:
    """The encoder of the exercise: a state of one digit."""
    state = 0
    for word in sentence:
        state = (3 * state + word) % 10
    return state


def _check_encode(answer: Answer) -> Iterator[Point]:
    for sentence in ([7], [1, 2, 3], [9, 9, 0, 4, 4]):
        found = answer.call("encode", sentence)
        yield compare(f"encode({sentence})", found, last_digit(sentence), "state = (3 * state + word) % 10, from 0")


def _check_collision(answer: Answer) -> Iterator[Point]:
    first, second = answer.value("FIRST"), answer.value("SECOND")
    for name, each in (("FIRST", first), ("SECOND", second)):
        digits = isinstance(each, list) and all(isinstance(word, int) and 0 <= word <= 9 for word in each)
        if not digits or len(each) != 3:
            yield Point(False, f"{name}: {short(each)} is no list of three digits", "such as [1, 2, 3]")
            return
    if first == second:
        yield Point(False, f"FIRST and SECOND are both {first}", "they must be two different sentences")
        return
    states = f"{first} ends in the state {last_digit(first)}, {second} in {last_digit(second)}"
    hint = "there are 1000 sentences of three digits and 10 states: try a few and look for two that meet"
    yield expect("FIRST and SECOND", last_digit(first) == last_digit(second), states, hint)


def _check_longest(answer: Answer) -> Iterator[Point]:
    found = answer.value("TOO_LONG")
    hint = "8 ** n = 2 ** (3 n) sentences of n words, 2 ** 32 states: the least n with more sentences than states"
    near_miss = {10: "8 ** 10 = 2 ** 30 sentences still fit into 2 ** 32 states"}
    wrong = f"you have {short(found)}, it is 11"
    yield expect("TOO_LONG", found == 11, wrong, near_miss.get(found if isinstance(found, int) else -1, hint))


ONE_VECTOR = Exercise(
    """An encoder with a state of one digit reads words that are digits:

    state = (3 * state + word) % 10,   at the beginning 0

1. Write encode(sentence): the state after a list of digits.
2. A decoder that gets only the state cannot tell two sentences with the same state apart. Give two
   different sentences of three digits each, FIRST and SECOND, that end in the same state.
3. A larger state: 4 numbers of 8 bits each, so 2 ** 32 different states. Sentences are made of 8 words.
   From which length n on (n words each) must two sentences share a state, whatever the encoder does?
   TOO_LONG is the least such n.

Check it with: regard course check 3""",
    """
def encode(sentence):
    # sentence is a list of digits, such as [1, 2, 3]
    return None


FIRST = None  # such as [1, 2, 3]
SECOND = None

TOO_LONG = None  # a whole number
""",
    (_check_encode, _check_collision, _check_longest),
)

# --- 4: Bahdanau's look


def additive_look(
    s: np.ndarray, h: np.ndarray, w: np.ndarray, u: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, weights and context of a state s that looks at annotations h, in plain loops."""
    scores = []
    for annotation in h:
        from_s = [sum(s[i] * w[i, a] for i in range(len(s))) for a in range(len(v))]
        from_h = [sum(annotation[i] * u[i, a] for i in range(len(annotation))) for a in range(len(v))]
        scores.append(sum(v[a] * math.tanh(from_s[a] + from_h[a]) for a in range(len(v))))
    raised = [math.exp(score - max(scores)) for score in scores]
    weights = [each / sum(raised) for each in raised]
    context = [sum(weights[j] * h[j, i] for j in range(len(h))) for i in range(h.shape[1])]
    return np.array(scores), np.array(weights), np.array(context)


EXAMPLE = (
    np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]), np.array([[1.0, 0, -1], [0, 1, 1]]),
    np.array([[0.0, 1, 1], [1, 0, -1]]), np.array([1.0, 2, -1]),
)  # fmt: skip


def _looks() -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    dice = np.random.default_rng(4)
    yield "of the chapter's example", EXAMPLE
    for words, state, width, inner in ((4, 3, 2, 5), (2, 2, 5, 3)):
        sizes = ((state,), (words, width), (state, inner), (width, inner), (inner,))
        yield f"of a state that looks at {words} words", tuple(dice.normal(size=size) for size in sizes)


def _check_weights(answer: Answer) -> Iterator[Point]:
    for what, numbers in _looks():
        scores, weights, _ = additive_look(*numbers)
        s, h, w, u, v = numbers
        linear = (s @ w + h @ u) @ v
        mistakes = (
            Mistake(scores, "these are the scores; put them through a softmax"),
            Mistake(np.exp(scores), "divide by the sum, so that the weights add up to one"),
            Mistake(np.exp(linear - linear.max()) / np.exp(linear - linear.max()).sum(), "the tanh is missing"),
        )
        found = answer.call("weights", *numbers)
        yield compare(f"weights {what}", found, weights, "e_j = v · tanh(s W + h_j U), then a softmax over j", mistakes)


def _check_context(answer: Answer) -> Iterator[Point]:
    for what, numbers in _looks():
        context = additive_look(*numbers)[2]
        mistakes = (Mistake(numbers[1].mean(axis=0), "that is the mean; each h_j is multiplied by its own weight"),)
        found = answer.call("context", *numbers)
        yield compare(f"context {what}", found, context, "c = Σ_j weight_j h_j", mistakes)


BAHDANAU = Exercise(
    """Write Bahdanau's look in NumPy, from a state s at annotations h (one row for each word of the source):

    e_j = v . tanh(s W + h_j U)          the score of word j, a number
    weight_j = exp(e_j) / (exp(e_1) + exp(e_2) + ...)
    c = sum_j weight_j h_j               the context, as wide as an annotation

weights(s, h, W, U, v) gives the weights, one for each word; context(s, h, W, U, v) gives c. It is
checked on the chapter's example and on random numbers.

Check it with: regard course check 4""",
    """
import numpy as np


def weights(s, h, W, U, v):
    # s is a vector, h has one row for each word; W and U have as many columns as v has numbers
    return None


def context(s, h, W, U, v):
    return None
""",
    (_check_weights, _check_context),
)

# --- 5: scores


def _check_scores(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(5)
    q, k = dice.normal(size=4), dice.normal(size=(3, 4))
    dots = [sum(q[n] * row[n] for n in range(4)) for row in k]
    lengths = [math.hypot(*q) * math.hypot(*row) for row in k]
    wanted = {"dot": dots, "scaled": [each / 2 for each in dots]}
    wanted["cosine"] = [each / length for each, length in zip(dots, lengths, strict=True)]
    hints = {
        "dot": "q · k_j: the sum of the products of their numbers, for each row k_j of k",
        "scaled": "divide q · k_j by the root of how many numbers q has, here √4",
        "cosine": "divide by both lengths; the length of a vector is the root of the sum of its squares",
    }
    for name, right in wanted.items():
        mistakes = [Mistake(dots, hints[name]), Mistake([each / 4 for each in dots], "by √4, not by 4")]
        yield compare(f"{name} of 3 words of width 4", answer.call(name, q, k), right, hints[name], mistakes)


def _check_temperature(answer: Answer) -> Iterator[Point]:
    found = answer.value("TEMPERATURE")
    if not isinstance(found, int | float) or not found > 0:
        yield Point(False, f"TEMPERATURE: {short(found)} is no number above 0", "such as 1.0")
        return
    greatest = 1 / (1 + math.exp(-1 / found) + math.exp(-2 / found))
    hint = "a lower temperature makes the softmax harder" if greatest < 0.9 else "a higher temperature makes it softer"
    wrong = f"at {found:g} the greatest weight is {greatest:.4f}, it should be 0.90"
    yield expect("TEMPERATURE", abs(greatest - 0.9) <= 0.005, wrong, hint)


SCORES = Exercise(
    """1. Write three scores of a query q and keys k (a NumPy array with one row for each key), each giving one
   number a key:

    dot(q, k)      q . k_j
    scaled(q, k)   q . k_j / sqrt(E), where E is how many numbers q has
    cosine(q, k)   q . k_j / (length of q * length of k_j)

2. The scores of three words are 2, 1 and 0. Divided by a temperature and put through a softmax, the
   greatest weight should be 0.90. Which temperature? Two digits after the point are enough.

Check it with: regard course check 5""",
    """
import numpy as np


def dot(q, k):
    return None


def scaled(q, k):
    return None


def cosine(q, k):
    return None


TEMPERATURE = None  # a number above 0
""",
    (_check_scores, _check_temperature),
)
