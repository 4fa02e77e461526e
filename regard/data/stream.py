"""Streams of tokens in memory-mapped files, and the windows that language models learn from and are measured on.

A file is a safetensors file with one tensor, `tokens`: those of all documents, one after the other. Its metadata tell what
they are, and whoever opens it knows at once whether it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from regard.data.batch import TextBatch, text_batch
from regard.data.batches import generator
from regard.data.mapped import ArrayWriter, map_arrays
from regard.data.planned import Planned
from regard.errors import RegardError
from regard.files import writing

_TOKENS = "tokens"  # the tensor
_OLD = b"regard tokens 1\n"  # ends a file of Regard 0.1


@dataclass(frozen=True, eq=False)
class TokenStream:
    """Tokens in their order. `ids` may be mapped from a file: only what is looked at is read."""

    ids: np.ndarray  # (N,), uint16 or uint32
    vocabulary: int
    sha256: str = ""  # of the tokens' bytes
    origin: str = ""  # of what it was made from, if who wrote it said so
    labels_from: int | None = (
        None  # ids from here on are labels, which stand before what they are of; None: there are none
    )
    whole: int | None = None  # tokens of each document, where windows are whole documents; None: they are cut anywhere
    given: int = 0  # predictions that do not count at the beginning of a whole document

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def counted(self) -> int:
        """How many of its tokens are predicted, and count."""
        return len(self) - 1 if self.whole is None else len(self) // self.whole * (self.whole - 1 - self.given)

    def window(self, start: int, size: int) -> np.ndarray:
        """So many tokens from `start` on. Where there are labels, the first gives way to that of what it belongs to."""
        found = self.ids[start : start + size]
        before = int(np.searchsorted(self._labelled, start, side="right")) - 1
        if before < 0 or not len(found):
            return found
        return np.concatenate([self.ids[self._labelled[before]][None], found[1:]])

    @cached_property
    def _labelled(self) -> np.ndarray:
        """The places of labels."""
        if self.labels_from is None:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(np.asarray(self.ids) >= self.labels_from)

    @classmethod
    def open(cls, path: str | Path) -> TokenStream:
        """A stream that `write_stream` wrote, mapped read-only."""
        with _errors_of(Path(path)), open(path, "rb") as file:
            ids, about = _map_old(file) if _is_old(file) else _map_new(file)
            return cls(ids, int(about["vocabulary"]), about["sha256"], about.get("origin", ""))

    def is_intact(self) -> bool:
        """Whether every byte is as it was written (reads the whole stream)."""
        return hashlib.sha256(np.ascontiguousarray(self.ids).data).hexdigest() == self.sha256


def write_stream(
    path: str | Path, sequences: Iterable[Sequence[int] | np.ndarray], vocabulary: int, origin: str = ""
) -> TokenStream:
    """Write sequences one after the other into a file that is whole or absent, and open it."""
    with writing(path) as file:
        _write(file, sequences, vocabulary, origin)
    return TokenStream.open(path)


class Windows:
    """`windows.get(epoch, index)`: windows of training text in random order, `rows` in a batch.

    In each epoch the stream is cut at another offset. Neighbours share one token, the last of one and the first of the
    next, so that every token is predicted once, but for the edges of the stream.
    """

    def __init__(self, stream: TokenStream, context: int, rows: int, seed: int) -> None:
        if len(stream) < 2:
            raise RegardError(f"a text of {len(stream)} tokens leaves nothing to predict", "give more text")
        self.stream, self.ids, self.rows, self.seed = stream, stream.ids, rows, seed
        self.context = _window(stream, min(context, len(stream) - 1))  # a short stream is one window
        self._starts = lru_cache(maxsize=2)(self._make_starts)

    def count(self, epoch: int) -> int:
        return max(1, len(self._starts(epoch)) // self.rows)  # an incomplete batch only if there is no other

    def get(self, epoch: int, index: int) -> TextBatch:
        return self.planned(epoch, index).whole()

    def planned(self, epoch: int, index: int) -> Planned[TextBatch]:
        """The batch, whose windows, all of one length, are read as they are asked for."""
        if not 0 <= index < self.count(epoch):
            raise IndexError(f"batch {index} of {self.count(epoch)}")
        starts = self._starts(epoch)[index * self.rows : (index + 1) * self.rows].tolist()
        tokens = len(starts) * max(0, self.context - self.stream.given)
        counts = {"loss": tokens, "nll": tokens}
        return Planned(len(starts), counts, lambda first, end: _batch_at(self.stream, starts[first:end], self.context))

    def padding_share(self) -> float:
        return 0.0

    def _make_starts(self, epoch: int) -> np.ndarray:
        """Where the windows of an epoch start, in random order."""
        random = generator(self.seed, epoch)
        if self.stream.whole is not None:
            return random.permutation(np.arange(0, len(self.ids), self.stream.whole))
        last = len(self.ids) - 1 - self.context  # the last place where a window can start
        offset = int(random.integers(min(self.context, last + 1)))
        return random.permutation(np.arange(offset, last + 1, self.context))


def evaluation_batches(stream: TokenStream, context: int, rows: int, overlap: int = 0) -> Iterator[TextBatch]:
    """The whole stream once, in order: every token but the first is predicted, and counted, exactly once.

    With `overlap`, each window but the first begins with as many predictions that only give context: what is counted
    then has at least `overlap` + 1 tokens before it. No batch is padded: a shorter last window is a batch of its own.
    """
    if stream.whole is not None:
        yield from _in_groups(stream, range(0, len(stream), stream.whole), stream.whole - 1, rows)
        return
    if not 0 <= overlap < context:
        raise RegardError(
            f"an overlap of {overlap} leaves nothing of a context of {context}", f"take 0 to {context - 1}"
        )
    if len(stream) < 2:
        raise RegardError(f"a text of {len(stream)} tokens leaves nothing to predict", "give more text")
    final = len(stream) - 1  # the last token to predict
    starts = range(0, max(1, final - overlap), context - overlap)
    whole = [start for start in starts if start + context <= final]
    first = 1 if overlap else 0  # the first window has nothing before it: all of it counts
    groups = [whole[:first], *(whole[at : at + rows] for at in range(first, len(whole), rows))]
    groups.append([start for start in starts if start + context > final])
    for group in filter(None, groups):
        windows = [stream.window(start, context + 1) for start in group]
        yield text_batch(windows, skip=overlap if group[0] else 0)


def sampled_starts(stream: TokenStream, context: int, most: int) -> list[int] | None:
    """Where windows from all over the stream start, evenly, with at most `most` predictions, or a single window.

    None if the stream has no more than that, and can be read whole.
    """
    step = context if stream.whole is None else stream.whole
    windows, taken = (len(stream) - (stream.whole is None)) // step, max(1, most // step)
    if len(stream) - 1 <= most or windows <= taken:
        return None
    return [number * windows // taken * step for number in range(taken)]


def sampled_batches(stream: TokenStream, context: int, rows: int, most: int) -> Iterator[TextBatch]:
    """The windows of `sampled_starts`, the same each time; of a short stream all (`evaluation_batches`)."""
    starts = sampled_starts(stream, context, most)
    if starts is None:
        return evaluation_batches(stream, context, rows)
    return _in_groups(stream, starts, _window(stream, context), rows)


def _in_groups(stream: TokenStream, starts: Sequence[int], context: int, rows: int) -> Iterator[TextBatch]:
    return (_batch_at(stream, starts[at : at + rows], context) for at in range(0, len(starts), rows))


def _batch_at(stream: TokenStream, starts: Sequence[int], context: int) -> TextBatch:
    return text_batch([stream.window(start, context + 1) for start in starts], skip=stream.given)


def _window(stream: TokenStream, context: int) -> int:
    """How many tokens are predicted in a window: as asked, or those of a whole document."""
    return context if stream.whole is None else stream.whole - 1


def _write(file: IO[bytes], sequences: Iterable[Sequence[int] | np.ndarray], vocabulary: int, origin: str) -> None:
    writer = ArrayWriter(file, _TOKENS, "<u2" if vocabulary <= 2**16 else "<u4")
    for sequence in sequences:
        ids = np.asarray(sequence, dtype=np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
            raise RegardError(f"a token {ids.min()} or {ids.max()} is outside the vocabulary of {vocabulary:,}")
        writer.write(ids)
    if not writer.count:
        raise RegardError("there are no tokens to write", "give more text")
    writer.finish({"vocabulary": str(vocabulary)} | ({"origin": origin} if origin else {}))


def _map_new(file: IO[bytes]) -> tuple[np.ndarray, dict[str, Any]]:
    arrays, about = map_arrays(file)
    if list(arrays) != [_TOKENS] or arrays[_TOKENS].ndim != 1 or arrays[_TOKENS].dtype.kind != "u":
        raise ValueError("its tensors are others")
    return arrays[_TOKENS], about


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RegardError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RegardError(
            f"{path} is not a whole file of tokens ({error})", "delete it, to have it made again"
        ) from error


# --- Files of Regard 0.1: tokens from the first byte on, then a line of JSON about them, its length in 8 bytes, and `_OLD`


def _is_old(file: IO[bytes]) -> bool:
    file.seek(max(0, file.seek(0, os.SEEK_END) - len(_OLD)))
    return file.read() == _OLD


def _map_old(file: IO[bytes]) -> tuple[np.ndarray, dict[str, Any]]:
    tail = file.seek(0, os.SEEK_END) - len(_OLD) - 8
    file.seek(max(0, tail))
    start = tail - int.from_bytes(file.read(8), "little")
    if start < 0:
        raise ValueError("its end is damaged")
    file.seek(start)
    about = json.loads(file.read(tail - start))
    if about["count"] * np.dtype(about["dtype"]).itemsize != start:
        raise ValueError(f"{about['count']:,} tokens should be there and {start:,} bytes are")
    return np.memmap(file, dtype=about["dtype"], mode="r", shape=(about["count"],)), about
