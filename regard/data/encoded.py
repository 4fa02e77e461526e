"""Texts -> arrays of ids, in chunks: into memory, or into files that are kept for all runs and mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from regard.data.batches import LeftOut, TokenPairs, generator, of_no_use
from regard.data.cache import Keep, Progress, digest_of_parts, keep_at_once, no_progress
from regard.data.journal import Build, State
from regard.data.pairs import Pair, PairSets
from regard.data.ragged import Ragged, TextRows, digest_rows
from regard.tokens import BEGIN, END, PAD, TextTokenizer, TokenizerPair, TokensConfig
from regard.tokens.encoder import Encoder

TOGETHER = 10_000  # pairs encoded at once
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

    def make(build: Build) -> State:
        say()
        rows = sampled(sets.train, sum(sets.characters), config.sample)
        found = TokenizerPair.train([row[0] for row in rows], [row[1] for row in rows], config)
        for name, tokenizer in (("source", found.source), ("target", found.target)):
            build.column(name, "u1").append(np.frombuffer(tokenizer.text.encode(), dtype=np.uint8))
        return {"counts": f"{found.source.size:,} tokens", "made_of": sets.key}

    kept = keep("tokenizer", partial(_key, sets.key, "tokenizers", config.model_dump(mode="json")), make)
    source, target = (TextTokenizer.of(kept.arrays[name].tobytes().decode()) for name in ("source", "target"))
    return TokenizerPair(source, source if config.joint else target)


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
