"""The rules by which a run that nobody configured is configured: from its data and its time, each with its reason. No torch.

A rule gives a setting that the person left open. Its value is fixed, or follows from one fact: the number of examples, of
characters, of labels, or the seconds that are left for training. Where a reason names figures, they were measured
(`benchmarks/recipes.py`, results in `docs/results/recipes.json`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.config import Tables
from regard.training.events import Choice

MORE = float("inf")
Value = str | int | float | bool | None
Facts = Mapping[str, float]  # examples, characters, labels, length, seconds


@dataclass(frozen=True)
class By:
    """A value that follows from a fact: that of the first row whose limit the fact does not exceed."""

    fact: str
    rows: tuple[tuple[float, Value], ...]

    def value(self, facts: Facts) -> Value:
        return next(value for limit, value in self.rows if facts[self.fact] <= limit)


def by(fact: str, *rows: tuple[float, Value]) -> By:
    return By(fact, rows)


@dataclass(frozen=True)
class Rule:
    """One setting, the value it gets, and why."""

    setting: str  # as a person sets it: train.lr
    to: Value | By
    why: str
    kinds: tuple[str, ...] = ()  # of models for which it holds; none: all

    def value(self, facts: Facts) -> Value:
        return self.to.value(facts) if isinstance(self.to, By) else self.to


@dataclass(frozen=True)
class Sizes:
    """Sizes of a kind of model, smallest first, and how many updates one must have to be worth its cost."""

    least_updates: int
    rows: tuple[Tables, ...]
    why: str


def chosen(rules: Sequence[Rule], facts: Facts, kind: str, asked: frozenset[str]) -> list[Choice]:
    """The settings that the rules give, but for those that the person asked for."""
    return [
        Choice(rule.setting, rule.value(facts), rule.why)
        for rule in rules
        if rule.setting not in asked and (not rule.kinds or kind in rule.kinds)
    ]


TIMED = (
    Rule("train.schedule", "wsd", "the rate falls when the clock says so, and ends with the time"),
    Rule("train.steps", 10_000_000, "the clock ends it"),
    Rule("train.average", 0, "a rate that falls to zero averages already"),
    Rule("train.patience", 4, "validations without a better one before the rate falls early"),
)

TRANSLATE = (
    *TIMED,
    Rule("train.optimiser", "muon", "BLEU 16.5 where AdamW has 0.4 (5,000 pairs, 4 minutes of a core)"),
    Rule("train.lr", 1e-2, "of 0.005, 0.01, 0.02"),
    Rule("train.warmup", 50, ""),
    Rule("train.batch_tokens", 1536, ""),
    Rule("tokens.size", by("examples", (2_000, 2_000), (10_000, 4_000), (MORE, 8_000)), ""),
    Rule("model.dropout", by("examples", (10_000, 0.1), (MORE, 0.1)), "", ("transformer",)),
)

GENERATE = (
    *TIMED,
    Rule("tokens.size", by("characters", (300_000, 512), (3_000_000, 1024), (MORE, 4096)), ""),
    Rule("data.context", 128, ""),
    Rule("train.batch_tokens", 1024, ""),
    Rule("model.dropout", by("characters", (3_000_000, 0.1), (MORE, 0.0)), ""),
)

FILL = (
    *TIMED,
    Rule("tokens.size", by("characters", (1_000_000, 1024), (MORE, 4096)), ""),
)

CLASSIFY = (
    *TIMED,
    Rule("model.kind", "additive", "the best rung of the ladder on SST-2, TREC and IMDb", ("self-attention",)),
    Rule("train.lr", 4e-3, "", ("additive",)),
    Rule("model.dropout", 0.5, "", ("additive", "self-attention")),
    Rule("tokens.kind", by("length", (30, "character"), (MORE, "word")), ""),
    Rule("tokens.lowercase", by("length", (30, False), (MORE, True)), ""),
    Rule("tokens.size", 20_000, ""),
    Rule("train.batch_tokens", 1024, ""),
    Rule("train.epochs", 20, ""),
)

PICTURES = (
    *TIMED,
    Rule("data.augment.crop", by("length", (16, 1), (40, 3), (80, 6), (MORE, 12)), ""),
    Rule("train.lr", 3e-3, ""),
    Rule("train.smoothing", 0.1, ""),
)

CAPTION = (*TIMED,)
ANSWER = (*TIMED,)

SIZES: dict[str, dict[str, Sizes]] = {  # task -> kind -> sizes
    "translate": {
        "transformer": Sizes(
            1_500,
            (
                {"width": 128, "feed_forward": 256, "heads": 4, "encoder_layers": 2, "decoder_layers": 2},
                {"width": 128, "feed_forward": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4},
                {"width": 256, "feed_forward": 1024, "heads": 8, "encoder_layers": 4, "decoder_layers": 4},
            ),
            "",
        ),
    },
    "generate": {
        "llama": Sizes(
            1_000,
            (
                {"layers": 2, "width": 96, "heads": 3, "feed_forward": 256},
                {"layers": 4, "width": 128, "heads": 4, "feed_forward": 344},
                {"layers": 6, "width": 192, "heads": 6, "feed_forward": 512},
            ),
            "",
        )
    },
    "fill": {},
}
