"""Batches of labelled texts of like length under a token budget. Batch i of epoch e is a pure function of the seed.

Trees are given of words and used of tokens. The begin token is the root of each: the text's own roots hang on it, and so
does the end token. A word's first token hangs on the first of its head, its further tokens on its own first, and white
space on the word before. Of a text that was cut, a word whose head is lost hangs on the nearest ancestor that is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from regard.data.batch import LabelBatch, label_batch
from regard.data.batches import padding_of, plan_by_length
from regard.errors import RegardError
from regard.tokens import TextTokenizer


class Trees(Protocol):
    """For each text the place of every token's head."""

    def __getitem__(self, row: int, /) -> np.ndarray: ...


class LabelBatches:
    """`batches.get(epoch, index)`. A batch holds at most `batch_tokens` tokens, padding included.

    `texts` are ids with all their special tokens, `labels` the number of each text's label, and `segments`, if texts
    are pairs, has 0 for the tokens of the first text and 1 for those of the second; `heads` are their trees, if known.
    """

    def __init__(
        self,
        texts: list[np.ndarray],
        labels: np.ndarray,
        pad: int,
        batch_tokens: int,
        seed: int,
        segments: list[np.ndarray] | None = None,
        heads: Trees | None = None,
    ) -> None:
        if len(texts) != len(labels):
            raise RegardError(f"{len(texts)} texts and {len(labels)} labels; each text has one label")
        self.texts, self.labels, self.pad, self.segments, self.heads = texts, labels, pad, segments, heads
        self.batch_tokens, self.seed = batch_tokens, seed
        self._lengths = np.array([len(ids) for ids in texts])
        if self._lengths.max(initial=0) > batch_tokens:
            raise RegardError(
                f"a text has {self._lengths.max()} tokens and a batch only {batch_tokens}; raise train.batch_tokens or "
                "lower data.max_length"
            )
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the rows of each batch

    def __len__(self) -> int:
        return len(self.texts)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> LabelBatch:
        return self.take(self.plan(epoch)[index])

    def take(self, rows: Sequence[int] | np.ndarray) -> LabelBatch:
        segments = None if self.segments is None else [self.segments[i] for i in rows]
        heads = None if self.heads is None else [self.heads[int(i)] for i in rows]
        texts, labels = [self.texts[i] for i in rows], [int(self.labels[i]) for i in rows]
        return label_batch(texts, labels, self.pad, segments, heads)

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        return padding_of(self.plan(0), self._lengths)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.batch_tokens, (self.seed, epoch))


def with_trees(
    batches: LabelBatches, texts: Sequence[str], heads: Sequence[tuple[int, ...] | None], tokenizer: TextTokenizer
) -> LabelBatches:
    """The batches with the trees of their texts, where all have one; `heads` are those of words."""
    given = [tree for tree in heads if tree is not None]
    if len(given) < len(heads) or not given:
        return batches
    trees = TokenTrees(texts, given, [len(ids) for ids in batches.texts], tokenizer)
    rest = (batches.pad, batches.batch_tokens, batches.seed, batches.segments)
    return LabelBatches(batches.texts, batches.labels, *rest, trees)


class TokenTrees:
    """`trees[row]`: for each token the place of its head, worked out when it is first asked for."""

    def __init__(
        self,
        texts: Sequence[str],
        heads: Sequence[tuple[int, ...]],
        lengths: Sequence[int],
        tokenizer: TextTokenizer,
    ) -> None:
        self.texts, self.heads, self.lengths, self.tokenizer = texts, heads, lengths, tokenizer
        self._known: dict[int, np.ndarray] = {}
        self[0]  # where tokens do not fit words, it is said at once

    def __getitem__(self, row: int, /) -> np.ndarray:
        if row not in self._known:
            spans = self.tokenizer.spans(self.texts[row])
            self._known[row] = token_heads(self.texts[row], self.heads[row], spans, self.lengths[row])
        return self._known[row]


def token_heads(text: str, heads: Sequence[int], spans: Sequence[tuple[int, int]], length: int) -> np.ndarray:
    """The heads of a row of `length` tokens: begin, as many as fit of those with these places in the text, end."""
    words = np.array([match.span() for match in re.finditer(r"\S+", text)]).reshape(-1, 2)
    found = np.zeros(length, dtype=np.int32)
    if not len(words) or length <= 2:
        return found
    owner, inside = _owners(words, np.array(spans[: length - 2]), text)
    first = np.full(len(words), 0)  # where the first token of each word stands; 0 if it has none
    first[owner[inside][::-1]] = np.flatnonzero(inside)[::-1] + 1  # of several, the last assigned stays
    found[1:-1] = np.where(owner < 0, 0, first[owner])
    has = first > 0
    found[first[has]] = _hung(np.asarray(heads), first)[has]
    return found


def _owners(words: np.ndarray, spans: np.ndarray, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The word of each token, or the last before it (-1: none), and whether the token is part of it."""
    owner = np.searchsorted(words[:, 0], spans[:, 1], side="left") - 1  # the last word that begins before a token's end
    inside = (owner >= 0) & (words[owner, 1] > spans[:, 0])
    several = (owner > 0) & (words[owner - 1, 1] > spans[:, 0])
    if several.any():
        start, end = spans[several.argmax()]
        raise RegardError(
            f"{text[start:end]!r} is one token, but two words of a tree; choose tokens inside words, as tokens.kind = space"
        )
    return owner, inside


def _hung(heads: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Where each word's head stands: the nearest of its ancestors that has a token, else 0, the begin token."""
    up = heads.copy()
    while (lost := (first[up] == 0) & (heads[up] != up)).any():
        up[lost] = heads[up[lost]]
    return np.where(heads == np.arange(len(heads)), 0, first[up])
