"""Tokenizers that are trained once on the training texts alone, or on a seeded sample of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from regard.data.batches import generator
from regard.data.kept.cache import Keep, joint_key, keep_at_once, shared_out
from regard.data.kept.encoding import key_of
from regard.data.kept.journal import Build, State
from regard.data.kept.sequences import TakenTogether
from regard.data.pairs import PairSets
from regard.tokens import TextTokenizer, TokenizerPair, TokensConfig, train_tokenizer

Row = TypeVar("Row")
SAMPLE = 13  # the key of the rows that a tokenizer learns from


def sampled(rows: Sequence[Row], characters: int, most: int) -> Sequence[Row]:
    """Rows with about `most` of so many characters, in their order, by a seeded draw; all of them if they have no more."""
    if characters <= most:
        return rows
    chosen = np.flatnonzero(generator(SAMPLE).random(len(rows)) < most / characters)
    return rows.take(chosen) if isinstance(rows, TakenTogether) else [rows[row] for row in chosen.tolist()]


def sample_note(characters: int, most: int) -> list[str]:
    """A note where a tokenizer learns from a sample."""
    if characters <= most:
        return []
    return [f"the tokenizer learned from a seeded sample of {most:,} of {characters:,} characters (tokens.sample)"]


def train_pair_tokenizers(
    corpora: Sequence[PairSets],
    config: TokensConfig,
    keep: Keep = keep_at_once,
    say: Callable[[], object] = lambda: None,
) -> TokenizerPair:
    """Tokenizers trained on the training pairs alone; those of large data are kept. `say` is called before it takes time."""

    def train() -> tuple[TextTokenizer, ...]:
        say()
        sizes = [sum(sets.characters) for sets in corpora]
        mosts = shared_out(config.sample, sizes)
        some = [sampled(sets.train, *each) for sets, *each in zip(corpora, sizes, mosts, strict=True)]
        sources, targets = ([row[side] for rows in some for row in rows] for side in (0, 1))
        found = TokenizerPair.train(sources, targets, config)
        return (found.source,) if config.joint else (found.source, found.target)

    found = _kept_tokenizers(joint_key([sets.key for sets in corpora]), config, False, train, keep)
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

    kept = keep("tokenizer", partial(key_of, data, "tokenizer", config.model_dump(mode="json"), mask), make)
    return [TextTokenizer.of(kept.arrays[name].tobytes().decode()) for name in sorted(kept.arrays)]
