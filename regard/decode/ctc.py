"""From frames that each tell a token or nothing (CTC, Graves et al. 2006) to texts: greedy, prefix beam, and alignment.

A path has one symbol for each frame, tokens or the blank; its text is what is left when repeats are joined and blanks are
taken out. All functions take log-probabilities (T, V) of one row, as NumPy has them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Told:
    """A text, and the logarithm of the probability of all paths that tell it (of those that the search kept)."""

    ids: Ids
    log_probability: float


def collapse(path: np.ndarray, blank: int) -> Ids:
    """The text of a path: repeats joined, blanks taken out."""
    kept = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]])) if len(path) else path
    return tuple(int(symbol) for symbol in path[kept] if symbol != blank)


def greedy(frames: np.ndarray, blank: int) -> Told:
    """The text of the likeliest path, with the probability of that one path."""
    best = frames.argmax(axis=1)
    return Told(collapse(best, blank), float(frames.max(axis=1).sum()))


def prefix_beam(frames: np.ndarray, beam: int, blank: int, tokens: int = 40) -> list[Told]:
    """The likeliest texts, best first (Hannun et al. 2014, algorithm 1): of each frame the `tokens` likeliest are tried.

    A prefix has two probabilities: of its paths that end in a blank, behind which a repeat is a new token, and of the others.
    """
    nothing = (-math.inf, -math.inf)
    beams: dict[Ids, tuple[float, float]] = {
        (): (0.0, -math.inf)
    }  # prefix -> (ends in a blank, ends in its last token)
    for frame in frames:
        tried = [int(token) for token in np.argsort(-frame)[:tokens] if token != blank]
        after: dict[Ids, tuple[float, float]] = defaultdict(lambda: nothing)
        for prefix, (blanks, others) in beams.items():
            either = np.logaddexp(blanks, others)
            was = after[prefix]
            stays = others + frame[prefix[-1]] if prefix else -math.inf  # the last token goes on
            after[prefix] = float(np.logaddexp(was[0], either + frame[blank])), float(np.logaddexp(was[1], stays))
            for token in tried:
                longer, before = (*prefix, token), blanks if prefix and prefix[-1] == token else either
                was = after[longer]
                after[longer] = was[0], float(np.logaddexp(was[1], before + frame[token]))
        possible = [(prefix, both) for prefix, both in after.items() if max(both) > -math.inf]
        beams = dict(sorted(possible, key=lambda each: -np.logaddexp(*each[1]))[:beam])
    return [Told(prefix, float(np.logaddexp(*both))) for prefix, both in beams.items()]


def log_probability(frames: np.ndarray, ids: Ids, blank: int) -> float:
    """log p(ids | frames), over all paths: the forward sums (Graves et al. 2006, eq. 6 to 8)."""
    symbols, skips = _symbols(ids, blank)
    sums = np.full(len(symbols), -math.inf)
    sums[0] = 0.0  # before the first frame
    for number, frame in enumerate(frames):
        one, two = _behind(sums, 1), np.where(skips, _behind(sums, 2), -math.inf)
        before = np.logaddexp(np.logaddexp(sums, one), two) if number else _first(len(symbols))
        sums = before + frame[symbols]
    return float(np.logaddexp.reduce(sums[-2:])) if len(frames) else (0.0 if not ids else -math.inf)


def align(frames: np.ndarray, ids: Ids, blank: int) -> np.ndarray:
    """Which of `ids` each frame tells on the likeliest path of this text; -1 where it tells none: (T,).

    An empty array where the text has no room in the frames.
    """
    symbols, skips = _symbols(ids, blank)
    best, came = _first(len(symbols)), list[np.ndarray]()
    for number, frame in enumerate(frames):
        ways = np.stack([best, _behind(best, 1), np.where(skips, _behind(best, 2), -math.inf)])  # (3, symbols)
        choice = ways.argmax(axis=0) if number else np.zeros(len(symbols), dtype=np.int64)
        came.append(choice)
        best = np.take_along_axis(ways, choice[None], axis=0)[0] + frame[symbols]
    if not len(frames) or not np.isfinite(best[-2:]).any():
        return np.zeros(0, dtype=np.int64)
    state = len(symbols) - 1 - int(len(symbols) > 1 and best[-2] > best[-1])
    path = np.full(len(frames), -1, dtype=np.int64)
    for number in range(len(frames) - 1, -1, -1):
        path[number] = state // 2 if state % 2 else -1
        state -= int(came[number][state])
    return path


def spans(path: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The first frame and the one behind the last of each of `count` tokens, in an alignment."""
    return [(int(at[0]), int(at[-1]) + 1) for at in (np.flatnonzero(path == token) for token in range(count))]


def _symbols(ids: Ids, blank: int) -> tuple[np.ndarray, np.ndarray]:
    """The text with blanks before, between and behind, and which symbols a path may reach without the blank before them."""
    symbols = np.full(2 * len(ids) + 1, blank)
    symbols[1::2] = ids
    skips = np.zeros(len(symbols), dtype=bool)
    skips[3::2] = symbols[3::2] != symbols[1:-2:2]
    return symbols, skips


def _first(count: int) -> np.ndarray:
    """A path begins with the first blank or the first token."""
    return np.where(np.arange(count) < 2, 0.0, -math.inf)


def _behind(values: np.ndarray, places: int) -> np.ndarray:
    return np.concatenate([np.full(min(places, len(values)), -math.inf), values[:-places]])[: len(values)]
