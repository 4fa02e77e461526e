"""Running text for training and validation: documents read once, in constant memory, and kept for all runs."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.config import find_file
from regard.data.batches import generator
from regard.data.config import TextConfig
from regard.data.corpora import apart_note, further_corpora
from regard.data.documents import blank_note, stream_documents
from regard.data.held_out import (
    NONE,
    among,
    digest_of_hashes,
    in_parts,
    line_hashes,
    lines_in,
    lines_note,
    occur_in,
    overlap_note,
    repeats_note,
)
from regard.data.kept.cache import (
    Keep,
    Progress,
    data_key,
    keep_at_once,
    no_progress,
    notes_as_json,
    notes_from_json,
    shared_out,
    size_of,
)
from regard.data.kept.copies import in_order, worker_count
from regard.data.kept.journal import Build, Column, Kept, State
from regard.data.kept.sequences import RowByRow
from regard.data.lines import text_size
from regard.data.mapped import MappedBytes
from regard.data.notation import tokens_for
from regard.errors import RegardError

FLUSH = 1 << 22  # bytes gathered before they are written
BLOCK = 1 << 20  # bytes read at once
STRETCH = 1 << 16  # bytes of a piece of text that is drawn for a sample
SAMPLE = 17  # the key of the stretches that a tokenizer learns from
START, END, HASH, CHARACTERS = range(4)  # columns of what is known of each document


class DocumentRows(RowByRow[str]):
    """Documents in one array of UTF-8, each from a start to an end: only what is taken is read."""

    def __init__(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        self.data, self.starts, self.ends = MappedBytes(data), np.asarray(starts), np.asarray(ends)

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, number: int) -> str:
        return self.data.read(int(self.starts[number]), int(self.ends[number])).decode()

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each document."""
        return (self.ends - self.starts).astype(np.int64)

    def block(self, row: int, at: int, size: int) -> tuple[str, int]:
        """The whole letters among `size` bytes of a document from byte `at` on, and at which byte they end."""
        start, end = int(self.starts[row]) + at, int(self.ends[row])
        text, used = codecs.utf_8_decode(self.data.read(start, min(end, start + size)), "strict", False)
        return text, at + used

    def lines(self) -> Iterator[np.ndarray]:
        """The hashes of the lines of all documents, some at a time."""
        workers = worker_count(int(self.sizes.sum()) // BLOCK)
        return (hashes for _, (hashes,) in in_order(self._lines, lambda lines: (line_hashes(lines),), workers))

    def _lines(self) -> Iterator[list[str]]:
        """The lines of all documents, some at a time."""
        held, size = list[str](), 0
        for lines in chain.from_iterable(lines_in(self.blocks(row)) for row in range(len(self))):
            held += lines
            size += sum(map(len, lines))
            if size >= BLOCK:
                yield held
                held, size = [], 0
        yield held

    def blocks(self, row: int) -> Iterator[str]:
        """A document, some of it at a time."""
        at, size = 0, int(self.sizes[row])
        while at < size:
            block, at = self.block(row, at, BLOCK)
            yield block

    def beginnings(self, letters: int) -> Iterator[str]:
        """The first letters of each document."""
        return (self.block(row, 0, 4 * letters)[0][:letters] for row in range(len(self)))

    def stretches(self, share: float) -> Iterator[str]:
        """Pieces of the documents, about a share of them, by a seeded draw."""
        draw = generator(SAMPLE)
        for row, size in enumerate(self.sizes.tolist()):
            for at in range(0, size, STRETCH):
                if draw.random() < share:
                    start = int(self.starts[row]) + at
                    yield self.data.read(start, start + min(STRETCH, size - at)).decode(errors="ignore")


class Unseen(NamedTuple):
    """Hashes of what is validated on, sorted."""

    documents: np.ndarray
    lines: np.ndarray  # of some words


@dataclass(frozen=True, eq=False)
class TextSets:
    """The documents of a run, and sentences for the person."""

    train: DocumentRows
    valid: DocumentRows
    notes: tuple[str, ...]
    characters: int  # to learn from
    unseen: Unseen
    key: str = ""  # under which they are kept; "": they are in memory
    different: np.ndarray = field(default_factory=lambda: NONE)  # hashes of the documents to learn from, sorted

    def sample(self, most: int) -> Iterator[str]:
        """Texts with about `most` characters for a tokenizer; all documents if they have no more."""
        if self.characters <= most:
            return iter(self.train)
        return self.train.stretches(most / self.characters)


def load_texts(
    config: TextConfig,
    data_root: Path | None = None,
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
    apart: Unseen | None = None,
) -> TextSets:
    """Training and validation documents as the configuration names them, without those of further corpora.

    Those of large files are kept, and mapped. A further corpus has no validation: the documents `apart` are left out, and it is
    told how many of the lines `apart` it has.
    """
    key, make = partial(_key, config, data_root, apart), partial(_gather, config, data_root, progress, apart)
    found = keep("texts", key, make)
    arrays, about = found.arrays, found.about
    train, valid = (kept_documents(found, name) for name in ("train", "valid"))
    lines, different = (arrays.get(name, NONE) for name in ("unseen_lines", "different"))  # an older entry lacks them
    unseen = Unseen(arrays["unseen"], lines)
    return TextSets(train, valid, notes_from_json(about["notes"]), about["characters"], unseen, found.key, different)


def kept_documents(found: Kept, name: str) -> DocumentRows:
    """The documents of an entry of the cache that are learned from ("train"), or validated on ("valid")."""
    return DocumentRows(found.arrays["text"], *found.arrays[name].T)


def further_texts(
    config: TextConfig, data_root: Path | None, main: TextSets, keep: Callable[[int], Keep], progress: Progress
) -> list[TextSets]:
    """The documents of the further corpora, without those that the main one validates on."""

    def load(table: TextConfig, kept: Keep, apart: Unseen) -> TextSets:
        return load_texts(table, data_root, kept, progress, apart)

    return further_corpora(config, main, load, keep, "documents")


def leak_notes(unseen: Unseen, learned: TextSets, which: str) -> list[str]:
    """Warnings that documents or lines of a validation text are among those that are learned from besides."""
    documents = occur_in(unseen.documents, in_parts(learned.different))
    lines = occur_in(unseen.lines, learned.train.lines())
    return [*overlap_note(documents, which, "documents"), *lines_note(lines, which)]


def sample_of(corpora: Sequence[TextSets], most: int) -> Iterator[str]:
    """Texts of all corpora with about `most` characters."""
    shares = shared_out(most, [each.characters for each in corpora])
    return chain.from_iterable(each.sample(share) for each, share in zip(corpora, shares, strict=True))


def _key(config: TextConfig, data_root: Path | None, apart: Unseen | None) -> str:
    split = len(config.train), None if config.valid else config.share
    without = None if apart is None else digest_of_hashes(np.concatenate(apart))
    names = (*config.train, *config.valid)
    kind = tokens_for(names, data_root)
    if kind == "samples":
        return data_key(names, data_root, "texts", split, config.rate, config.builtin_size, without)
    if kind == "pixels":
        form = "pixels", config.side, config.levels
        return data_key(names, data_root, "texts", split, form, config.builtin_size, without)
    return data_key(names, data_root, "texts", split, config.field, config.builtin_size, without)


def _gather(
    config: TextConfig, data_root: Path | None, progress: Progress, apart: Unseen | None, build: Build
) -> State:
    """Read all documents one after the other, leave out those in which there is nothing, and hold some out."""
    notes: list[str] = []
    text = build.column("text", "u1")
    train = GatheredDocuments(build, text, "train", build.state)
    size = sum(_size(name, data_root) for name in config.train)
    read = partial(_stream, config, data_root, notes)
    train.take(read(config.train), lambda done: progress("reading text (MB)", done, size // 10**6))
    notes += blank_note(train.count, train.read, config.train, notes)
    rows = train.documents()
    if apart is not None:
        left_out = among(rows[:, HASH], apart.documents)
        notes += apart_note(int(left_out.sum()), len(rows), ", ".join(config.train), "documents")
        rows, other = rows[~left_out], rows[:0]
    elif config.valid:
        valid = GatheredDocuments(build, text, "valid", {"at": train.at})
        more = len(notes)
        valid.take(read(config.valid))
        notes += blank_note(valid.count, valid.read, config.valid, notes[more:])
        other = valid.documents()
        notes += overlap_note(occur_in(other[:, HASH], in_parts(rows[:, HASH])), "validation", "documents")
    else:
        rows, other = split_rows(rows, text.values(), config.share)
        notes.append(f"no validation text: held out {config.share:.0%} of the characters")
    learned, unseen = (DocumentRows(text.values(), *each[:, :HASH].T) for each in (rows, other))
    lines = np.unique(np.concatenate([NONE, *unseen.lines()]))
    asked, where = (lines, "training") if apart is None else (apart.lines, ", ".join(config.train))
    notes += lines_note(occur_in(asked, learned.lines()), where=where)
    notes += _write_split(build, rows, other, lines)
    about: State = {"notes": notes_as_json(notes), "characters": int(rows[:, CHARACTERS].sum())}
    return about | {"counts": f"{len(rows):,} documents", "made_of": ", ".join(config.train)}


def _stream(
    config: TextConfig, data_root: Path | None, notes: list[str], names: Sequence[str]
) -> Iterator[Iterable[str]]:
    return stream_documents(names, data_root, config.field, config.builtin_size, config.form, notes, left_out=[])


def _write_split(build: Build, rows: np.ndarray, other: np.ndarray, lines: np.ndarray) -> list[str]:
    """Write down which documents are learned from and which are unseen; a note if many of the first are equal."""
    for name, documents in (("train", rows), ("valid", other)):
        build.column(name, "<u8", (2,)).append(documents[:, :HASH])
    different = np.unique(rows[:, HASH])
    for name, hashes in (("unseen", np.unique(other[:, HASH])), ("unseen_lines", lines), ("different", different)):
        build.column(name, "<u8").append(hashes)
    return repeats_note(len(different), len(rows), "documents")


class GatheredDocuments:
    """Documents that are written down as they are read."""

    def __init__(self, build: Build, text: Column, which: str, state: State) -> None:
        self.build, self.text = build, text
        self._documents = build.column(f"{which}_documents", "<u8", (4,), kept=False)
        self.read, self.count, self.at = state.get("read", 0), state.get("count", 0), state.get("at", 0)
        self._pending: list[bytes] = []
        self._rows: list[tuple[int, int, int, int]] = []
        self._waiting = 0  # bytes

    def take(self, documents: Iterable[Iterable[str]], progress: Callable[[int], object] = lambda done: None) -> None:
        """Write down all documents but those that were before a kill."""
        before = self.read
        for number, blocks in enumerate(documents):
            if number < before:
                continue
            self._take(blocks)
            self.read += 1
            if self._waiting >= FLUSH or len(self._rows) >= FLUSH // 64:
                self._flush()
                self.build.commit({"read": self.read, "count": self.count, "at": self.at})
                progress(self.at // 10**6)
        self._flush()

    def _take(self, blocks: Iterable[str]) -> None:
        digest, start, characters, is_blank = hashlib.blake2b(digest_size=8), self.at, 0, True
        for block in blocks:
            data = block.encode()
            digest.update(data)
            characters, is_blank = characters + len(block), is_blank and not block.strip()
            self._pending.append(data)
            self.at, self._waiting = self.at + len(data), self._waiting + len(data)
            if self._waiting >= FLUSH:
                self._flush()
        if not is_blank:
            self._rows.append((start, self.at, int.from_bytes(digest.digest(), "big"), characters))
            self.count += 1

    def _flush(self) -> None:
        self.text.append(np.frombuffer(b"".join(self._pending), dtype=np.uint8))
        self._documents.append(np.array(self._rows, dtype=np.uint64).reshape(-1, 4))
        self._pending, self._rows, self._waiting = [], [], 0

    def documents(self) -> np.ndarray:
        """Start, end, hash and characters of each: (N, 4)."""
        return self._documents.values()


def split_rows(documents: np.ndarray, text: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Hold out about `share` of the characters: whole documents, chosen by a hash of their text; of a single one its end.

    Equal documents stay together, and their order does not matter. The first 90% of tiny Shakespeare are customarily
    its training text: that is `share` = 0.1.
    """
    if len(np.unique(documents[:, HASH])) == 1:
        return _cut_end(documents[0], text, share)
    held = _chosen(documents[:, HASH], documents[:, CHARACTERS], share * float(documents[:, CHARACTERS].sum()))
    return documents[~held], documents[held]


def _chosen(hashes: np.ndarray, sizes: np.ndarray, wanted: float) -> np.ndarray:
    """Documents in the order of their hashes, each taken if that brings the sum of their sizes nearer to `wanted`: (N,), bool.

    Equal ones are taken together, and never all.
    """
    different, which = np.unique(hashes, return_inverse=True)
    together = np.bincount(which, weights=sizes).astype(np.int64)
    held = np.zeros(len(different), dtype=bool)
    total = count = 0
    for place, size in enumerate(map(int, together)):
        if total >= wanted:
            break
        if abs(total + size - wanted) < abs(total - wanted) and count + 1 < len(different):
            held[place], total, count = True, total + size, count + 1
    if not count:
        held[together.argmin()] = True
    return held[which]


def _cut_end(document: np.ndarray, text: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    start, end, characters = int(document[START]), int(document[END]), int(document[CHARACTERS])
    cut = int(characters * (1 - share))
    place = _place_of(text, start, cut)
    parts = np.array([[start, place, 0, cut], [place, end, 1, characters - cut]], dtype=np.uint64)
    rows = DocumentRows(text, *parts[:, :HASH].T)
    if any(not any(block.strip() for block in rows.blocks(row)) for row in range(2)):
        raise RegardError(
            f"a single document of {characters} characters is too short to hold {share:.0%} out",
            "name a validation text (data.valid)",
        )
    return parts[:1], parts[1:]


def _place_of(text: np.ndarray, start: int, characters: int) -> int:
    """The byte at which so many characters from `start` on end: each begins with a byte that goes on with none before it."""
    data = MappedBytes(text)
    while True:
        begins = np.flatnonzero((np.frombuffer(data.read(start, start + BLOCK), dtype=np.uint8) & 0xC0) != 0x80)
        if len(begins) > characters or start + BLOCK >= len(text):
            return start + (int(begins[characters]) if len(begins) > characters else len(text) - start)
        characters, start = characters - len(begins), start + BLOCK


def _size(name: str, data_root: Path | None) -> int:
    """Bytes of the text of a file or folder, about; 0 of built-in text."""
    if name.startswith("builtin/"):
        return 0
    path = find_file(name, data_root)
    return size_of(path) if path.is_dir() else text_size(path)
