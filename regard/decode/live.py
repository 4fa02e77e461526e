"""The hypotheses of a search that go on, and what each source asked for: NumPy arrays by row, since the books are small.

Sources come and go. Whatever belongs to one is a row of an array, so that those that go on are taken, and those that come
are put behind, without an object for each hypothesis. Rows may have different lengths and options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.decode.config import DecodeConfig

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Objects = NDArray[np.object_]
Stops = Callable[[list[int]], bool]
Penalty = Callable[[int], float]

NUMBERS = 64  # random numbers that are drawn at once for a sample
NO_TOKEN = -1  # behind the end of a hypothesis that is shorter than others


class ByRow:
    """A dataclass of arrays whose first axis is the source."""

    def take(self, rows: Ints) -> Self:
        """Those of some rows."""
        return replace(self, **{name: array[rows] for name, array in self._arrays()})  # type: ignore[type-var]

    def joined(self, other: Self) -> Self:
        """Those of both, the others behind."""
        both = zip(self._arrays(), other._arrays(), strict=True)
        return replace(self, **{name: np.concatenate([own, theirs]) for (name, own), (_, theirs) in both})  # type: ignore[type-var]

    def _arrays(self) -> list[tuple[str, NDArray[Any]]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]  # type: ignore[arg-type]


def gnmt_penalty(length: int, alpha: float) -> float:
    """((5 + |Y|) / 6)^alpha (Wu et al. 2016, eq. 14)."""
    return ((5 + length) / 6) ** alpha


def power_penalty(length: int, alpha: float) -> float:
    """|Y|^alpha; alpha = 1 ranks by the mean log-probability of a token."""
    return float(length**alpha)


def no_penalty(length: int, alpha: float) -> float:
    return 1.0


# |Y| counts the end token, so that the empty sequence has a length too.
PENALTIES: dict[str, Callable[[int, float], float]] = {
    "gnmt": gnmt_penalty,
    "power": power_penalty,
    "none": no_penalty,
}


@dataclass(frozen=True)
class Wants(ByRow):
    """What each source asked for; every field is (B,)."""

    limits: Ints  # most tokens, end not counted
    min_length: Ints
    drawn: Bools  # tokens are drawn at random; if not, the likeliest are searched for
    temperature: Floats
    top_k: Ints
    top_p: Floats
    min_p: Floats
    seeds: Objects  # int
    streams: Objects  # int: what tells sources of one seed apart
    first_sample: Ints  # number of the first of its samples
    n_best: Ints
    enough: Ints  # ended sequences after which an early search stops; 0: it stops when nothing can win any more
    penalties: Objects  # Penalty
    stops: Objects  # Stops | None
    scored: Bools  # log-probabilities are needed: for whoever asked, or to choose by

    @cached_property
    def any_drawn(self) -> bool:
        return bool(self.drawn.any())

    @cached_property
    def any_scored(self) -> bool:
        return bool(self.scored.any())

    @cached_property
    def all_scored(self) -> bool:
        return bool(self.scored.all())

    @cached_property
    def any_enough(self) -> bool:
        return bool(self.enough.any())

    @cached_property
    def any_stops(self) -> bool:
        return any(each is not None for each in self.stops)

    @classmethod
    def of(
        cls,
        options: Sequence[DecodeConfig],
        limits: Sequence[int],
        streams: Sequence[int],
        stops: Sequence[Stops | None],
        first_samples: Sequence[int] = (),
    ) -> Wants:
        """The wishes of sources with these options, one each."""

        def each(read: Callable[[DecodeConfig], object], kind: type = np.int64) -> NDArray[Any]:
            return np.array([read(one) for one in options], dtype=kind)

        return cls(
            limits=np.array(limits, dtype=np.int64),
            min_length=each(lambda one: one.min_length),
            drawn=each(lambda one: one.sample, np.bool_),
            temperature=each(lambda one: one.temperature, np.float64),
            top_k=each(lambda one: one.top_k),
            top_p=each(lambda one: one.top_p, np.float64),
            min_p=each(lambda one: one.min_p, np.float64),
            seeds=_objects([one.seed for one in options]),
            streams=_objects(streams),
            first_sample=np.array(first_samples or [0] * len(options), dtype=np.int64),
            n_best=each(lambda one: one.n_best),
            enough=each(lambda one: one.beam if one.stopping == "early" and not one.sample else 0),
            penalties=_objects([_penalty_of(one) for one in options]),
            stops=_objects(stops),
            scored=each(lambda one: one.scores or one.sample or one.beam > 1, np.bool_),
        )


def _penalty_of(options: DecodeConfig) -> Penalty:
    penalty, alpha = PENALTIES[options.length_penalty], options.alpha
    return lambda length: penalty(length, alpha)


def _objects(items: Sequence[object]) -> Objects:
    found = np.empty(len(items), dtype=np.object_)
    found[:] = list(items)
    return found


@dataclass(frozen=True)
class Live:
    """The hypotheses that go on: W for each of B sources. A total of -inf marks an empty place."""

    sources: Ints  # (B,) the number of each source: for `generate`, its place in the batch
    wants: Wants  # of each source
    lengths: Ints  # (B,) tokens that each source has written
    samples: Ints  # (B, W) which sample of its source each one is (a beam has no use for it)
    ids: Ints  # (B, W, T) without prefix; T is the greatest length, and behind shorter ones stands `NO_TOKEN`
    log_probs: Floats  # (B, W, T) of each id
    totals: Floats  # (B, W) their sums
    numbers: Floats  # (B, samples, NUMBERS) random numbers between 0 and 1, for the tokens of each sample

    @classmethod
    def beginning(cls, sources: Sequence[int], wants: Wants, width: int) -> Live:
        """W hypotheses for each source, still without a token."""
        shape = (len(sources), width)
        samples = np.tile(np.arange(width), (len(sources), 1))  # (B, W)
        numbers = np.zeros((*shape, NUMBERS if wants.any_drawn else 0))
        ids, lengths = np.zeros((*shape, 0), np.int64), np.zeros(len(sources), np.int64)
        numbered = np.array(sources, dtype=np.int64)
        return cls(numbered, wants, lengths, samples, ids, np.zeros((*shape, 0)), np.zeros(shape), numbers)

    @property
    def length(self) -> int:
        """The greatest length."""
        return self.ids.shape[2]

    def extended(self, rows: Ints, parents: Ints, ids: Ints, log_probs: Floats, totals: Floats) -> Live:
        """The hypotheses one token on: row i continues row `rows[i]`, place w there continues place `parents[i, w]`.

        Rows are increasing.
        """
        whole = len(rows) == len(self.sources)
        in_place = whole and self.samples.shape[1] == parents.shape[1] == 1  # every parent is 0, as in greedy search
        at = ... if in_place else (rows[:, None], parents)  # (B', W')
        lengths = self.lengths if whole else self.lengths[rows]
        longest = int(lengths.max(initial=0))
        level = int(lengths.min(initial=longest)) == longest
        return Live(
            sources=self.sources if whole else self.sources[rows],
            wants=self.wants if whole else self.wants.take(rows),
            lengths=lengths + 1,
            samples=self.samples[at],
            ids=_appended(self.ids[at], ids, lengths, longest, level, NO_TOKEN),
            log_probs=_appended(self.log_probs[at], log_probs, lengths, longest, level, 0),
            totals=totals,
            numbers=self.numbers if whole else self.numbers[rows],
        )

    def take(self, rows: Ints) -> Live:
        """Only some of the sources."""
        longest = int(self.lengths[rows].max(initial=0))
        return Live(
            sources=self.sources[rows],
            wants=self.wants.take(rows),
            lengths=self.lengths[rows],
            samples=self.samples[rows],
            ids=self.ids[rows, :, :longest],
            log_probs=self.log_probs[rows, :, :longest],
            totals=self.totals[rows],
            numbers=self.numbers[rows],
        )

    def joined(self, other: Live) -> Live:
        """The hypotheses of both, the other's behind; where one has fewer for each source, its places stay empty."""

        def both(name: str, empty: float) -> NDArray[Any]:
            return _stacked(getattr(self, name), getattr(other, name), empty)

        return Live(
            sources=both("sources", 0),
            wants=self.wants.joined(other.wants),
            lengths=both("lengths", 0),
            samples=both("samples", 0),
            ids=both("ids", NO_TOKEN),
            log_probs=both("log_probs", 0.0),
            totals=both("totals", -np.inf),
            numbers=both("numbers", 0.0),
        )


def _appended(
    so_far: NDArray[Any], newest: NDArray[Any], lengths: Ints, longest: int, level: bool, empty: float
) -> NDArray[Any]:
    """(B, W, T) with the newest (B, W) at the end of each row, which is as long as `lengths` (B,) says; `level`: all alike."""
    if level:
        return np.concatenate([so_far[..., :longest], newest[..., None]], axis=2)  # (B, W, T + 1)
    longer = np.full((*newest.shape, longest + 1), empty, dtype=so_far.dtype)
    longer[..., :longest] = so_far[..., :longest]
    longer[np.arange(len(lengths)), :, lengths] = newest
    return longer


def _stacked(own: NDArray[Any], theirs: NDArray[Any], empty: float) -> NDArray[Any]:
    """Rows of both, the other axes as long as the longer of the two."""
    shape = np.maximum(own.shape[1:], theirs.shape[1:])
    found = np.full((len(own) + len(theirs), *shape), empty, dtype=own.dtype)
    for rows, array in ((slice(None, len(own)), own), (slice(len(own), None), theirs)):
        found[(rows, *(slice(None, size) for size in array.shape[1:]))] = array
    return found
