"""Sequences on their way and at their end. The books of a search are small, so they are NumPy arrays on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Hypothesis:
    """A sequence that has ended, with what the model itself thinks of it.

    Log-probabilities are the model's own, of its softmax over the whole vocabulary: neither filters nor temperature
    change them, so that scoring the same sequence by teacher forcing gives the same numbers.
    """

    ids: tuple[int, ...]  # without prefix and end
    score: float  # the log-probability divided by the length penalty: what ranks
    log_probability: float  # sum of the next field
    token_log_probabilities: tuple[float, ...]  # one for each id, then that of the end token
    finished: bool  # False: the length limit put the end token where the search would have gone on


@dataclass(frozen=True)
class Live:
    """The hypotheses that go on: W for each of B sources, all T tokens long. A total of -inf marks an empty place."""

    sources: Ints  # (B,) which of the sources given to `generate` each row is
    samples: Ints  # (B, W) which sample of its source each one is (a beam has no use for it)
    ids: Ints  # (B, W, T) without prefix
    log_probs: Floats  # (B, W, T) of each id
    totals: Floats  # (B, W) their sums

    @classmethod
    def beginning(cls, sources: int, width: int) -> Live:
        """W hypotheses for each source, still without a token."""
        shape = (sources, width)
        samples = np.tile(np.arange(width), (sources, 1))  # (B, W)
        return cls(np.arange(sources), samples, np.zeros((*shape, 0), np.int64), np.zeros((*shape, 0)), np.zeros(shape))

    @property
    def length(self) -> int:
        return self.ids.shape[2]

    def extended(self, rows: Ints, parents: Ints, ids: Ints, log_probs: Floats, totals: Floats) -> Live:
        """The hypotheses one token on: row i continues row `rows[i]`, place w there continues place `parents[i, w]`."""
        at = (rows[:, None], parents)  # (B', W')
        return Live(
            sources=self.sources[rows],
            samples=self.samples[at],
            ids=np.concatenate([self.ids[at], ids[..., None]], axis=2),  # (B', W', T + 1)
            log_probs=np.concatenate([self.log_probs[at], log_probs[..., None]], axis=2),  # (B', W', T + 1)
            totals=totals,
        )
