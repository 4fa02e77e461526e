"""Which texts are held out of training: a hash of the text decides, so that equal texts stay together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from regard.errors import RegardError

Item = TypeVar("Item")
LEAST = 5  # different texts of which some can be held out


def hash_of(text: str) -> int:
    """A number below 2⁶⁴ that depends on nothing but the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def hold_out(
    items: list[Item], most: int, text: Callable[[Item], str], what: str = "pairs"
) -> tuple[list[Item], list[Item]]:
    """Split off a validation set of a tenth, or of about `most`, by a hash of each item's text."""
    hashes = [hash_of(text(item)) for item in items]
    different = len(set(hashes))
    if different < LEAST:
        among = f" ({different} different)" if different < len(items) else ""
        raise RegardError(
            f"{len(items)} {what}{among} are too few to hold some out", "name a validation set (data.valid)"
        )
    limit = int(min(0.1, most / len(items)) * 2**64)
    limit = min(max(hashes), max(min(hashes) + 1, limit))  # of a few texts, chance alone may hold out none, or all
    held = [each < limit for each in hashes]
    train = [item for item, out in zip(items, held, strict=True) if not out]
    valid = [item for item, out in zip(items, held, strict=True) if out]
    return train, valid


def overlap(train: Iterable[str], other: Iterable[str], which: str, what: str = "sentences") -> list[str]:
    """A warning when texts that should be unseen occur in training."""
    seen = {text.strip() for text in train}
    known = [text.strip() in seen for text in other]
    if not any(known):
        return []
    return [f"warning: {sum(known):,} of {len(known):,} {which} {what} also occur in training; scores on them flatter"]
