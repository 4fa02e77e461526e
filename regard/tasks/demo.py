"""The whole journey on built-in data: a model that reads dates in eighteen languages, and what it learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from regard.data.dates import DatePair, as_pairs, date_pairs, split_of
from regard.evaluate.alignment import Link, alignment_error_rate, hard_alignment
from regard.evaluate.exact import exact_match
from regard.tasks.config import RunConfig, run_config
from regard.tasks.translate import Translator

# Everything that decides how well the demo learns in its minute (`--max-time`); the rest are the defaults.
DEMO: dict[str, Any] = {
    "preset": "demo",
    "data": {"train": "builtin/dates", "builtin_size": 40_000},
    "tokens": {"kind": "character"},
    "train": {
        "steps": 1500,
        "batch_tokens": 2048,
        "lr": 7e-3,
        "schedule": "linear",
        "warmup": 100,
        "smoothing": 0.0,
        "validate_every": 250,
        "select": "exact",
        "patience": 0,
        "average": 0,
    },
    "validate": {"sentences": 200, "samples": 2},
    "decode": {"beam": 1},
}

TEST_PAIRS = 1000  # of days that training never saw
ALIGNED_PAIRS = 200  # of them, whose attention is held against the truth

EXAMPLES = (
    ("mardi 3 mars 1998", "1998-03-03"),
    ("3. März 1998", "1998-03-03"),
    ("March 3rd, 1998", "1998-03-03"),
    ("1998年3月3日", "1998-03-03"),
    ("31 декабря 1999 г.", "1999-12-31"),
    ("domingo, 14 de julio de 2002", "2002-07-14"),
)


@dataclass(frozen=True)
class Example:
    """A date as the model read it."""

    source: str
    output: str
    reference: str
    seen: bool  # whether the day, in whatever form, was among those of training


@dataclass(frozen=True)
class DemoReport:
    """What the demo found out about its model."""

    examples: tuple[Example, ...]
    exact: float  # percentage of test pairs right to the last character
    tested: int
    alignment_error: float  # of the attention map against the generator's own alignment
    aligned: int

    def data(self) -> dict[str, Any]:
        return asdict(self)


def demo_config(seed: int, max_time: str) -> RunConfig:
    return run_config("translate", {**DEMO, "train": {**DEMO["train"], "seed": seed, "max_time": max_time}})


def sample_pairs(count: int = 6) -> list[DatePair]:
    """A few training pairs to show, each of another language."""
    of_language = {pair.language: pair for pair in date_pairs("train", 100)}
    return list(of_language.values())[:count]


def report(translator: Translator, progress: Callable[[int, int], None] | None = None) -> DemoReport:
    """Examples, exact match on unseen days, and how well attention points at the characters that matter."""
    test = date_pairs("test", TEST_PAIRS)
    sources, references = zip(*as_pairs(test), strict=True)
    outputs = [each.text for each in translator.translate(sources, progress=progress)]
    return DemoReport(
        read_examples(translator, EXAMPLES),
        exact_match(outputs, references),
        len(test),
        alignment_error(translator, test[:ALIGNED_PAIRS]),
        ALIGNED_PAIRS,
    )


def read_examples(translator: Translator, pairs: Sequence[tuple[str, str]]) -> tuple[Example, ...]:
    outputs = translator.translate([source for source, _ in pairs])
    return tuple(
        Example(source, output.text, reference, split_of(date.fromisoformat(reference)) == "train")
        for (source, reference), output in zip(pairs, outputs, strict=True)
    )


def alignment_error(translator: Translator, pairs: Sequence[DatePair]) -> float:
    """Alignment error rate of the map that `regard translate --attention` shows, while the right date is written.

    A token is a character here, so the generator's alignment of characters is one of tokens. The hyphens of the target
    come from no character of the source and are left out.
    """
    predicted: set[Link] = set()
    sure: set[Link] = set()
    possible: set[Link] = set()
    for number, pair in enumerate(pairs):
        ids = translator.tokenizers.target.encode(pair.target)
        links = hard_alignment(translator.attention(pair.source, ids).map().weights)
        from_source = {target for _, target in pair.alignment}
        predicted |= {(number, source, target) for source, target in links if target in from_source}
        for link in pair.alignment:
            possible.add((number, *link))
        sure |= {(number, *link) for link in sure_links(pair)}
    return alignment_error_rate(predicted, sure, possible)


def sure_links(pair: DatePair) -> set[tuple[int, int]]:
    """Links of target characters that come from one source character; of a month's name any letter will do."""
    sources = Counter(target for _, target in pair.alignment)
    return {link for link in pair.alignment if sources[link[1]] == 1}
