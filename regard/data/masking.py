"""Texts with hidden tokens, for masked language models (Devlin et al. 2019, section 3.1 and appendix A.1).

Of each sequence 15% of the tokens are to be guessed: 80% of these are shown as [MASK], 10% as a random token, and 10% as
they are. With pairs, a sequence has two texts, and half of the time the second does not follow the first but comes from
another document: "next sentence prediction". Everything is drawn anew in each epoch, as a pure function of the seed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from regard.data.batch import MaskedBatch, pad
from regard.data.batches import generator, padding_of, plan_by_length
from regard.data.kept.ragged import Ragged
from regard.data.planned import Planned
from regard.errors import RegardError, UsageError
from regard.tokens import TextTokenizer

MASKED, RANDOM = 0.8, 0.1  # of the tokens to be guessed; the others are shown as they are
Span = tuple[int, int, int]  # a document, and from which to before which of its tokens


@dataclass(frozen=True, eq=False)
class Hidden:
    """What was drawn for a batch."""

    places: np.ndarray  # (B, S), bool: what must be guessed
    instead: np.ndarray  # (B, S): the ids that are shown in the place of others; -1: what is there
    segments: np.ndarray  # (B, S): 0 in the first text, 1 in the second


class MaskedBatches:
    """`batches.get(epoch, index)`. A batch holds at most `batch_tokens` tokens, padding included.

    Documents (token ids without special ones) are cut into chunks of nearly equal length that fit into a sequence of
    `length` tokens: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with `pairs`. Here `begin` is [CLS] and `end` is [SEP].
    """

    def __init__(
        self,
        documents: Sequence[np.ndarray],
        *,
        begin: int,
        end: int,
        mask: int,
        pad: int,
        vocabulary: int,
        special: Collection[int],
        length: int,
        batch_tokens: int,
        seed: int,
        rate: float = 0.15,
        pairs: bool = False,
    ) -> None:
        self.documents = documents = Ragged.of(
            [ids for ids in documents if len(ids)] if isinstance(documents, list) else documents
        )
        self.pairs, self.seed, self.rate = pairs, seed, rate
        self.begin, self.end, self.mask, self.pad = begin, end, mask, pad
        self.ordinary = np.setdiff1d(np.arange(vocabulary), np.array(sorted(special), dtype=np.int64))
        self.batch_tokens = batch_tokens
        self._check(length)
        room = length - (3 if pairs else 2)
        self.chunks = chunks_of(documents.lengths, room)
        if pairs:
            self.chunks = self.chunks[self.chunks[:, 2] - self.chunks[:, 1] >= 2]
            self._by_length = np.argsort(documents.lengths, kind="stable")
            self._rank = np.argsort(self._by_length)  # of each document
            self._sorted = documents.lengths[self._by_length]
        if not len(self.chunks):
            raise RegardError("there is no text to hide tokens of", "give more text")
        self._sizes = self.chunks[:, 2] - self.chunks[:, 1] + length - room
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the chunks of each batch

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> MaskedBatch:
        return self.planned(epoch, index).whole()

    def planned(self, epoch: int, index: int) -> Planned[MaskedBatch]:
        """The batch: what is to be guessed is drawn for all of it, by lengths alone; texts are read as they are asked for."""
        random = generator(self.seed, epoch, index + 1)  # with 0, the key would be that of the plan
        chunks = self.chunks[self.plan(epoch)[index]].tolist()
        follows = None
        if not self.pairs:
            texts: list[tuple[Span, Span | None]] = [((number, start, stop), None) for number, start, stop in chunks]
        else:
            drawn = [self._pair(chunk, random) for chunk in chunks]
            texts = [(first, second) for first, second, _ in drawn]
            follows = torch.tensor([int(each) for _, _, each in drawn])
        hidden = self._hidden(texts, random)
        count = int(hidden.places.sum())
        counts = {"loss": count, "nll": count} | ({} if follows is None else {"next": len(texts)})
        return Planned(len(texts), counts, lambda first, end: self._rows(texts, hidden, follows, slice(first, end)))

    def padding_share(self) -> float:
        """The share of padding among all positions of the first epoch."""
        return padding_of(self.plan(0), self._sizes)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_by_length((self._sizes,), self._sizes, self.batch_tokens, (self.seed, epoch))

    def _joined(self, first: Span, second: Span | None) -> np.ndarray:
        """The ids of a sequence with its special tokens."""
        ids = [self.begin, *self._text(first), self.end]
        return np.array(ids if second is None else [*ids, *self._text(second), self.end])  # (S,)

    def _text(self, span: Span) -> np.ndarray:
        number, start, stop = span
        return self.documents[number][start:stop]

    def _pair(self, chunk: Sequence[int], random: np.random.Generator) -> tuple[Span, Span, bool]:
        """A chunk cut in two somewhere in its middle half; or its first part and as much of another document."""
        number, start, stop = chunk
        size = stop - start
        cut = start + int(random.integers(max(1, size // 4), size - max(1, size // 4) + 1))
        follows = bool(random.random() < 0.5)
        second = (number, cut, stop) if follows else self._elsewhere(number, stop - cut, random)
        return (number, start, cut), second, follows

    def _elsewhere(self, number: int, size: int, random: np.random.Generator) -> Span:
        """`size` tokens of another document, or a whole shorter one where no other is long enough."""
        first, rank = int(np.searchsorted(self._sorted, size)), int(self._rank[number])
        if len(self._by_length) - first - (rank >= first) == 0:
            first = 0
        place = first + int(random.integers(len(self._by_length) - first - (rank >= first)))
        other = int(self._by_length[place + (first <= rank <= place)])  # not the document itself
        whole = int(self.documents.lengths[other])
        start = int(random.integers(max(1, whole - size + 1)))
        return other, start, min(start + size, whole)

    def _hidden(self, texts: Sequence[tuple[Span, Span | None]], random: np.random.Generator) -> Hidden:
        """Choose what is to be guessed of each sequence, at least one token, and what the model sees there."""
        firsts = np.array([stop - start + 2 for (_, start, stop), _ in texts])  # begin, text, end
        lengths = firsts + np.array([0 if second is None else second[2] - second[1] + 1 for _, second in texts])
        at = np.arange(int(lengths.max()))
        segments = ((at >= firsts[:, None]) & (at < lengths[:, None])).astype(np.int64)  # (B, S)
        text = _text_places(lengths, segments if self.pairs else None)
        places = choose(text, self.rate, random)  # (B, S)
        shown = random.random(places.shape)
        instead = np.full(places.shape, -1)
        instead[places & (shown < MASKED)] = self.mask
        changed = places & (shown >= MASKED) & (shown < MASKED + RANDOM)
        instead[changed] = random.choice(self.ordinary, size=int(changed.sum()))
        return Hidden(places, instead, segments)

    def _rows(
        self,
        texts: Sequence[tuple[Span, Span | None]],
        hidden: Hidden,
        follows: torch.Tensor | None,
        some: slice,
    ) -> MaskedBatch:
        """Some rows of a batch: their texts are read, and what is to be guessed is hidden."""
        true, lengths = pad([self._joined(*each) for each in texts[some]], self.pad, hidden.places.shape[1])  # (B, S)
        instead, places = torch.from_numpy(hidden.instead[some]), torch.from_numpy(hidden.places[some])
        segments = torch.from_numpy(hidden.segments[some]) if self.pairs else None
        ids = torch.where(instead >= 0, instead, true)
        return MaskedBatch(ids, lengths, places, true[places], segments, None if follows is None else follows[some])

    def _check(self, length: int) -> None:
        least = 6 if self.pairs else 3
        if length < least:
            raise RegardError(f"sequences of {length} tokens are too short", f"raise data.context to {least} or more")
        if length > self.batch_tokens:
            raise RegardError(
                f"a sequence has up to {length} tokens and a batch only {self.batch_tokens}",
                "raise train.batch_tokens or lower data.context",
            )
        if self.pairs and len(self.documents) < 2:
            raise RegardError(
                "pairs of texts need two documents or more", "give more files, or model.next_sentence=false"
            )
        if not len(self.ordinary):
            raise RegardError("every token of the vocabulary is special", "there is none to put in place of another")


def choose(text: np.ndarray, rate: float, random: np.random.Generator) -> np.ndarray:
    """Choose a share of `rate`, at least one, of the places in each row that are `text` (B, S), all equally likely."""
    counts = np.maximum(1, np.rint(rate * text.sum(axis=1))).astype(np.int64)  # (B,)
    drawn = np.where(text, random.random(text.shape), np.inf)  # what is not text comes last
    ranks = drawn.argsort(axis=1).argsort(axis=1)  # (B, S)
    return text & (ranks < counts[:, None])


def chunks_of(sizes: np.ndarray, room: int) -> np.ndarray:
    """Consecutive chunks of at most `room` tokens of documents, as equal in length as can be: (N, 3), document, start, stop."""
    sizes = np.asarray(sizes, dtype=np.int64)
    pieces = -(-sizes // room)
    number = np.repeat(np.arange(len(sizes)), pieces)
    piece = np.arange(len(number)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts, stops = (sizes[number] * (piece + each) // pieces[number] for each in (0, 1))
    return np.stack([number, starts, stops], axis=1)


def _text_places(lengths: np.ndarray, segments: np.ndarray | None) -> np.ndarray:
    """Where ordinary tokens stand (B, S): not the first place, not the last, not the end of the first text."""
    width = int(lengths.max())
    at = np.arange(width)
    text = (at > 0) & (at < lengths[:, None] - 1)
    if segments is not None:
        first = (segments == 0) & (at < lengths[:, None])
        text &= at != first.sum(axis=1, keepdims=True) - 1
    return text


def masked_batches(tokenizer: TextTokenizer, documents: Sequence[np.ndarray], **options: Any) -> MaskedBatches:
    """Batches of documents that a tokenizer made; `options` are those of `MaskedBatches` that it does not know."""
    special = tokenizer.specials
    if special.mask is None:
        raise UsageError("the tokenizer has no [MASK]", "models that fill gaps need one")
    return MaskedBatches(
        documents,
        begin=special.begin,
        end=special.end,
        mask=special.mask,
        pad=special.pad,
        vocabulary=tokenizer.size,
        special=special.all,
        **options,
    )
