"""Which column a text looks like, told by its letters alone: naive Bayes over character trigrams, learned from the columns.

Cavnar & Trenkle 1994 tell languages by such n-grams. Nothing is known of languages beforehand: the two columns are the
two classes. A row is judged by a model that did not see it (five folds, by the hash of the row, so that equal rows are in
one fold), and where the model cannot tell the columns apart on rows it did not see, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FOLDS = 5
BUCKETS = 1 << 17  # of hashed trigrams
TOLD = 0.9  # share of texts that must look like their own column, for the model to be believed
SURE = 12.0  # log-odds from which on a text looks like a column; trigrams overlap, so that these are about 4 in truth
SMOOTH = 0.5
LONGEST = 500  # characters of a text that are looked at


@dataclass(frozen=True)
class Looks:
    """The log-odds of each text to be of the first column, by rows: (N,) for each column."""

    first: np.ndarray
    second: np.ndarray

    @property
    def accuracy(self) -> float:
        """The share of texts that look like their own column."""
        return float(((self.first > 0).mean() + (self.second < 0).mean()) / 2)


class TwoLanguages:
    """The trigrams of two columns."""

    def __init__(self, pairs: Sequence[tuple[str, ...]], folds: np.ndarray) -> None:
        counts = np.stack([_counts([pair[side] for pair in pairs], folds) for side in (0, 1)])  # (2, folds, buckets)
        others = counts.sum(axis=1, keepdims=True) - counts + SMOOTH  # without the fold itself
        logs = np.log(others / others.sum(axis=2, keepdims=True))
        self._odds = (logs[0] - logs[1]).astype(np.float32)  # (folds, buckets)

    def looks(self, pairs: Sequence[tuple[str, ...]], folds: np.ndarray) -> Looks:
        """The log-odds of the texts of some rows, each by the model without its fold."""
        sides = []
        for side in (0, 1):
            grams, rows = _trigrams([pair[side] for pair in pairs])
            sides.append(np.bincount(rows, self._odds[folds[rows], grams], minlength=len(pairs)))
        return Looks(*sides)


def fold_of(hashes: np.ndarray) -> np.ndarray:
    """The fold of each row."""
    return (hashes % np.uint64(FOLDS)).astype(np.int64)


def swapped(looks: Looks) -> np.ndarray:
    """The rows whose sides both look like the other column."""
    return (looks.first < -SURE) & (looks.second > SURE)


def one_language(looks: Looks) -> np.ndarray:
    """The rows whose sides look like one column: something is not translated, or into another language."""
    source, target = (looks.first > SURE) & (looks.second > SURE), (looks.first < -SURE) & (looks.second < -SURE)
    return source | target


def _counts(texts: Sequence[str], folds: np.ndarray) -> np.ndarray:
    """How often each trigram comes in each fold: (folds, buckets)."""
    grams, rows = _trigrams(texts)
    found = np.bincount(folds[rows] * BUCKETS + grams, minlength=FOLDS * BUCKETS)
    return found.reshape(FOLDS, BUCKETS)


def _trigrams(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The bucket of each trigram of each text, its ends marked by spaces, and the row of each."""
    marked = [f" {text[:LONGEST].casefold()} " for text in texts]
    lengths = np.array([len(text) for text in marked], dtype=np.int64)
    letters = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    codes = letters[:-2] * np.uint64(2654435761) ^ letters[1:-1] * np.uint64(40503) ^ letters[2:] * np.uint64(97)
    codes = codes * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(47)  # 17 bits
    rows = np.repeat(np.arange(len(texts)), lengths)
    inside = rows[:-2] == rows[2:]  # a trigram that reaches into the next text is none
    return codes[inside].astype(np.int64), rows[:-2][inside]
