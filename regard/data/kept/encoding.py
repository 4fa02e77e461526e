"""Ids in arrays: the kind of number they fit into, what stands around each sequence, and the keys of what is made of texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from regard.data.kept.cache import digest_of_parts


def fitting(size: int) -> str:
    """The smallest kind of number that the ids of a vocabulary of this size fit into."""
    return "<u2" if size <= 2**16 else "<u4"


def with_ends(ids: np.ndarray, lengths: np.ndarray, head: Sequence[int], tail: Sequence[int]) -> np.ndarray:
    """Sequences one after the other, each with the same ids before and behind it."""
    around = len(head) + len(tail)
    starts = np.cumsum(lengths + around) - lengths - around
    found = np.empty(len(ids) + around * len(lengths), dtype=ids.dtype)
    for place, value in enumerate(head):
        found[starts + place] = value
    for place, value in enumerate(tail):
        found[starts + len(head) + lengths + place] = value
    found[np.repeat(starts + len(head) - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(ids))] = ids
    return found


def key_of(data: str, *how: object) -> str:
    """The key of what is made of data that are kept; "" if they are not."""
    return digest_of_parts(data, *how) if data else ""


def digest_text(text: str) -> str:
    """A digest of a tokenizer, by the text that it is written down as."""
    return hashlib.sha256(text.encode()).hexdigest()
