"""How well attention points at what a word comes from, on the built-in dates, where that is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.builtin.dates import DatePair
from regard.evaluate.alignment import Link, alignment_error_rate, hard_alignment
from regard.look.sentence import SentenceAttention
from regard.tasks.translate.predictor import Translator

Head = tuple[int, int]  # layer and head, both counted from 0
Which = Head | None  # None: the mean over all of them


@dataclass(frozen=True)
class AlignmentErrors:
    """Alignment error rates of a model; the best head is chosen on other dates than it is scored on."""

    mean: float  # of the mean map
    best: float  # of the best single head
    layer: int  # of that head, counted from 0
    head: int
    sentences: int


def alignment_errors(
    translator: Translator, choose_on: Sequence[DatePair], score_on: Sequence[DatePair]
) -> AlignmentErrors | None:
    """The mean map's error and that of the head that erred least on `choose_on`; None without attention to characters."""
    if not aligns_characters(translator):
        return None
    heads = heads_of(translator.attention(score_on[0].source, ()))
    if not heads:
        return None
    chosen = error_rates(translator, choose_on, heads)
    layer, head = min(heads, key=lambda each: chosen[each])
    scored = error_rates(translator, score_on, [None, (layer, head)])
    return AlignmentErrors(scored[None], scored[layer, head], layer, head, len(score_on))


def alignment_error(translator: Translator, pairs: Sequence[DatePair], which: Which = None) -> float:
    """Alignment error rate of one map, by default the mean that `regard translate --attention` shows."""
    return error_rates(translator, pairs, [which])[which]


def error_rates(translator: Translator, pairs: Sequence[DatePair], maps: Iterable[Which]) -> dict[Which, float]:
    """Alignment error rate of each map while the right date is written.

    A token is a character here, so the generator's alignment of characters is one of tokens. The hyphens of the target
    come from no character of the source and are left out.
    """
    predicted: dict[Which, set[Link]] = defaultdict(set)
    sure: set[Link] = set()
    possible: set[Link] = set()
    maps = list(maps)
    for number, pair in enumerate(pairs):
        seen = translator.attention(pair.source, translator.tokenizers.target.encode(pair.target))
        from_source = {target for _, target in pair.alignment}
        for which in maps:
            links = hard_alignment(_map(seen, which))
            predicted[which] |= {(number, source, target) for source, target in links if target in from_source}
        possible |= {(number, *link) for link in pair.alignment}
        sure |= {(number, *link) for link in sure_links(pair)}
    return {which: alignment_error_rate(predicted[which], sure, possible) for which in maps}


def sure_links(pair: DatePair) -> set[tuple[int, int]]:
    """Links of target characters that come from one source character; of a month's name any letter will do."""
    sources = Counter(target for _, target in pair.alignment)
    return {link for link in pair.alignment if sources[link[1]] == 1}


def heads_of(seen: SentenceAttention) -> list[Head]:
    return [(layer, head) for layer, weights in enumerate(seen.layers.values()) for head in range(len(weights))]


def aligns_characters(translator: Translator) -> bool:
    """Whether a token is a character of the text as it came: only then is the dates' alignment one of tokens."""
    tokens = translator.config.tokens
    assert tokens is not None
    return tokens.kind == "character" and tokens.normalise == "none"


def _map(seen: SentenceAttention, which: Which) -> np.ndarray:
    return seen.map().weights if which is None else seen.map(*which).weights
