"""What can be measured of where heads looked in one text: weight on some keys, breadth, alignment, distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from regard.tokens.words import Words, is_special

OFFSETS = 8  # to each side, in the picture of a head's offsets
FEWEST = 4  # keys that a query must see for its breadth to mean something

Sums = tuple[np.ndarray, float, int]  # of each head (H,), of an even map, and over how many queries


@dataclass(frozen=True, eq=False)
class WordLinks:
    """Words of a target and a source, as pieces, and which of them belong together: (source word, target word)."""

    rows: Words
    columns: Words
    links: AbstractSet[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Looked:
    """Where the heads of one attention looked in one text."""

    weights: np.ndarray  # (H, T, S), nothing where it was not allowed
    allowed: np.ndarray  # (T, S)
    rows: Sequence[str]
    columns: Sequence[str]
    links: WordLinks | None = None
    crosses: bool = False  # rows are of another text than columns, even one that reads the same

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The place of each query (T, 1) and of each key (1, S)."""
        return np.arange(len(self.rows))[:, None], np.arange(len(self.columns))[None]


def on_keys(keys: Callable[[Looked], np.ndarray], looked: Looked) -> Sums | None:
    """The weight on some keys, over the queries that can see one of them and something else."""
    chosen = keys(looked) & looked.allowed  # (T, S)
    some, all_ = chosen.sum(axis=1), looked.allowed.sum(axis=1)  # (T,)
    asked = (some > 0) & (some < all_) & ~flags(looked.rows, is_special)
    if not asked.any():
        return None
    value = np.einsum("hts,ts->h", looked.weights[:, asked], chosen[asked])
    return value, float((some[asked] / all_[asked]).sum()), int(asked.sum())


def breadth(looked: Looked) -> Sums | None:
    """The entropy of a row, divided by that of an even row."""
    sees = looked.allowed.sum(axis=1)
    asked = (sees >= FEWEST) & ~flags(looked.rows, is_special)
    if not asked.any():
        return None
    weights = looked.weights[:, asked]
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=-1)  # (H, T)
    return (entropy / np.log(sees[asked])).sum(axis=1), 0.0, int(asked.sum())


def alignment(looked: Looked, late: int = 0) -> Sums | None:
    """How many target words have their most attended source word among those that they are linked to.

    Rows of a map write their words; `late` 1 asks where the query looks that has just read the word. The weight of a
    word is the sum over its pieces, and the mean over the pieces of who looks. Special tokens are no words.
    """
    if looked.links is None or not looked.links.links:
        return None
    rows, columns, links = looked.links.rows, looked.links.columns, looked.links.links
    linked = np.zeros((len(rows), len(columns)), dtype=bool)
    linked[[t for _, t in links], [s for s, _ in links]] = True
    mean, add = np.zeros((len(rows), len(looked.rows))), np.zeros((len(looked.columns), len(columns)))
    for number, word in enumerate(rows):
        mean[number, [place + late for place in word if place + late < len(looked.rows)]] = 1 / len(word)
    for number, word in enumerate(columns):
        add[list(word), number] = 1
    best = (mean @ looked.weights @ add).argmax(axis=-1)  # (H, target words)
    asked = linked.any(axis=1)
    hits = linked[np.arange(len(rows)), best][:, asked]  # (H, asked)
    return hits.sum(axis=1).astype(float), float(linked[asked].mean(axis=1).sum()), int(asked.sum())


def offsets_of(looked: Looked | None, heads: int) -> np.ndarray:
    """Sums of weights, and counts, by distance from a query's own place (2, H, 2 * OFFSETS + 1).

    Between two texts of unlike length, a query's own place is the one as far through the other text.
    """
    sums = np.zeros((2, heads, 2 * OFFSETS + 1))
    if looked is None:
        return sums
    distance = looked.places[1] - own_place(looked)  # (T, S)
    asked = ~flags(looked.rows, is_special)[:, None] & looked.allowed & (np.abs(distance) <= OFFSETS)
    place = distance[asked] + OFFSETS
    for head in range(heads):
        sums[0, head] = np.bincount(place, looked.weights[head][asked], minlength=2 * OFFSETS + 1)
    sums[1] = np.bincount(place, minlength=2 * OFFSETS + 1)
    return sums


def own_place(looked: Looked) -> np.ndarray:
    """Where in the columns each query stands: (T, 1)."""
    rows, columns = len(looked.rows), len(looked.columns)
    return (
        np.arange(rows)[:, None] if rows == columns else np.rint(np.arange(rows) * columns / rows).astype(int)[:, None]
    )


def flags(labels: Sequence[str], of: Callable[[str], bool]) -> np.ndarray:
    """Of which labels something is true."""
    return np.array([of(label) for label in labels], dtype=bool)
