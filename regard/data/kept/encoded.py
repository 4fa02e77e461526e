"""Texts -> arrays of ids, in chunks: into memory, or into files that are kept for all runs and mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from regard.data.batches import LeftOut, TokenPairs, generator, of_no_use
from regard.data.kept.cache import Keep, Progress, digest_of_parts, keep_at_once, no_progress
from regard.data.kept.journal import Build, Column, Kept, State
from regard.data.kept.ragged import Ragged, TextRows, digest_rows
from regard.data.pairs import Pair, PairSets
from regard.data.text_sets import DocumentRows, TextSets
from regard.errors import RegardError
from regard.tokens import BEGIN, END, PAD, TextTokenizer, TokenizerPair, TokensConfig, train_tokenizer
from regard.tokens.encoder import Encoder

TOGETHER = 10_000  # pairs encoded at once
LONG = 1 << 18  # bytes of documents encoded at once; the library takes some 200 bytes for each
SAMPLE = 13  # the key of the rows that a tokenizer learns from


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


# --- Tokenizers


def sampled(rows: Sequence[Pair], characters: int, most: int) -> Sequence[Pair]:
    """Rows with about `most` of so many characters, in their order, by a seeded draw; all of them if they have no more."""
    if characters <= most:
        return rows
    chosen = np.flatnonzero(generator(SAMPLE).random(len(rows)) < most / characters)
    return rows.take(chosen) if isinstance(rows, TextRows) else [rows[row] for row in chosen.tolist()]  # type: ignore[return-value]


def sample_note(characters: int, most: int) -> list[str]:
    """A note where a tokenizer learns from a sample."""
    if characters <= most:
        return []
    return [f"the tokenizer learned from a seeded sample of {most:,} of {characters:,} characters (tokens.sample)"]


def train_pair_tokenizers(
    sets: PairSets, config: TokensConfig, keep: Keep = keep_at_once, say: Callable[[], object] = lambda: None
) -> TokenizerPair:
    """Tokenizers trained on the training pairs alone; those of large data are kept. `say` is called before it takes time."""

    def train() -> tuple[TextTokenizer, ...]:
        say()
        rows = sampled(sets.train, sum(sets.characters), config.sample)
        found = TokenizerPair.train([row[0] for row in rows], [row[1] for row in rows], config)
        return (found.source,) if config.joint else (found.source, found.target)

    found = _kept_tokenizers(sets.key, config, False, train, keep)
    return TokenizerPair(found[0], found[-1])


def train_text_tokenizer(
    sample: Callable[[int], Iterable[str]],
    key: str,
    config: TokensConfig,
    mask: bool,
    keep: Keep = keep_at_once,
    say: Callable[[], object] = lambda: None,
) -> TextTokenizer:
    """A tokenizer trained on texts that have the key: `sample` gives some with so many characters."""

    def train() -> tuple[TextTokenizer, ...]:
        say()
        return (train_tokenizer(sample(config.sample), config, mask=mask),)

    return _kept_tokenizers(key, config, mask, train, keep)[0]


def _kept_tokenizers(
    data: str, config: TokensConfig, mask: bool, train: Callable[[], Sequence[TextTokenizer]], keep: Keep
) -> list[TextTokenizer]:
    """Tokenizers that are trained once on data of a key."""

    def make(build: Build) -> State:
        found = train()
        for number, tokenizer in enumerate(found):
            build.column(f"tokenizer{number}", "u1").append(np.frombuffer(tokenizer.text.encode(), dtype=np.uint8))
        return {"counts": f"{found[0].size:,} tokens", "made_of": data}

    kept = keep("tokenizer", partial(_key, data, "tokenizer", config.model_dump(mode="json"), mask), make)
    return [TextTokenizer.of(kept.arrays[name].tobytes().decode()) for name in sorted(kept.arrays)]


def _key(data: str, *how: object) -> str:
    """The key of what is made of data that are kept; "" if they are not."""
    return digest_of_parts(data, *how) if data else ""


# --- Pairs


def encode_pairs(
    sets: PairSets,
    tokenizers: TokenizerPair,
    max_length: int,
    max_ratio: float,
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
) -> tuple[TokenPairs, str | None, str]:
    """The training pairs that fit as ids, one sentence on those that do not, and a digest of all ids."""
    texts = [tokenizers.source.text, tokenizers.target.text]
    key = partial(_key, sets.key, "pairs", *map(_digest, texts), max_length, max_ratio)
    found = keep("tokens", key, partial(_write_pairs, sets, tokenizers, max_length, max_ratio, progress))
    lengths, about = found.arrays["lengths"], found.about
    note = LeftOut(about["pairs"], about["too_long"], about["unlike"]).note(max_length, max_ratio)
    sides = [Ragged(found.arrays[name], lengths[:, side]) for side, name in enumerate(("sources", "targets"))]
    return TokenPairs(sides[0], sides[1], PAD), note, about["fingerprint"]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_pairs(
    sets: PairSets, tokenizers: TokenizerPair, max_length: int, max_ratio: float, progress: Progress, build: Build
) -> State:
    kinds = fitting(tokenizers.source.last + 1), fitting(tokenizers.target.last + 1)
    sources, targets = build.column("sources", kinds[0]), build.column("targets", kinds[1])
    lengths = build.column("lengths", "<u4", (2,))
    state = build.state or {"pairs": 0, "too_long": 0, "unlike": 0}
    encode = Encoder(tokenizers.source), Encoder(tokenizers.target)
    for start in range(state["pairs"], len(sets.train), TOGETHER):
        rows = sets.train[start : start + TOGETHER]
        (first, read), (second, written) = (each([row[side] for row in rows]) for side, each in enumerate(encode))
        too_long, unlike = of_no_use(read + 1, written + 1, max_length, max_ratio)
        kept = ~(too_long | unlike)
        sources.append(with_ends(first[np.repeat(kept, read)], read[kept], [], [END]))
        targets.append(with_ends(second[np.repeat(kept, written)], written[kept], [BEGIN], [END]))
        lengths.append(np.stack([read[kept] + 1, written[kept] + 2], axis=1))
        counts = {"pairs": len(rows), "too_long": int(too_long.sum()), "unlike": int(unlike.sum())}
        state = {name: state[name] + count for name, count in counts.items()}
        build.commit(state)
        progress("encoding pairs", state["pairs"], len(sets.train))
    digest = hashlib.sha256()
    for side, column in enumerate((sources, targets)):
        digest_rows(digest, Ragged(column.values(), lengths.values()[:, side]))
    counts_ = f"{len(lengths.values()):,} pairs"
    return state | {"fingerprint": digest.hexdigest(), "counts": counts_, "made_of": sets.key}


# --- Running text


def encode_documents(
    sets: TextSets,
    tokenizer: TextTokenizer,
    around: tuple[Sequence[int], Sequence[int]],
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
) -> tuple[Ragged, Ragged, Kept]:
    """The training and the validation documents as ids, each with the same ids before and behind it; none is empty."""
    key = partial(_key, sets.key, "documents", _digest(tokenizer.text), *map(list, around))
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
    if not all(counts):
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
        """Go on from a state; each state that is given back can be gone on from."""
        sizes, document = self.rows.sizes, state["document"]
        while document < len(self.rows):
            if sizes[document] > LONG:
                yield from self._long(document, state["byte"], state["ids"])
                document += 1
            else:
                most = np.searchsorted(
                    np.cumsum(np.minimum(sizes[document : document + TOGETHER], 2 * LONG)), LONG, "right"
                )
                document += self._short(document, max(1, int(most)))
            state = {"document": document, "byte": 0, "ids": 0}
            yield state

    def _short(self, first: int, count: int) -> int:
        """Write documents that are short, up to the first that is long; how many these are."""
        ids, lengths = self.encode(self.rows[first : first + count])
        full = lengths > 0 if not self.head and not self.tail else np.ones(len(lengths), dtype=bool)
        self.ids.append(with_ends(ids, lengths[full], self.head, self.tail))
        self.lengths.append(lengths[full] + len(self.head) + len(self.tail))
        return count

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
