"""The small translators that several experiments train: Spanish sentences of one or two clauses, by words, in English."""

from __future__ import annotations

from functools import partial
from typing import Any

from regard.config import Tables, merge
from regard.experiments.learning import test_pairs, train_run
from regard.experiments.study import Report, Row, Settings

SPANISH: dict[str, Any] = {
    "preset": "demo",
    "data": {"train": "builtin/spanish", "builtin_size": 10_000},
    "tokens": {"kind": "word"},
    "train": {
        "steps": 150,
        "batch_tokens": 512,
        "optimiser": "muon",
        "lr": 1e-2,
        "schedule": "linear",
        "warmup": 15,
        "smoothing": 0.0,
        "average": 0,
        "validate_every": 10_000,  # only at the end
        "patience": 0,
    },
    "validate": {"sentences": 0},
    "decode": {"beam": 1},
}
ONE_AND_ONE: dict[str, Any] = {
    "kind": "transformer",
    "encoder_layers": 1,
    "decoder_layers": 1,
    "width": 64,
    "heads": 4,
    "feed_forward": 128,
    "dropout": 0.0,
}
TRANSLATING: Settings = {"run": merge(SPANISH, {"model": ONE_AND_ONE}), "test": "builtin/spanish/test", "tested": 200}
# Letters to copy, for tiny runs: Spanish takes half a second to make.
SMALL: dict[str, Any] = {
    "data": {"train": "builtin/copy/4", "builtin_size": 60, "hold_out": 10},
    "tokens": {"kind": "character"},
    "train": {"steps": 2, "warmup": 0},
}
SMALL_TEST: Settings = {"test": "builtin/copy/4/test", "tested": 3}
TINY_TRANSLATING: Settings = {
    "run": merge(TRANSLATING["run"], merge(SMALL, {"model": {"width": 8, "heads": 2, "feed_forward": 8}})),
    **SMALL_TEST,
}


def learn(settings: Settings, change: Tables, seed: int, report: Report) -> Row:
    """Train the translator of the settings with a change, and test it on unseen sentences."""
    test = partial(test_pairs, settings["test"], settings["tested"])
    return train_run("translate", merge(settings["run"], change), seed, test, report)
