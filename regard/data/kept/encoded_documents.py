"""Documents -> arrays of ids: many short ones at once, a long one piece by piece, cut where that changes no token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from regard.data.kept.cache import Keep, Progress, keep_at_once, no_progress
from regard.data.kept.encoding import digest_text, fitting, key_of, with_ends
from regard.data.kept.journal import Build, Column, Kept, State
from regard.data.kept.ragged import Ragged
from regard.data.text_sets import DocumentRows, TextSets
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
        writer = DocumentWriter(rows, tokenizer, around, ids, build.column(f"{name}_lengths", "<u8"))
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


class DocumentWriter:
    """Writes the ids of documents: many short ones at once, a long one piece by piece."""

    def __init__(
        self,
        rows: DocumentRows,
        tokenizer: TextTokenizer,
        around: tuple[Sequence[int], Sequence[int]],
        ids: Column,
        lengths: Column,
    ) -> None:
        self.rows, self.encode, (self.head, self.tail) = rows, Encoder(tokenizer), around
        self.ids, self.lengths = ids, lengths

    def write(self, state: State) -> Iterator[State]:
        """Write from a state on, and yield the states from which this can be taken up again."""
        sizes, document = self.rows.sizes, state["document"]
        while document < len(self.rows):
            if sizes[document] > LONG:
                yield from self._long(document, state["byte"], state["ids"])
                document += 1
            else:
                most = np.searchsorted(
                    np.cumsum(np.minimum(sizes[document : document + TOGETHER], 2 * LONG)), LONG, "right"
                )
                count = max(1, int(most))
                self._short(document, count)
                document += count
            state = {"document": document, "byte": 0, "ids": 0}
            yield state

    def _short(self, first: int, count: int) -> None:
        """Write so many documents at once; one without ids is left out."""
        ids, lengths = self.encode(self.rows[first : first + count])
        full = lengths > 0 if not self.head and not self.tail else np.ones(len(lengths), dtype=bool)
        self.ids.append(with_ends(ids, lengths[full], self.head, self.tail))
        self.lengths.append(lengths[full] + len(self.head) + len(self.tail))

    def _long(self, document: int, at: int, count: int) -> Iterator[State]:
        """Write a document in pieces, from byte `at` on; `count` ids of it are written already."""
        size, held, end = int(self.rows.sizes[document]), "", at
        if not at:
            count += self._append(self.head)
        while end < size:
            block, end = self.rows.block(document, end, LONG)
            held += block
            if end < size and (cut := self.encode.cut(held)) is not None:
                count += self._append(self.encode([held[: cut[0]]])[0])
                held = held[cut[1] :]
                yield {"document": document, "byte": end - len(held.encode()), "ids": count}
        count += self._append(self.encode([held])[0]) + self._append(self.tail)
        self.lengths.append(np.array([count] if count else []))

    def _append(self, ids: Sequence[int] | np.ndarray) -> int:
        self.ids.append(np.asarray(ids, dtype=np.uint32))
        return len(ids)
