"""Batches of texts of like length under a token budget: pairs, and labelled texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from regard.data.batch import LabelBatch, PairBatch, label_batch, pair_batch
from regard.data.kept.ragged import lengths_of
from regard.data.pairs import dropped
from regard.data.planned import Planned
from regard.errors import RegardError
from regard.tokens import TextTokenizer

if TYPE_CHECKING:
    from regard.data.labelled_files import Labelled


REMEMBERED = 100_000  # trees that are kept in memory


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Encoded pairs: sources with their end token, targets with begin and end."""

    sources: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]
    fill: int

    def __len__(self) -> int:
        return len(self.sources)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens to read and tokens to predict of each pair."""
        return lengths_of(self.sources), lengths_of(self.targets) - 1

    def take(self, rows: Sequence[int] | np.ndarray, widths: tuple[int | None, int | None] = (None, None)) -> PairBatch:
        return pair_batch([self.sources[i] for i in rows], [self.targets[i] for i in rows], self.fill, widths)

    def keep(self, rows: np.ndarray) -> TokenPairs:
        return TokenPairs([self.sources[i] for i in rows], [self.targets[i] for i in rows], self.fill)


def filter_lengths(pairs: TokenPairs, max_length: int, max_ratio: float) -> tuple[TokenPairs, str | None]:
    """Drop pairs with a side too long or sides too unlike in length; one sentence on how many and why."""
    too_long, unlike = of_no_use(*pairs.lengths(), max_length, max_ratio)
    left_out = LeftOut(len(pairs), int(too_long.sum()), int(unlike.sum()))
    note = left_out.note(max_length, max_ratio)
    return (pairs if note is None else pairs.keep(np.flatnonzero(~too_long & ~unlike))), note


def of_no_use(
    read: np.ndarray, predicted: np.ndarray, max_length: int, max_ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs have a side too long, and which others have sides too unlike in length: each (N,), bool."""
    longer, shorter = np.maximum(read, predicted), np.minimum(read, predicted)
    too_long = longer > max_length
    return too_long, ~too_long & (longer > 10) & (longer > max_ratio * shorter)


@dataclass(frozen=True)
class LeftOut:
    """How many pairs there were, and how many were left out for their lengths."""

    pairs: int
    too_long: int
    unlike: int

    def note(self, max_length: int, max_ratio: float) -> str | None:
        """One sentence on how many and why; an error if none is left."""
        reasons = Counter(
            {f"a side over {max_length} tokens": self.too_long, f"a length ratio over {max_ratio:g}": self.unlike}
        )
        reasons += Counter()  # drops the zeros
        told = dropped("training", self.pairs, reasons)
        if self.too_long + self.unlike == self.pairs:
            longer = "raise data.max_length, and model.max_length where positions are learned"
            ways = [longer] if self.too_long else []
            ways += ["check that source and target are the columns you mean, or raise data.max_ratio"] * bool(
                self.unlike
            )
            raise RegardError(f"no training pair is left: {told}", f"{'; or '.join(ways) or 'add some'}")
        return told if reasons else None


class Batches:
    """`batches.get(epoch, index)`. A batch holds at most `budget` tokens on its larger side, padding included."""

    def __init__(self, pairs: TokenPairs, budget: int, seed: int) -> None:
        self.pairs, self.budget, self.seed = pairs, budget, seed
        self._read, self._predicted = pairs.lengths()
        self._size = np.maximum(self._read, self._predicted)
        if self._size.max(initial=0) > budget:
            raise RegardError(
                f"a pair has {self._size.max()} tokens and a batch only {budget}",
                "raise train.batch_tokens or lower data.max_length",
            )
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    def count(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def get(self, epoch: int, index: int) -> PairBatch:
        return self.planned(epoch, index).whole()

    def planned(self, epoch: int, index: int) -> Planned[PairBatch]:
        """The batch, whose pairs are read as they are asked for."""
        rows = self._plan(epoch)[index]
        read, predicted = self._read[rows], self._predicted[rows]
        widths, tokens = (int(read.max()), int(predicted.max()) + 1), int(predicted.sum(dtype=np.int64))
        counts = {"loss": tokens, "nll": tokens}
        return Planned(len(rows), counts, lambda first, end: self.pairs.take(rows[first:end], widths))

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        real = padded = 0
        for rows in self._plan(0):
            real += int(self._read[rows].sum(dtype=np.int64) + self._predicted[rows].sum(dtype=np.int64))
            padded += len(rows) * int(self._read[rows].max() + self._predicted[rows].max())
        return 1 - real / padded

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._predicted, self._read), self._size, self.budget, (self.seed, epoch))


def generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on nothing but the key (NumPy pads a key with zeros: (1, 2) is (1, 2, 0))."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


def plan_by_length(
    lengths: tuple[np.ndarray, ...], size: np.ndarray, budget: int, key: tuple[int, int]
) -> list[np.ndarray]:
    """The rows of each batch of an epoch: rows of like length (the last of `lengths` first), batches in any order."""
    random = generator(*key)
    order = random.permutation(len(size))  # ties in length fall differently in each epoch
    order = order[np.lexsort([_narrow(length)[order] for length in lengths])]
    plan = cut_by_budget(order, size, budget)
    return [plan[i] for i in random.permutation(len(plan))]


def _narrow(lengths: np.ndarray) -> np.ndarray:
    """Lengths as 16 bits where they fit: these are sorted by their digits, four times as fast."""
    return lengths.astype(np.uint16) if lengths.max(initial=0) < 2**16 else lengths


def padding_of(plan: list[np.ndarray], lengths: np.ndarray) -> float:
    """The share of padding among all positions, where row i has `lengths[i]` real ones."""
    padded = sum(len(rows) * int(lengths[rows].max()) for rows in plan)
    return 1 - int(lengths.sum(dtype=np.int64)) / padded


def cut_by_budget(order: np.ndarray, size: np.ndarray, budget: int) -> list[np.ndarray]:
    """Consecutive rows of `order` in groups whose padded size (rows x longest) stays within the budget."""
    groups, start, sizes = [], 0, size[order]
    count = np.arange(1, budget + 2)
    while start < len(order):
        most = max(1, budget // max(1, int(sizes[start])))  # rows, if none is longer than the first
        longest = np.maximum.accumulate(sizes[start : start + most].astype(np.int64))
        over = longest * count[: len(longest)] > budget
        end = start + (int(over.argmax()) or 1 if over.any() else len(longest))
        groups.append(order[start:end])
        start = end
    return groups or [order]


class Trees(Protocol):
    """For each text the place of every token's head."""

    def __getitem__(self, row: int, /) -> np.ndarray: ...


class LabelBatches:
    """`batches.get(epoch, index)`. A batch holds at most `batch_tokens` tokens, padding included.

    `texts` are ids with all their special tokens, `labels` the number of each text's label, and `segments`, if texts
    are pairs, has 0 for the tokens of the first text and 1 for those of the second; `parents` are their trees, if known.
    """

    def __init__(
        self,
        texts: Sequence[np.ndarray],
        labels: np.ndarray,
        pad: int,
        batch_tokens: int,
        seed: int,
        segments: Sequence[np.ndarray] | None = None,
        parents: Trees | None = None,
    ) -> None:
        if len(texts) != len(labels):
            raise RegardError(f"{len(texts)} texts and {len(labels)} labels", "each text has one label")
        self.texts, self.labels, self.pad, self.segments, self.parents = texts, labels, pad, segments, parents
        self.batch_tokens, self.seed = batch_tokens, seed
        self._lengths = lengths_of(texts)
        if self._lengths.max(initial=0) > batch_tokens:
            raise RegardError(
                f"a text has {self._lengths.max()} tokens and a batch only {batch_tokens}",
                "raise train.batch_tokens or lower data.max_length",
            )
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the rows of each batch

    def __len__(self) -> int:
        return len(self.texts)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> LabelBatch:
        return self.take(self.plan(epoch)[index])

    def planned(self, epoch: int, index: int) -> Planned[LabelBatch]:
        """The batch, whose texts are read as they are asked for."""
        rows = self.plan(epoch)[index]
        lengths, count = self._lengths[rows], len(rows)
        counts = {"loss": count, "nll": count, "correct": count, "language": int(lengths.sum(dtype=np.int64)) - count}
        width = int(lengths.max())
        return Planned(count, counts, lambda first, end: self.take(rows[first:end], width))

    def take(self, rows: Sequence[int] | np.ndarray, width: int | None = None) -> LabelBatch:
        segments = None if self.segments is None else [self.segments[i] for i in rows]
        parents = None if self.parents is None else [self.parents[int(i)] for i in rows]
        texts, labels = [self.texts[i] for i in rows], [int(self.labels[i]) for i in rows]
        return label_batch(texts, labels, self.pad, segments, parents, width)

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        return padding_of(self.plan(0), self._lengths)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._lengths,), self._lengths, self.batch_tokens, (self.seed, epoch))


def with_trees(
    batches: LabelBatches, texts: Sequence[str], parents: Sequence[tuple[int, ...] | None], tokenizer: TextTokenizer
) -> LabelBatches:
    """The batches with the trees of their texts, where all have one; `parents` are those of words."""
    given = [tree for tree in parents if tree is not None]
    if len(given) < len(parents) or not given:
        return batches
    trees = TokenTrees(texts, given, lengths_of(batches.texts), tokenizer)
    rest = (batches.pad, batches.batch_tokens, batches.seed, batches.segments)
    return LabelBatches(batches.texts, batches.labels, *rest, trees)


class TokenTrees:
    """`trees[row]`: for each token the place of its head, worked out when it is first asked for."""

    def __init__(
        self,
        texts: Sequence[str],
        parents: Sequence[tuple[int, ...]],
        lengths: np.ndarray,
        tokenizer: TextTokenizer,
    ) -> None:
        self.texts, self.parents, self.lengths, self.tokenizer = texts, parents, lengths, tokenizer
        self._known: dict[int, np.ndarray] = {}
        self[0]  # where tokens do not fit words, it is said at once

    def __getitem__(self, row: int, /) -> np.ndarray:
        if row not in self._known:
            text = self.texts[row]
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            spans = self.tokenizer.spans(text)
            self._known[row] = token_parents(text, self.parents[row], spans, int(self.lengths[row]))
        return self._known[row]


def token_parents(text: str, parents: Sequence[int], spans: Sequence[tuple[int, int]], length: int) -> np.ndarray:
    """The parents of a row of `length` tokens: begin, as many as fit of those with these places in the text, end."""
    words = np.array([match.span() for match in re.finditer(r"\S+", text)]).reshape(-1, 2)
    found = np.zeros(length, dtype=np.int32)
    if not len(words) or length <= 2:
        return found
    owner, inside = _owners(words, np.array(spans[: length - 2]), text)
    first = np.full(len(words), 0)  # where the first token of each word stands; 0 if it has none
    first[owner[inside][::-1]] = np.flatnonzero(inside)[::-1] + 1  # of several, the last assigned stays
    found[1:-1] = np.where(owner < 0, 0, first[owner])
    has = first > 0
    found[first[has]] = _hung(np.asarray(parents), first)[has]
    return found


def _owners(words: np.ndarray, spans: np.ndarray, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The word of each token, or the last before it (-1: none), and whether the token is part of it."""
    owner = np.searchsorted(words[:, 0], spans[:, 1], side="left") - 1  # the last word that begins before a token's end
    inside = (owner >= 0) & (words[owner, 1] > spans[:, 0])
    several = (owner > 0) & (words[owner - 1, 1] > spans[:, 0])
    if several.any():
        start, end = spans[several.argmax()]
        raise RegardError(
            f"{text[start:end]!r} is one token, but two words of a tree",
            "choose tokens inside words, as tokens.kind = space",
        )
    return owner, inside


def _hung(parents: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Where each word's head stands: the nearest of its ancestors that has a token, else 0, the begin token."""
    up = parents.copy()
    while (lost := (first[up] == 0) & (parents[up] != up)).any():
        up[lost] = parents[up[lost]]
    return np.where(parents == np.arange(len(parents)), 0, first[up])


Row = tuple[np.ndarray, np.ndarray]  # ids, and to which text each belongs


def as_row(tokenizer: TextTokenizer, text: str, second: str | None, longest: int) -> Row:
    """[CLS] text [SEP], or [CLS] text [SEP] text [SEP], and to which text each token belongs; at most `longest` tokens."""
    special = tokenizer.specials
    first = tokenizer.encode(text)
    if second is None:
        ids = [special.begin, *first[: longest - 2], special.end]
        return np.array(ids, dtype=np.int32), np.zeros(len(ids), dtype=np.int32)
    other, room = tokenizer.encode(second), longest - 3
    while len(first) + len(other) > room:  # the longer one gives way
        (first if len(first) >= len(other) else other).pop()
    ids = [special.begin, *first, special.end, *other, special.end]
    segments = np.array([0] * (len(first) + 2) + [1] * (len(other) + 1), dtype=np.int32)
    return np.array(ids, dtype=np.int32), segments


def label_batches(
    rows: Sequence[Row], labels: np.ndarray, tokenizer: TextTokenizer, batch_tokens: int, seed: int
) -> LabelBatches:
    """Batches of these rows; segments only where there are second texts."""
    paired = any(segments[-1] for _, segments in rows)
    budget = max(batch_tokens, max(len(ids) for ids, _ in rows))
    segments = [segments for _, segments in rows] if paired else None
    return LabelBatches([ids for ids, _ in rows], labels, tokenizer.specials.pad, budget, seed, segments)


def encode_labelled(
    texts: Sequence[Labelled],
    labels: Sequence[str],
    tokenizer: TextTokenizer,
    longest: int,
    batch_tokens: int,
    seed: int,
) -> LabelBatches:
    """Batches of labelled texts; labels by their place in `labels`."""
    place = {label: number for number, label in enumerate(labels)}
    rows = [as_row(tokenizer, each.text, each.second, longest) for each in texts]
    return label_batches(rows, np.array([place[each.label] for each in texts]), tokenizer, batch_tokens, seed)
