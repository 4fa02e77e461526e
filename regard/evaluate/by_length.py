"""Scores by the length of the source, as in Bahdanau et al. 2015, figure 2: does a model hold up on long sentences?

A bucket's score is the corpus score of its sentences, not the mean of their own. Test sets have few long sentences, so
longer inputs can be made by joining neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import UsageError
from regard.evaluate.translation import CorpusScore, check_pairs, score_translations

MOST = 9  # buckets of even width before small ones are joined to a neighbour
LEAST = 30  # sentences of a bucket: with fewer, luck decides
LEAST_SHARE = 0.02  # and at least this share of all


@dataclass(frozen=True)
class Bucket:
    """Sentences whose source is from `low` to `high` long, both included."""

    low: int
    high: int
    mean: float  # length
    places: tuple[int, ...]  # of its sentences in the test set

    @property
    def label(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def source_lengths(sources: Sequence[str], characters: bool = False) -> list[int]:
    """In words between spaces, or in characters, for text whose tokens these are."""
    return [len(source) if characters else len(source.split()) for source in sources]


def buckets(lengths: Sequence[int], most: int = MOST, least: int | None = None) -> list[Bucket]:
    """Every sentence in one bucket: even widths, a round number, and a bucket with too few joins its smaller neighbour."""
    if not lengths:
        return []
    least = max(LEAST, math.ceil(LEAST_SHARE * len(lengths))) if least is None else least
    found = _even(np.asarray(lengths), most)
    while len(found) > 1 and min(map(len, found)) < least:
        place = min(range(len(found)), key=lambda each: len(found[each]))
        beside = [each for each in (place - 1, place + 1) if 0 <= each < len(found)]
        other = min(beside, key=lambda each: len(found[each]))
        first, second = sorted((place, other))
        found[first : second + 1] = [np.concatenate([found[first], found[second]])]
    return [_bucket(places, lengths) for places in found]


def _even(lengths: np.ndarray, most: int) -> list[np.ndarray]:
    """Places by length, in steps of the smallest round width that needs no more than `most` of them."""
    span = int(lengths.max() - max(0, lengths.min() - 1))
    width = next(w * 10**power for power in range(9) for w in (1, 2, 3, 5) if span / (w * 10**power) <= most)
    numbers = (np.maximum(lengths, 1) - 1) // width  # 1 to 5, 6 to 10, ...
    return [np.flatnonzero(numbers == number) for number in sorted(set(numbers.tolist()))]


def _bucket(places: np.ndarray, lengths: Sequence[int]) -> Bucket:
    inside = [lengths[place] for place in places]
    return Bucket(min(inside), max(inside), sum(inside) / len(inside), tuple(sorted(int(place) for place in places)))


def score_bucket(
    bucket: Bucket,
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    resamples: int = 1000,
) -> CorpusScore:
    """BLEU of the bucket's sentences, with its 95% interval."""
    check_pairs(outputs, references)
    chosen, right = [outputs[place] for place in bucket.places], [references[place] for place in bucket.places]
    how = {"lowercase": lowercase, "tokenize": tokenize}
    return score_translations(chosen, right, metrics=("bleu",), resamples=resamples, **how)["bleu"]  # type: ignore[arg-type]


def join_pairs(pairs: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """Longer inputs: each `count` neighbours become one pair, joined by a space; a rest that is too short is left out."""
    if count < 2:
        raise UsageError(f"cannot join {count} to one", "join 2 or more")
    if len(pairs) < count:
        raise UsageError(f"cannot join {count} pairs of a test set that has {len(pairs)}", "join fewer")
    groups = [pairs[start : start + count] for start in range(0, len(pairs) - count + 1, count)]
    return [(" ".join(source for source, _ in group), " ".join(target for _, target in group)) for group in groups]
