"""Documents -> arrays of ids: many short ones at once, a long one piece by piece, cut where that changes no token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from regard.data.kept.cache import Keep, Progress, find_kept, keep_at_once, no_progress
from regard.data.kept.copies import Arrays, Items, Work
from regard.data.kept.encoding import digest_text, fitting, key_of, with_ends
from regard.data.kept.journal import Build, Column, Kept, State
from regard.data.kept.ragged import Ragged
from regard.data.kept.ranks import Order, shared_out
from regard.data.text_sets import DocumentRows, TextSets, kept_documents
from regard.errors import RegardError
from regard.tokens import TextTokenizer
from regard.tokens.encoder import Encoder

TOGETHER = 10_000  # documents encoded at once, at most
LONG = 1 << 18  # bytes of documents encoded at once; the library takes some 200 bytes for each


def encode_documents(
    sets: TextSets,
    tokenizer: TextTokenizer,
    around: tuple[Sequence[int], Sequence[int]],
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
) -> tuple[Ragged, Ragged, Kept]:
    """The training and the validation documents as ids, each with the same ids before and behind it; none is empty."""
    key = partial(key_of, sets.key, "documents", digest_text(tokenizer.text), *map(list, around))
    found = keep("tokens", key, partial(_write_documents, sets, tokenizer, around, progress))
    train, valid = (Ragged(found.arrays[name], found.arrays[f"{name}_lengths"]) for name in ("train", "valid"))
    return train, valid, found


def _write_documents(
    sets: TextSets,
    tokenizer: TextTokenizer,
    around: tuple[Sequence[int], Sequence[int]],
    progress: Progress,
    build: Build,
) -> State:
    state = build.state or {"set": 0, "document": 0, "byte": 0, "ids": 0}
    total = int(sets.train.sizes.sum() + sets.valid.sizes.sum()) // 10**6
    counts = []
    for number, (name, rows) in enumerate((("train", sets.train), ("valid", sets.valid))):
        ids = build.column(name, fitting(tokenizer.last + 1))
        lengths = build.column(f"{name}_lengths", "<u8")
        writer = DocumentWriter(rows, tokenizer, around, ids, lengths, (sets.key, name))
        before = number * int(sets.train.sizes.sum())
        for place in writer.write(state) if state["set"] == number else ():
            build.commit({"set": number, **place})
            done = int(rows.starts[place["document"]] - rows.starts[0]) if place["document"] < len(rows) else 0
            progress("encoding text (MB)", (before + done + place["byte"]) // 10**6, total)
        if state["set"] == number:
            state = {"set": number + 1, "document": 0, "byte": 0, "ids": 0}
        counts.append(len(ids.values()))
    if not counts[0] or (len(sets.valid) and not counts[1]):
        raise RegardError("there are no tokens to write", "give more text")
    return {"counts": f"{counts[0]:,} and {counts[1]:,} tokens", "made_of": sets.key}


@dataclass(frozen=True)
class Piece:
    """Some whole documents, or a part of a long one, and from where to go on behind it."""

    first: int  # document
    count: int  # of documents; 0: it is a part of one
    document: int  # from which one goes on behind it,
    byte: int  # and from which byte of it
    part: str = ""
    begins: bool = False  # whether the part is the first of its document
    ends: bool = False


def encoding_again(
    key: str, name: str, tokenizer: str, head: list[int], tail: list[int], document: int, byte: int
) -> tuple[Items[Piece], Work[Piece]] | None:
    """The work of `DocumentWriter.write`, in a process that helps; None if it does not see the documents."""
    found = find_kept(key)
    if found is None:
        return None
    some = Documents(kept_documents(found, name), TextTokenizer.of(tokenizer), (head, tail))
    return partial(some.pieces, document, byte), some.encoded


class DocumentWriter:
    """Writes the ids of documents: many short ones at once, a long one piece by piece. `where` they are kept, if they are."""

    def __init__(
        self,
        rows: DocumentRows,
        tokenizer: TextTokenizer,
        around: tuple[Sequence[int], Sequence[int]],
        ids: Column,
        lengths: Column,
        where: tuple[str, str] = ("", ""),
    ) -> None:
        self.rows, self.documents = rows, Documents(rows, tokenizer, around)
        self.ids, self.lengths = ids, lengths
        self.where, self._words = where, (tokenizer.text, *map(list, around))

    def write(self, state: State) -> Iterator[State]:
        """Write from a state on, and yield the states from which this can be taken up again."""
        place = state["document"], state["byte"]
        pieces, many = partial(self.documents.pieces, *place), int(self.rows.sizes[place[0] :].sum()) // LONG
        order = partial(Order, "encode documents", (*self.where, *self._words, *place)) if self.where[0] else None
        count = state["ids"]
        for piece, (ids, lengths) in shared_out(pieces, self.documents.encoded, many, order):
            self.ids.append(ids)
            count += len(ids)
            if piece.count or piece.ends:
                self.lengths.append(lengths if piece.count else np.array([count] if count else []))
                count = 0
            yield {"document": piece.document, "byte": piece.byte, "ids": count}


class Documents:
    """Documents in the pieces that are each encoded at once."""

    def __init__(
        self, rows: DocumentRows, tokenizer: TextTokenizer, around: tuple[Sequence[int], Sequence[int]]
    ) -> None:
        self.rows, self.encode, (self.head, self.tail) = rows, Encoder(tokenizer), around

    def pieces(self, document: int, at: int) -> Iterator[Piece]:
        """The pieces that are each encoded at once, from a byte of a document on."""
        sizes = self.rows.sizes
        while document < len(self.rows):
            if sizes[document] > LONG:
                yield from self._parts(document, at)
                document += 1
            else:
                most = np.searchsorted(
                    np.cumsum(np.minimum(sizes[document : document + TOGETHER], 2 * LONG)), LONG, "right"
                )
                count = max(1, int(most))
                yield Piece(document, count, document + count, 0)
                document += count
            at = 0

    def _parts(self, document: int, at: int) -> Iterator[Piece]:
        """A long document in parts, from byte `at` on."""
        size, held, end, begins = int(self.rows.sizes[document]), "", at, not at
        while end < size:
            block, end = self.rows.block(document, end, LONG)
            held += block
            if end < size and (cut := self.encode.cut(held)) is not None:
                part, held = held[: cut[0]], held[cut[1] :]
                yield Piece(document, 0, document, end - len(held.encode()), part, begins)
                begins = False
        yield Piece(document, 0, document + 1, 0, held, begins, ends=True)

    def encoded(self, piece: Piece) -> Arrays:
        """The ids of a piece, with those that stand around documents, and how many each of its whole documents has."""
        if not piece.count:
            ids, _ = self.encode([piece.part])
            around = (self.head if piece.begins else (), ids, self.tail if piece.ends else ())
            return np.concatenate([np.asarray(each, dtype=np.uint32) for each in around]), np.empty(0, dtype=np.int64)
        ids, lengths = self.encode(self.rows[piece.first : piece.first + piece.count])
        full = lengths > 0 if not self.head and not self.tail else np.ones(len(lengths), dtype=bool)  # none is empty
        ids = with_ends(ids, lengths[full], self.head, self.tail)
        return ids, lengths[full] + len(self.head) + len(self.tail)
