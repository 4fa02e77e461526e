"""Pieces joined into words on a map: what a word is looked at is the sum of its pieces, how it looks their mean.

With C (S, words) and R (words, T) of zeros and ones, and each row of R divided by the pieces of its word, the map A of
pieces becomes R A C. The sum of a row is the mean of its pieces' sums: where each of them is one, it is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from regard.tokens.words import Words, word_label, words_of

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

NOTE = "pieces joined into words: columns added up, rows averaged"


def into_words(map: AttentionMap) -> AttentionMap:
    """The map of words, with a note; a map of whole words is left as it is."""
    rows, columns = words_of(map.rows), words_of(map.columns)
    down, across = (
        tuple(word_label(labels, word) for word in words)
        for labels, words in ((map.rows, rows), (map.columns, columns))
    )
    if (len(down), len(across)) == (len(map.rows), len(map.columns)):
        return replace(map, rows=down, columns=across)
    return replace(map, weights=joined(map.weights, rows, columns), rows=down, columns=across, notes=(*map.notes, NOTE))


def rows_into_words(map: AttentionMap) -> AttentionMap:
    """Only the rows, where the columns are to be read as a text of pieces."""
    rows = words_of(map.rows)
    weights = joined(map.weights, rows, [(place,) for place in range(len(map.columns))])
    return replace(map, weights=weights, rows=tuple(word_label(map.rows, word) for word in rows))


def joined(weights: np.ndarray, rows: Words, columns: Words) -> np.ndarray:
    """Weights (..., T, S) of pieces as weights of words. A cell is masked where all its cells are; masked is zero.

    A piece that may look nowhere has no part in the mean of its word.
    """
    masked = np.isnan(weights)
    down, across = _members(rows), _members(columns).T  # (words, T), (S, words)
    sums = down @ np.where(masked, 0.0, weights) @ across
    looking = down @ (~masked).any(axis=-1)[..., None]  # (..., words, 1): pieces that look anywhere
    seen = down @ (~masked) @ across > 0
    return np.where(seen, sums / np.maximum(looking, 1), np.nan)


def _members(words: Words) -> np.ndarray:
    """One where a piece belongs to a word: (words, pieces)."""
    found = np.zeros((len(words), sum(map(len, words))))
    for number, word in enumerate(words):
        found[number, list(word)] = 1.0
    return found
