"""Which texts are held out of training, and which stand where they should not: told by hashes, so that no text is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from regard.data.lines import LONGEST_LINE
from regard.errors import RegardError

LEAST = 5  # different texts of which some can be held out
ENOUGH = 10_000  # texts among which there are so many different ones, as a rule
MANY = 0.01  # share of rows that repeat others from which on it is told, as `regard data check` warns
CHUNK = 1 << 20  # hashes looked up at once
LINES = (
    0.1  # share of known lines from which on it is told; by chance and licences Penn Treebank has 0.017, Python 0.032
)
WORDS = 5  # of a line that is looked for; shorter ones come again without harm, as `regard data check` has it
NONE = np.empty(0, dtype=np.uint64)  # no hashes


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


def lines_in(blocks: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a text, block by block; one without an end is cut."""
    held = ""
    for block in chain(blocks, ("\n",)):
        *lines, held = (held + block).split("\n")
        if len(held) > LONGEST_LINE:
            lines, held = [*lines, held], ""
        yield lines


def line_hashes(lines: Iterable[str]) -> np.ndarray:
    """The hashes of the lines that have some words: (N,)."""
    return hashes_of(line.strip() for line in lines if len(line.split(None, WORDS - 1)) == WORDS)


# --- What should be unseen and is in training


def overlap(train: Iterable[str], other: Iterable[str], which: str, what: str = "sentences") -> list[str]:
    """A warning when texts that should be unseen occur in training."""
    seen, asked = (hashes_of(text.strip() for text in texts) for texts in (train, other))
    return overlap_note(occur_in(asked, [seen]), which, what)


def overlap_note(known: np.ndarray, which: str, what: str = "sentences", where: str = "training") -> list[str]:
    """The warning that some of the texts that should be unseen are `known` (N,), bool."""
    if not known.any():
        return []
    told = f"{known.sum():,} of {len(known):,} {which} {what} also occur in {where}"
    return [f"warning: {told}; scores on them flatter: take them out of training"]


def lines_note(known: np.ndarray, which: str = "validation", where: str = "training") -> list[str]:
    """The warning that many lines of a text that should be unseen are `known` (N,), bool."""
    if known.sum() < LINES * len(known):
        return []
    return overlap_note(known, which, f"lines of {WORDS} words or more", where)


def occur_in(asked: np.ndarray, seen: Iterable[np.ndarray]) -> np.ndarray:
    """Which of the asked hashes are among those seen, which come in parts: (N,), bool."""
    order = np.unique(asked)
    found = np.zeros(len(order), dtype=bool)
    for some in seen if len(order) else ():
        places = np.minimum(np.searchsorted(order, some), len(order) - 1)
        found[places[order[places] == some]] = True
    return found[np.searchsorted(order, asked)]


def in_parts(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Hashes, which may be mapped and many, some at a time."""
    return (hashes[start : start + CHUNK] for start in range(0, len(hashes), CHUNK))


def repeats_note(different: int, total: int, what: str) -> list[str]:
    """A note where many rows are there more than once."""
    repeated = total - different
    if repeated < MANY * total:
        return []
    return [f"{repeated:,} of {total:,} training {what} ({repeated / total:.1%}) repeat others word for word"]


def among(hashes: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Which of many hashes, which may be mapped, are among some that are sorted: (N,), bool."""
    if not len(some):
        return np.zeros(len(hashes), dtype=bool)
    found = [some[np.minimum(np.searchsorted(some, part), len(some) - 1)] == part for part in in_parts(hashes)]
    return np.concatenate([np.empty(0, dtype=bool), *found])


def digest_of_hashes(hashes: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(hashes, dtype="<u8").tobytes()).hexdigest()
