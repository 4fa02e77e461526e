"""Which texts are held out of training: a hash of the text decides, so that equal texts stay together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from regard.errors import RegardError

LEAST = 5  # different texts of which some can be held out
ENOUGH = 10_000  # texts among which there are so many different ones, as a rule
MANY = 0.01  # share of rows that repeat others from which on it is told, as `regard data check` warns
CHUNK = 1 << 20  # hashes looked up at once


def hash_of(text: str) -> int:
    """A number below 2⁶⁴ that depends on nothing but the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def hashes_of(texts: Iterable[str]) -> np.ndarray:
    """The number of each text: (N,), uint64."""
    digests = b"".join([hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def held_rows(hashes: np.ndarray, most: int, what: str) -> np.ndarray:
    """Which of these texts are held out: (N,), bool. A tenth, or about `most`."""
    different = len(np.unique(hashes[:ENOUGH]))
    if different < LEAST and (different := len(np.unique(hashes))) < LEAST:
        among = f" ({different} different)" if different < len(hashes) else ""
        raise RegardError(
            f"{len(hashes)} {what}{among} are too few to hold some out", "name a validation set (data.valid)"
        )
    limit = int(min(0.1, most / len(hashes)) * 2**64)
    least, greatest = int(hashes.min()), int(hashes.max())
    return hashes < np.uint64(min(greatest, max(least + 1, limit)))  # of a few, chance alone may hold out none, or all


def overlap(train: Iterable[str], other: Iterable[str], which: str, what: str = "sentences") -> list[str]:
    """A warning when texts that should be unseen occur in training."""
    seen, asked = (hashes_of(text.strip() for text in texts) for texts in (train, other))
    return overlap_note(occur_in(asked, seen), which, what)


def overlap_note(known: np.ndarray, which: str, what: str = "sentences") -> list[str]:
    """The warning that some of the texts that should be unseen are `known` (N,), bool."""
    if not known.any():
        return []
    return [f"warning: {known.sum():,} of {len(known):,} {which} {what} also occur in training; scores on them flatter"]


def occur_in(asked: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Which of the asked hashes are among those seen, which may be mapped and many: (N,), bool."""
    order = np.unique(asked)
    found = np.zeros(len(order), dtype=bool)
    for start in range(0, len(seen) if len(order) else 0, CHUNK):
        some = seen[start : start + CHUNK]
        places = np.minimum(np.searchsorted(order, some), len(order) - 1)
        found[places[order[places] == some]] = True
    return found[np.searchsorted(order, asked)] if len(order) else np.zeros(len(asked), dtype=bool)


def repeats_note(hashes: np.ndarray, what: str) -> list[str]:
    """A note where many rows are there more than once."""
    repeated = len(hashes) - len(np.unique(hashes))
    if repeated < MANY * len(hashes):
        return []
    return [
        f"{repeated:,} of {len(hashes):,} training {what} ({repeated / len(hashes):.1%}) repeat others word for word"
    ]


def among(hashes: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Which of many hashes, which may be mapped, are among some that are sorted: (N,), bool."""
    found = np.zeros(len(hashes), dtype=bool)
    for start in range(0, len(hashes) if len(some) else 0, CHUNK):
        part = hashes[start : start + CHUNK]
        found[start : start + CHUNK] = some[np.minimum(np.searchsorted(some, part), len(some) - 1)] == part
    return found


def apart_note(left_out: int, total: int, name: str, what: str) -> list[str]:
    """A note of what a further corpus has of validation and test."""
    told = f"{name}: left out {left_out:,} of {total:,} {what}, which are validated or tested on"
    return [told] if left_out else []


def digest_of_hashes(hashes: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(hashes, dtype="<u8").tobytes()).hexdigest()
