"""The whole journey on built-in data: a model that reads dates in eighteen languages, and what it learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date

from regard.config import Tables
from regard.data.builtin.dates import DatePair, as_pairs, date_pairs, split_of
from regard.evaluate.translation import exact_match
from regard.tasks.config import RunConfig
from regard.tasks.configure import run_config
from regard.tasks.translate.alignment import alignment_error
from regard.tasks.translate.predictor import Translator

# Everything that decides how well the demo learns in its minute (`--max-time`); the rest are the defaults.
DEMO: Tables = {
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
class DateRead:
    """A date as the model read it."""

    source: str
    output: str
    reference: str
    seen: bool  # whether the day, in whatever form, was among those of training


@dataclass(frozen=True)
class DemoReport:
    """Examples and scores of the demo's model."""

    examples: tuple[DateRead, ...]
    exact: float  # percentage of test pairs right to the last character
    tested: int
    alignment_error: float  # of the attention map against the generator's own alignment
    aligned: int

    def data(self) -> dict[str, object]:
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


def read_examples(translator: Translator, pairs: Sequence[tuple[str, str]]) -> tuple[DateRead, ...]:
    outputs = translator.translate([source for source, _ in pairs])
    return tuple(
        DateRead(source, output.text, reference, split_of(date.fromisoformat(reference)) == "train")
        for (source, reference), output in zip(pairs, outputs, strict=True)
    )
