"""Labelled texts -> arrays of ids, labels and trees, in chunks: into memory, or into files that are kept and mapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from regard.data.batches import LabelBatches, TokenTrees, Trees
from regard.data.kept.cache import Keep, Progress, find_kept, keep_at_once, no_progress
from regard.data.kept.copies import Arrays, Items, Work
from regard.data.kept.encoding import digest_text, fitting, key_of, with_ends
from regard.data.kept.journal import Build, MemoryBuild, State
from regard.data.kept.ragged import Ragged
from regard.data.kept.ranks import Order, shared_out
from regard.data.kept.sequences import RowByRow
from regard.data.labelled import LabelledSets, kept_texts
from regard.data.labelled_files import Labelled
from regard.tokens import Specials, TextTokenizer
from regard.tokens.encoder import Encoder

T = TypeVar("T")
TOGETHER = 10_000  # texts encoded at once
COUNTED = ("texts", "cut")


class Segments(RowByRow[np.ndarray]):
    """For each row of pairs 0 for the tokens of the first text, `firsts` of them, and 1 for those of the second."""

    def __init__(self, firsts: np.ndarray, lengths: np.ndarray) -> None:
        self.firsts, self.lengths = firsts, lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def row(self, number: int) -> np.ndarray:
        return (np.arange(self.lengths[number]) >= self.firsts[number]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class EncodedLabelled:
    """Texts as ids with all their special tokens, the numbers of their labels, and how many of them were cut."""

    texts: Ragged
    labels: np.ndarray  # (N,), int64
    segments: Segments | None
    cut: int

    def batches(self, pad: int, batch_tokens: int, seed: int, trees: Trees | None = None) -> LabelBatches:
        """Batches of these texts, with their trees if they are known."""
        budget = max(batch_tokens, int(self.texts.lengths.max(initial=0)))
        return LabelBatches(self.texts, self.labels, pad, budget, seed, self.segments, trees)


def encode_labelled_sets(
    sets: LabelledSets,
    labels: Sequence[str],
    tokenizer: TextTokenizer,
    longest: int,
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
) -> EncodedLabelled:
    """The training texts as ids, of each at most `longest`; labels by their place in `labels`."""
    key = partial(key_of, sets.key, "labelled", digest_text(tokenizer.text), longest, list(labels))
    make = partial(_write, sets.train, labels, sets.pairs, tokenizer, longest, progress, sets.key)
    found = keep("tokens", key, lambda build: make(build) | {"made_of": sets.key})
    return _encoded(found.arrays["ids"], found.arrays["rows"], found.about["cut"], sets.pairs)


def encode_labelled_texts(
    texts: Sequence[Labelled], labels: Sequence[str], tokenizer: TextTokenizer, longest: int
) -> EncodedLabelled:
    """Labelled texts that are in memory, as ids."""
    paired, build = bool(texts) and texts[0].second is not None, MemoryBuild()
    found = build.finish(_write(texts, labels, paired, tokenizer, longest, no_progress, "", build))
    return _encoded(found.arrays["ids"], found.arrays["rows"], found.about["cut"], paired)


def _encoded(ids: np.ndarray, rows: np.ndarray, cut: int, paired: bool) -> EncodedLabelled:
    lengths, firsts, labels = rows.T
    return EncodedLabelled(
        Ragged(ids, lengths), labels.astype(np.int64), Segments(firsts, lengths) if paired else None, cut
    )


def _write(
    texts: Sequence[Labelled],
    labels: Sequence[str],
    paired: bool,
    tokenizer: TextTokenizer,
    longest: int,
    progress: Progress,
    key: str,
    build: Build,
) -> State:
    ids, rows = build.column("ids", fitting(tokenizer.last + 1)), build.column("rows", "<u4", (3,))
    state = build.state or dict.fromkeys(COUNTED, 0)
    starts, work = range(state["texts"], len(texts), TOGETHER), _work(texts, labels, paired, tokenizer, longest)
    words = (key, list(labels), paired, tokenizer.text, longest, starts.start, starts.stop)
    order = partial(Order, "encode labelled", words) if key else None
    found = shared_out(lambda: iter(starts), work, len(starts), order)
    for _, (flat, table, counts) in found:
        ids.append(flat)
        rows.append(table)
        state = {name: state[name] + int(count) for name, count in zip(COUNTED, counts, strict=True)}
        build.commit(state)
        progress("encoding texts", state["texts"], len(texts))
    return state | {"counts": f"{state['texts']:,} texts"}


def encoding_again(
    key: str, labels: Sequence[str], paired: bool, tokenizer: str, longest: int, start: int, stop: int
) -> tuple[Items[int], Work[int]] | None:
    """The work of `_write`, in a process that helps; None if it does not see the texts."""
    found = find_kept(key)
    if found is None:
        return None
    work = _work(kept_texts(found), labels, paired, TextTokenizer.of(tokenizer), longest)
    return lambda: iter(range(start, stop, TOGETHER)), work


def _work(
    texts: Sequence[Labelled], labels: Sequence[str], paired: bool, tokenizer: TextTokenizer, longest: int
) -> Work[int]:
    """Encode some texts from one on: ids, a table of lengths and labels, and how many were read and cut."""
    number = {label: place for place, label in enumerate(labels)}
    encode = partial(_paired if paired else _single, Encoder(tokenizer), tokenizer.specials, longest)

    def some(start: int) -> Arrays:
        chunk = texts[start : start + TOGETHER]
        flat, lengths, firsts, read = encode(chunk)
        table = np.stack([lengths, firsts, [number[each.label] for each in chunk]], axis=1)
        return flat, table, np.array([len(chunk), (read > longest - 2).sum()])

    return some


class _Rows(NamedTuple):
    """Encoded texts one after the other, with their special tokens."""

    flat: np.ndarray  # all ids
    lengths: np.ndarray  # of each row
    firsts: np.ndarray  # how many of these are of the first text
    read: np.ndarray  # tokens of the first text before it was cut


def _single(encode: Encoder, special: Specials, longest: int, texts: Sequence[Labelled]) -> _Rows:
    """Encode texts as begin, text, end; the end of a long text is cut off."""
    ids, read = encode([each.text for each in texts])
    kept = np.minimum(read, longest - 2)
    flat = with_ends(_heads(ids, read, kept), kept, [special.begin], [special.end])
    return _Rows(flat, kept + 2, kept + 2, read)


def _paired(encode: Encoder, special: Specials, longest: int, texts: Sequence[Labelled]) -> _Rows:
    """Encode pairs of texts as begin, first, end, second, end; the longer text is cut first."""
    first, read = encode([each.text for each in texts])
    second, others = encode([each.second or "" for each in texts])
    kept, beside = fitted(read, others, longest - 3)
    ids = with_ends(_heads(first, read, kept), kept, [special.begin], [special.end])
    behind = with_ends(_heads(second, others, beside), beside, [], [special.end])
    return _Rows(interleaved(ids, kept + 2, behind, beside + 1), kept + beside + 3, kept + 2, read)


def _heads(ids: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The first `kept` ids of each sequence."""
    places = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ids[places < np.repeat(kept, lengths)]


def fitted(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """How much of two texts fits into the room: the longer one gives way, and of equal ones the first."""
    over, shorter = first + second > room, np.minimum(first, second)
    halves = over & (room - shorter < shorter)
    a = np.where(over & (first > second), room - second, first)
    b = np.where(over & (second >= first), room - first, second)
    return np.where(halves, room // 2, a), np.where(halves, room - room // 2, b)


def interleaved(first: np.ndarray, lengths: np.ndarray, second: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Sequences of two kinds by turns, one of each in a row."""
    found, starts = (
        np.empty(len(first) + len(second), dtype=first.dtype),
        np.cumsum(lengths + others) - lengths - others,
    )
    for ids, sizes, begins in ((first, lengths, starts), (second, others, starts + lengths)):
        found[np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(ids))] = ids
    return found


class Each(RowByRow[T]):
    """What is picked of each labelled text, as it is asked for."""

    def __init__(self, texts: Sequence[Labelled], pick: Callable[[Labelled], T]) -> None:
        self.texts, self.pick = texts, pick

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, number: int) -> T:
        return self.pick(self.texts[number])


def trees_of(texts: Sequence[Labelled], lengths: np.ndarray, tokenizer: TextTokenizer) -> TokenTrees | None:
    """The trees of texts in tokens, worked out as they are asked for; None where texts have none."""
    if not len(texts) or texts[0].parents is None:
        return None
    return TokenTrees(
        Each(texts, lambda each: each.text), Each(texts, lambda each: each.parents or ()), lengths, tokenizer
    )
