"""Pairs of texts -> arrays of ids, in chunks: into memory, or into files that are kept for all runs and mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from regard.data.batches import LeftOut, TokenPairs, of_no_use
from regard.data.kept.cache import Keep, Progress, find_kept, keep_at_once, no_progress
from regard.data.kept.copies import Arrays, Items, Work
from regard.data.kept.encoding import digest_text, fitting, key_of, with_ends
from regard.data.kept.journal import Build, State
from regard.data.kept.ragged import Ragged, digest_rows
from regard.data.kept.ranks import Order, shared_out
from regard.data.pairs import PairSets, kept_pairs
from regard.tokens import BEGIN, END, PAD, TextTokenizer, TokenizerPair
from regard.tokens.encoder import Encoder

TOGETHER = 10_000  # pairs encoded at once
COUNTED = ("pairs", "too_long", "unlike")


class EncodedPairs(NamedTuple):
    """Pairs as ids, one sentence on those that do not fit, and a digest of all ids."""

    pairs: TokenPairs
    note: str | None
    digest: str


def encode_pairs(
    sets: PairSets,
    tokenizers: TokenizerPair,
    max_length: int,
    max_ratio: float,
    keep: Keep = keep_at_once,
    progress: Progress = no_progress,
) -> EncodedPairs:
    """The training pairs that fit, as ids."""
    texts = [tokenizers.source.text, tokenizers.target.text]
    key = partial(key_of, sets.key, "pairs", *map(digest_text, texts), max_length, max_ratio)
    found = keep("tokens", key, partial(_write_pairs, sets, tokenizers, max_length, max_ratio, progress))
    lengths, about = found.arrays["lengths"], found.about
    note = LeftOut(about["pairs"], about["too_long"], about["unlike"]).note(max_length, max_ratio)
    sides = [Ragged(found.arrays[name], lengths[:, side]) for side, name in enumerate(("sources", "targets"))]
    return EncodedPairs(TokenPairs(sides[0], sides[1], PAD), note, about["fingerprint"])


def _write_pairs(
    sets: PairSets, tokenizers: TokenizerPair, max_length: int, max_ratio: float, progress: Progress, build: Build
) -> State:
    kinds = fitting(tokenizers.source.last + 1), fitting(tokenizers.target.last + 1)
    sources, targets = build.column("sources", kinds[0]), build.column("targets", kinds[1])
    lengths = build.column("lengths", "<u4", (2,))
    state = build.state or dict.fromkeys(COUNTED, 0)
    starts = range(state["pairs"], len(sets.train), TOGETHER)
    work = partial(_encode_some, sets.train, _encoders(tokenizers), max_length, max_ratio)
    texts = tokenizers.source.text, tokenizers.target.text
    words = (sets.key, *texts, max_length, max_ratio, starts.start, starts.stop)
    order = partial(Order, "encode pairs", words) if sets.key else None
    found = shared_out(lambda: iter(starts), work, len(starts), order)
    for _, (read, written, sizes, counts) in found:
        sources.append(read)
        targets.append(written)
        lengths.append(sizes)
        state = {name: state[name] + int(count) for name, count in zip(COUNTED, counts, strict=True)}
        build.commit(state)
        progress("encoding pairs", state["pairs"], len(sets.train))
    digest = hashlib.sha256()
    for side, column in enumerate((sources, targets)):
        digest_rows(digest, Ragged(column.values(), lengths.values()[:, side]))
    counts_ = f"{len(lengths.values()):,} pairs"
    return state | {"fingerprint": digest.hexdigest(), "counts": counts_, "made_of": sets.key}


def encoding_again(
    key: str, source: str, target: str, max_length: int, max_ratio: float, start: int, stop: int
) -> tuple[Items[int], Work[int]] | None:
    """The work of `_write_pairs`, in a process that helps; None if it does not see the pairs."""
    found = find_kept(key)
    if found is None:
        return None
    first = TextTokenizer.of(source)
    tokenizers = TokenizerPair(first, first if target == source else TextTokenizer.of(target))
    work = partial(_encode_some, kept_pairs(found), _encoders(tokenizers), max_length, max_ratio)
    return lambda: iter(range(start, stop, TOGETHER)), work


def _encoders(tokenizers: TokenizerPair) -> tuple[Encoder, Encoder]:
    source = Encoder(tokenizers.source)
    return source, source if tokenizers.target is tokenizers.source else Encoder(tokenizers.target)


def _encode_some(
    pairs: Sequence[Any], encoders: tuple[Encoder, Encoder], max_length: int, max_ratio: float, start: int
) -> Arrays:
    """Ids of the sources and of the targets of some pairs, their lengths, and how many were read, too long, too unlike."""
    rows = pairs[start : start + TOGETHER]
    (first, read), (second, written) = (each([row[side] for row in rows]) for side, each in enumerate(encoders))
    too_long, unlike = of_no_use(read + 1, written + 1, max_length, max_ratio)
    kept = ~(too_long | unlike)
    return (
        with_ends(first[np.repeat(kept, read)], read[kept], [], [END]),
        with_ends(second[np.repeat(kept, written)], written[kept], [BEGIN], [END]),
        np.stack([read[kept] + 1, written[kept] + 2], axis=1),
        np.array([len(rows), too_long.sum(), unlike.sum()]),
    )
