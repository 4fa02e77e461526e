"""Exercises of chapters 11 to 14: training, decoding, tokens, GPT and BERT."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import numpy as np

from regard.course.exercise import Answer, Exercise, Mistake, Point, compare, expect, short

# --- 11: training


def warmed(step: int, width: int, warmup: int) -> float:
    """The learning rate of the first Transformer."""
    return width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def _check_rate(answer: Answer) -> Iterator[Point]:
    hint = "width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)"
    for step, width, warmup in ((1, 512, 4000), (4000, 512, 4000), (100_000, 512, 4000), (30, 64, 100)):
        wanted = warmed(step, width, warmup)
        most = width**-0.5 * max(step**-0.5, step * warmup**-1.5)
        mistakes = (
            Mistake(wanted * width**0.5, "multiply by width ** -0.5"),
            Mistake(most, "the lesser of the two: min, not max"),
        )
        yield compare(
            f"rate({step}, {width}, {warmup})", answer.call("rate", step, width, warmup), wanted, hint, mistakes
        )


def _check_peak(answer: Answer) -> Iterator[Point]:
    found = answer.value("PEAK")
    hint = "both terms of the minimum are equal where step ** -0.5 = step * warmup ** -1.5"
    yield compare("PEAK", found, 4000, hint)


def _check_smooth(answer: Answer) -> Iterator[Point]:
    for label, classes, smoothing in ((2, 5, 0.1), (0, 4, 0.2)):
        wanted = [smoothing / classes] * classes
        wanted[label] += 1 - smoothing
        others = [smoothing / (classes - 1)] * classes
        others[label] = 1 - smoothing
        hard = [float(place == label) for place in range(classes)]
        mistakes = (
            Mistake(others, "here the smoothing is shared by all classes, the right one too"),
            Mistake(hard, "that is not smoothed yet"),
        )
        found = answer.call("smoothed", label, classes, smoothing)
        yield compare(
            f"smoothed({label}, {classes}, {smoothing})", found, wanted,
            "every class gets smoothing / classes, the right one (1 - smoothing) more", mistakes,
        )  # fmt: skip


TRAINING = Exercise(
    """1. Write rate(step, width, warmup): the learning rate of the first Transformer,

    width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)

2. At which step is it greatest if warmup is 4000? PEAK.

3. Write smoothed(label, classes, smoothing): the target of label smoothing, a list of `classes` numbers
   that add up to 1. The share `smoothing` is given to all classes alike, the right one too; the rest to
   the right one (its number is `label`, from 0).

Check it with: regard course check 11""",
    """
def rate(step, width, warmup):
    return None


PEAK = None  # a whole number


def smoothed(label, classes, smoothing):
    return None
""",
    (_check_rate, _check_peak, _check_smooth),
)

# --- 12: decoding


def total(table: np.ndarray, sequence: Sequence[int]) -> float:
    """The log-probability of a sequence that begins behind token 0."""
    return sum(math.log(table[last, new]) for last, new in pairwise([0, *sequence]))


def beam_search(table: np.ndarray, width: int, length: int) -> list[int]:
    """The best sequence that a beam of this width finds."""
    kept: list[list[int]] = [[]]
    for _ in range(length):
        longer = [[*each, new] for each in kept for new in range(len(table))]
        kept = sorted(longer, key=lambda each: -total(table, each))[:width]
    return kept[0]


def likeliest(table: np.ndarray, length: int) -> list[int]:
    """The best of all sequences of this length."""
    every = [list(each) for each in product(range(len(table)), repeat=length)]
    return max(every, key=lambda each: total(table, each))


def _check_beam(answer: Answer) -> Iterator[Point]:
    dice = np.random.default_rng(12)
    for tokens, length in ((3, 3), (4, 4)):
        for width in (1, 2, tokens**length):
            table = _misleading(dice, tokens, length)
            wanted = beam_search(table, width, length)
            if width == tokens**length:
                wanted = likeliest(table, length)
            found = answer.call("beam", table, width, length)
            yield _sequence_point(f"beam of {width}, {tokens} tokens, length {length}", found, wanted, table)


def _misleading(dice: np.random.Generator, tokens: int, length: int) -> np.ndarray:
    """A table of next-token probabilities of which a beam of one, of two and of all find different sequences."""
    while True:
        table = dice.dirichlet(np.full(tokens, 0.7), size=tokens)
        found = [beam_search(table, width, length) for width in (1, 2, tokens**length)]
        if found[0] != found[1] and table.min() > 1e-3:
            return table


def _sequence_point(what: str, found: object, wanted: list[int], table: np.ndarray) -> Point:
    if not isinstance(found, list) or len(found) != len(wanted):
        return Point(False, f"{what}: {short(found)} is no list of {len(wanted)} tokens", "leave out the first 0")
    if found == wanted:
        return Point(True, f"{what}: right")
    try:
        yours = f"{found} (log-probability {total(table, found):.3f})"
    except (TypeError, ValueError, IndexError):
        return Point(False, f"{what}: {short(found)} are no tokens from 0 to {len(table) - 1}")
    hint = "of all continuations of all kept sequences keep the `size` likeliest; add logarithms, or multiply probabilities"
    return Point(False, f"{what}: you have {yours}, it is {wanted} ({total(table, wanted):.3f})", hint)


def _check_alpha(answer: Answer) -> Iterator[Point]:
    found = answer.value("ALPHA")
    if not isinstance(found, int | float) or isinstance(found, bool):
        yield Point(False, f"ALPHA: {short(found)} is no number", "one of 0, 0.25, 0.5, 0.75, 1")
        return
    short_one, long_one = -2.5 / (8 / 6) ** found, -3.2 / (13 / 6) ** found
    scores = f"at {found:g} the short one scores {short_one:.3f} and the long one {long_one:.3f}"
    hint = "the least of the five at which the long one scores higher"
    yield expect("ALPHA", found == 0.75, scores, hint)


DECODING = Exercise(
    """1. Write beam(table, size, length): beam search in a model whose next token depends on the last one only.
   table[last][next] is a probability (a NumPy array); the last token at the beginning is 0. Keep the
   `size` likeliest sequences at every step, and return the likeliest one of exactly `length` tokens, as
   a list, without the 0 that it begins behind. With a size of 1 this is greedy search.

2. The short hypothesis has 3 tokens and the log-probability -2.5, the long one 8 tokens and -3.2.
   Scores are divided by ((5 + length) / 6) ** alpha. What is the least alpha of 0, 0.25, 0.5, 0.75, 1
   at which the long one wins? ALPHA.

Check it with: regard course check 12""",
    """
import math


def beam(table, size, length):
    return None


ALPHA = None
""",
    (_check_beam, _check_alpha),
)

# --- 13: tokens


def count_pairs(words: Sequence[Sequence[str]]) -> Counter[tuple[str, str]]:
    """How often each pair stands side by side, inside words."""
    return Counter(pair for word in words for pair in pairwise(word))


def joined(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """The pieces with the pair joined wherever it stands, from the left."""
    found: list[str] = []
    rest = list(pieces)
    while rest:
        both = tuple(rest[:2]) == pair
        found.append("".join(rest[:2]) if both else rest[0])
        rest = rest[2:] if both else rest[1:]
    return found


WORDS = (("hug", "pug", "pun", "bun", "hugs"), ("aaa", "aab", "b"))


def _check_counts(answer: Answer) -> Iterator[Point]:
    for words in WORDS:
        cut = [list(word) for word in words]
        found, wanted = answer.call("pairs", cut), dict(count_pairs(cut))
        what = f"pairs of {list(words)}"
        if not isinstance(found, dict):
            yield Point(False, f"{what}: {short(found)} is no dictionary", "such as {('h', 'u'): 2, ...}")
            return
        across = Counter(pairwise([piece for word in cut for piece in word]))
        hint = (
            "no pair reaches from one word into the next"
            if found == dict(across)
            else "every pair of neighbours, in every word"
        )
        differs = next((pair for pair in {**wanted, **found} if found.get(pair, 0) != wanted.get(pair, 0)), None)
        wrong = f"of {differs} you have {found.get(differs, 0)}, it is {wanted.get(differs, 0)}" if differs else ""
        yield expect(what, differs is None, wrong, hint)


def _check_join(answer: Answer) -> Iterator[Point]:
    cases = (("hugs", "u", "g"), ("aaaa", "a", "a"), ("aaab", "a", "a"), ("bun", "u", "g"))
    for word, left, right in cases:
        found, wanted = answer.call("join", list(word), left, right), joined(list(word), (left, right))
        wrong = f"you have {short(found)}, it is {wanted}"
        hint = "from the left, and go on behind what you have joined: a a a a becomes aa aa"
        yield expect(f"join({list(word)}, {left!r}, {right!r})", found == wanted, wrong, hint)


TOKENS = Exercise(
    """Two functions are all that byte-pair encoding needs, here on letters.

1. Write pairs(words): words is a list of words, each a list of pieces, such as [["h", "u", "g"], ["b",
   "u", "n"]]. Return a dictionary from each pair of pieces that stand side by side, a tuple such as
   ("h", "u"), to how often it does. No pair reaches from one word into the next.

2. Write join(pieces, left, right): the list of pieces in which left and right, wherever they stand side
   by side, are one piece. From the left: ["a", "a", "a"] with "a" and "a" becomes ["aa", "a"].

Check it with: regard course check 13""",
    """
def pairs(words):
    return None


def join(pieces, left, right):
    return None
""",
    (_check_counts, _check_join),
)

# --- 14: language models

TEXT = ("the", "cat", "sat", "down")


def _check_next(answer: Answer) -> Iterator[Point]:
    for tokens in (list(TEXT), ["a", "b"]):
        found = answer.call("next_token", tokens)
        wanted = [[["<s>", *tokens[:place]], token] for place, token in enumerate(tokens)]
        wrong = f"you have {short(found)}, it begins with {short(wanted[:2])}"
        hint = "one pair for each token: all that stands before it, <s> first, and the token itself"
        if isinstance(found, list) and any(isinstance(each, list) and len(each) == 2 and each[0] and each[1] in each[0][-1:]
                                           for each in found):  # fmt: skip
            hint = "a model must not see the token that it has to say"
        yield expect(f"next_token({tokens})", found == wanted, wrong, hint)


def _check_masked(answer: Answer) -> Iterator[Point]:
    for tokens, places in ((list(TEXT), [1]), (list(TEXT), [0, 3])):
        found = answer.call("masked", tokens, places)
        seen = ["[MASK]" if place in places else token for place, token in enumerate(tokens)]
        wanted = [seen, {place: tokens[place] for place in places}]
        wrong = f"you have {short(found)}, it is {short(wanted)}"
        hint = (
            "two things: the tokens with [MASK] at those places, and a dictionary from each place to what stood there"
        )
        yield expect(f"masked({tokens}, {places})", found == wanted, wrong, hint)


def _check_perplexity(answer: Answer) -> Iterator[Point]:
    for shares in ([0.5, 0.25, 0.125], [0.1, 0.9], [1.0]):
        nats = -sum(math.log(each) for each in shares) / len(shares)
        mistakes = (
            Mistake(nats, "that is the mean negative log-probability; raise e to it"),
            Mistake(len(shares) / sum(shares), "the mean is of logarithms, not of probabilities"),
            Mistake(math.exp(nats * len(shares)), "divide the sum by how many tokens there are"),
        )
        found = answer.call("perplexity", shares)
        yield compare(f"perplexity({shares})", found, math.exp(nats), "exp(-mean of log p)", mistakes)


LANGUAGE = Exercise(
    """1. Write next_token(tokens): what a GPT learns from a text. A list of pairs (seen, wanted), one for each
   token: seen is the list of all tokens before it, beginning with "<s>", wanted the token itself. For
   ["a", "b"]: [(["<s>"], "a"), (["<s>", "a"], "b")].

2. Write masked(tokens, places): what a BERT learns from. Two things: the list of tokens with "[MASK]"
   at each of the places (from 0), and a dictionary from each of these places to the token that stood
   there.

3. Write perplexity(probabilities): exp of the mean of -log p, over the probabilities that a model gave
   to the tokens that came.

Check it with: regard course check 14""",
    """
import math


def next_token(tokens):
    return None


def masked(tokens, places):
    return None


def perplexity(probabilities):
    return None
""",
    (_check_next, _check_masked, _check_perplexity),
)
