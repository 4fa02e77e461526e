"""Does attention align words as people do? Alignment error rate against links drawn by hand.

Och & Ney 2003, "A systematic comparison of various statistical alignment models", eq. 4: people mark *sure* links S
and *possible* links P (S is part of P), and a predicted alignment A has

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

so that a missed sure link and a link that nobody thought possible are both errors. 0 is best, 1 is worst.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import numpy as np

from regard.errors import RegardError

# (source, target) within a sentence. For a corpus put the sentence's number in front, (sentence, source, target):
# the rate of a corpus is the rate of all its links, not the mean of its sentences' rates.
Link = tuple[int, ...]


def alignment_error_rate(predicted: Set[Link], sure: Set[Link], possible: Set[Link]) -> float:
    """AER of the predicted links, in [0, 1]. Sure links count as possible even where `possible` leaves them out."""
    if not predicted and not sure:
        return 0.0  # nothing was asked for and nothing was said: no error was made
    agreed = len(predicted & sure) + len(predicted & (possible | sure))
    return 1.0 - agreed / (len(predicted) + len(sure))


def hard_alignment(weights: np.ndarray) -> set[tuple[int, int]]:
    """One link (source, target) for each row of (T, S) weights: where that target position looks most.

    NaN marks masked cells; a row with nothing but NaN looks nowhere and gives no link. Of equals the first wins.
    """
    visible = ~np.isnan(weights)  # (T, S)
    best = np.where(visible, weights, -np.inf).argmax(axis=1)  # (T,)
    return {(int(source), target) for target, source in enumerate(best) if visible[target].any()}


Words = Sequence[str]
ROUNDS = 8  # the likelihood has only one summit; most links stand after five
LONGEST = 100  # words; a pair with a longer side is left out of learning
EMPTY = 0  # the number of the empty word


class Model1:
    """t(f | e), learned from pairs (e, f)."""

    def __init__(self, pairs: Sequence[tuple[Words, Words]], rounds: int = ROUNDS) -> None:
        pairs = [(e, f) for e, f in pairs if 0 < len(e) <= LONGEST and 0 < len(f) <= LONGEST]
        if not pairs:
            raise RegardError(f"an aligner learns from pairs of 1 to {LONGEST} words on each side, and there are none")
        self._e = _numbers((word for e, _ in pairs for word in e), first=EMPTY + 1)
        self._f = _numbers(word for _, f in pairs for word in f)
        codes = [self._codes(e, f) for e, f in pairs]  # each (m, l + 1)
        self._known, number = np.unique(np.concatenate([each.ravel() for each in codes]), return_inverse=True)
        sizes = np.repeat([each.shape[1] for each in codes], [len(each) for each in codes])  # of each word f_j
        self._t = _learn(self._known // len(self._f), number, sizes, rounds)

    def t(self, f: str, e: str | None) -> float:
        """t(f | e); None is the empty word. Words that never met have 0."""
        return float(self._table([] if e is None else [e], [f])[0, 0 if e is None else 1])

    def best(self, e: Words, f: Words) -> list[int | None]:
        """For each word of f the place of the word of e that it comes from; None: the empty word, or none it ever met."""
        table = self._table(e, f)  # (m, l + 1)
        found = table[:, 1:].argmax(axis=1) if len(e) else np.zeros(len(f), dtype=np.int64)
        found_t = table[:, 1:].max(axis=1, initial=0.0)
        kept = (found_t > 0) & (found_t >= table[:, 0])
        return [int(place) if keep else None for place, keep in zip(found, kept, strict=True)]

    def likelihoods(self, e: Words, f: Words) -> np.ndarray:
        """p(f_j | e), the mean of t(f_j | e_i) over the words of e and the empty one, of each word of f: (m,)."""
        return self._table(e, f).mean(axis=1)

    def _codes(self, e: Words, f: Words) -> np.ndarray:
        """A number for each meeting of a word of f with one of e, the empty one first: (m, l + 1); -1 for unknown words."""
        columns = np.array([EMPTY, *(self._e.get(word, -1) for word in e)])
        rows = np.array([self._f.get(word, -1) for word in f], dtype=np.int64)
        codes = columns[None] * len(self._f) + rows[:, None]
        return np.where((columns[None] < 0) | (rows[:, None] < 0), -1, codes)

    def _table(self, e: Words, f: Words) -> np.ndarray:
        """t(f_j | e_i): (m, l + 1)."""
        codes = self._codes(e, f)
        place = np.searchsorted(self._known, codes).clip(max=len(self._known) - 1)
        return np.where(self._known[place] == codes, self._t[place], 0.0)


class Aligner:
    """Links between the words of a source and a target on which both directions agree."""

    def __init__(self, pairs: Sequence[tuple[Words, Words]], rounds: int = ROUNDS) -> None:
        self.pairs = len(pairs)
        self._forth = Model1(pairs, rounds)
        self._back = Model1([(target, source) for source, target in pairs], rounds)

    def links(self, source: Words, target: Words) -> frozenset[tuple[int, int]]:
        """(place in the source, place in the target) of each link."""
        forth = {(s, t) for t, s in enumerate(self._forth.best(source, target)) if s is not None}
        back = {(s, t) for s, t in enumerate(self._back.best(target, source)) if t is not None}
        return frozenset(forth & back)


def _numbers(words: Iterable[str], first: int = 0) -> dict[str, int]:
    """A number for each different word, in the order in which they come."""
    return {word: number for number, word in enumerate(dict.fromkeys(words), start=first)}


def _learn(e: np.ndarray, number: np.ndarray, sizes: np.ndarray, rounds: int) -> np.ndarray:
    """t of each pair of words (U,), from 1 for all.

    e       the word e of each pair of words: (U,)
    number  the pair of words of each meeting (N,), meetings of one f_j side by side
    sizes   how many meetings each f_j has
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    t = np.ones(len(e))
    for _ in range(rounds):
        counts = t[number]  # (N,)
        counts /= np.repeat(np.add.reduceat(counts, starts), sizes)
        counts = np.bincount(number, counts, minlength=len(e))  # (U,)
        t = counts / np.bincount(e, counts)[e]
    return t
