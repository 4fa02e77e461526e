"""The grid of small experiments behind the rules of `regard/tasks/rules.py`: one setting changed at a time.

    python benchmarks/recipes.py FOLDER translate-5000 --out docs/results/recipes.json

FOLDER holds the data as the groups below name it. Every experiment has one thread and as many seconds of the processor's
time as it says, or as many updates, so that other programs beside it change nothing; two may run side by side. What is in
the file is not run again. Groups: `--list`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard.config import Tables, merge
from regard.tasks.configure import run_config
from regard.tasks.recipe import prepare
from regard.training.history import RunLog
from regard.training.job import Outcome
from regard.training.show import Show
from regard.training.timed import train

KEPT = ("step", "loss", "bleu", "bleu4", "accuracy", "exact", "bits_per_byte")  # of a validation


@dataclass(frozen=True)
class Experiment:
    """A run with some settings, under a budget of the processor's seconds; 0: of the updates that the settings say."""

    group: str
    name: str
    task: str
    seconds: float
    settings: Tables = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}"


def varied(base: Experiment, changes: dict[str, Tables]) -> list[Experiment]:
    """The base, and it with each of the changes."""
    several = [replace(base, name=name, settings=merge(base.settings, over)) for name, over in changes.items()]
    return [base, *several]


TIMED: Tables = {"schedule": "wsd", "steps": 10_000_000, "average": 0, "patience": 0}


def translation(pairs: int, seconds: float, over: Tables) -> Experiment:
    data = {"train": [f"m{pairs}.en", f"m{pairs}.de"], "valid": ["val.en", "val.de"], "languages": ["en", "de"]}
    train = {**TIMED, "optimiser": "muon", "lr": 1e-2, "warmup": 50, "batch_tokens": 1536, "select": "loss"}
    settings: Tables = {
        "data": data,
        "probes": 0,
        "train": train,
        "tokens": {"size": 4000},
        "model": {"dropout": 0.3, "positions": "rotary"},
    }
    return Experiment(f"translate-{pairs}", "base", "translate", seconds, merge(settings, over))


def language(seconds: float, over: Tables) -> Experiment:
    data = {"train": ["tinyshakespeare/input.txt"], "context": 64}
    train = {**TIMED, "batch_tokens": 1024}
    settings: Tables = {"data": data, "probes": 0, "samples": 0, "train": train, "tokens": {"size": 1024}}
    return Experiment(f"shakespeare-{seconds:g}s", "base", "generate", seconds, merge(settings, over))


def labelled(name: str, data: Tables, seconds: float) -> Experiment:
    train = {**TIMED, "lr": 4e-3, "batch_tokens": 1024}
    tokens = {"kind": "word", "size": 20_000, "lowercase": True}
    model = {"kind": "additive", "dropout": 0.5}
    settings: Tables = {"data": data, "probes": 0, "train": train, "tokens": tokens, "model": model}
    return Experiment(name, "base", "classify", seconds, settings)


LABELLED_CHANGES: dict[str, Tables] = {
    "ten passes": {"train": {"epochs": 10}},
    "bpe of 8,000": {"tokens": {"kind": "bpe", "size": 8000}},
    "muon": {"train": {"optimiser": "muon"}},
    "every word": {"tokens": {"min_count": 1}},
    "decay 0.1": {"train": {"weight_decay": 0.1}},
}

EXPERIMENTS = [
    *varied(
        translation(5000, 320, {}),
        {
            "linear": {"train": {"fall": 1.0}},
            "fall 0.7": {"train": {"fall": 0.7}},
            "rate 0.005": {"train": {"lr": 5e-3}},
            "rate 0.02": {"train": {"lr": 2e-2}},
            "adam": {"train": {"optimiser": "adam", "lr": 2e-3}},
            "dropout 0.1": {"model": {"dropout": 0.1}},
            "dropout 0.2": {"model": {"dropout": 0.2}},
            "dropout 0.4": {"model": {"dropout": 0.4}},
            "hidden tokens 0.1": {"model": {"token_dropout": 0.1}},
            "vocabulary 2,000": {"tokens": {"size": 2000}},
            "vocabulary 8,000": {"tokens": {"size": 8000}},
            "batches of 768": {"train": {"batch_tokens": 768}},
            "batches of 3,072": {"train": {"batch_tokens": 3072}},
            "decay 0.1": {"train": {"weight_decay": 0.1}},
            "two layers": {"model": {"encoder_layers": 2, "decoder_layers": 2}},
            "sinusoidal": {"model": {"positions": "sinusoidal"}},
            "t5": {"model": {"positions": "t5"}},
            "smoothing 0": {"train": {"smoothing": 0.0}},
            "smoothing 0.2": {"train": {"smoothing": 0.2}},
        },
    ),
    *varied(
        translation(1000, 320, {"tokens": {"size": 2000}}),
        {
            "dropout 0.4": {"model": {"dropout": 0.4}},
            "vocabulary 1,000": {"tokens": {"size": 1000}},
            "vocabulary 4,000": {"tokens": {"size": 4000}},
        },
    ),
    *varied(
        translation(29000, 600, {"tokens": {"size": 8000}, "model": {"dropout": 0.1}, "train": {"batch_tokens": 2048}}),
        {
            "dropout 0.2": {"model": {"dropout": 0.2}},
            "width 192": {"model": {"width": 192, "feed_forward": 512}},
            "vocabulary 4,000": {"tokens": {"size": 4000}},
            "batches of 4,096": {"train": {"batch_tokens": 4096}},
        },
    ),
    *varied(
        language(100, {}),
        {
            "characters": {"tokens": {"kind": "character"}},
            "bpe of 512": {"tokens": {"size": 512}},
            "bpe of 2,048": {"tokens": {"size": 2048}},
            "dropout 0.1": {"model": {"dropout": 0.1}},
            "batches of 2,048": {"train": {"batch_tokens": 2048}},
        },
    ),
    *varied(
        language(600, {"data": {"context": 128}, "model": {"dropout": 0.1}}),
        {
            "characters": {"tokens": {"kind": "character"}, "model": {"dropout": 0.0}},
            "context 64": {"data": {"context": 64}},
            "dropout 0.2": {"model": {"dropout": 0.2}},
            "decay 0": {"train": {"weight_decay": 0.0}},
            "bpe of 512": {"tokens": {"size": 512}},
            "six of 192": {"model": {"layers": 6, "width": 192, "heads": 6, "feed_forward": 512}},
        },
    ),
    *varied(labelled("sst2", {"train": ["sst2/train.tsv"], "valid": ["sst2/dev.tsv"]}, 50), LABELLED_CHANGES),
    *varied(labelled("trec", {"train": ["trec.train.tsv"]}, 50), LABELLED_CHANGES),
]


def by_optimiser(kind: str, task: str, data: Tables, over: Tables | None = None) -> list[Experiment]:
    """A family with AdamW and with Muon, each at two rates, 40 seconds."""
    rates = {"adam": (1e-3, 3e-3), "muon": (5e-3, 1e-2)}
    settings: Tables = {"data": data, "model": {"kind": kind}, "preset": "demo"}
    return [
        Experiment(
            "optimisers",
            f"{kind}, {optimiser} {rate:g}",
            task,
            40.0,
            merge(
                merge(settings, over or {}), {"train": {**TIMED, "optimiser": optimiser, "lr": rate, "select": "loss"}}
            ),
        )
        for optimiser, several in rates.items()
        for rate in several
    ]


DATES: Tables = {"builtin_size": 20_000, "hold_out": 300}
SHAKESPEARE: Tables = {"train": ["tinyshakespeare/input.txt"], "context": 64, "share": 0.05}
PAIRS: Tables = {"train": {"batch_tokens": 1024}, "validate": {"sentences": 100}}
TREC: Tables = {"train": ["trec.train.tsv"]}
WORDS: Tables = {"tokens": {"kind": "word", "lowercase": True}, "train": {"batch_tokens": 1024}}
PIECES: Tables = {"tokens": {"size": 1024}, "train": {"batch_tokens": 1024}}
EXPERIMENTS += [
    *(each for kind in ("transformer", "bahdanau", "luong") for each in by_optimiser(kind, "translate", DATES, PAIRS)),
    *(
        each
        for kind in ("llama", "gpt2", "lstm")
        for each in by_optimiser(kind, "generate", SHAKESPEARE, {**PIECES, "samples": 0})
    ),
    *by_optimiser("bert", "fill", SHAKESPEARE, PIECES),
    *(each for kind in ("additive", "self-attention") for each in by_optimiser(kind, "classify", TREC, WORDS)),
    *(
        each
        for kind in ("convnet", "vit", "mixer", "convmixer")
        for each in by_optimiser(kind, "classify-pictures", {"builtin_size": 4000, "hold_out": 400})
    ),
    *(
        each
        for kind in ("show-attend-tell", "caption-transformer")
        for each in by_optimiser(kind, "caption", {"builtin_size": 1000, "hold_out": 60})
    ),
    *by_optimiser("answerer", "answer", {"builtin_size": 1000, "hold_out": 100}),
]


def by_rules(group: str, task: str, seconds: float, settings: Tables, **rates: tuple[float, ...]) -> list[Experiment]:
    """A family with the settings that the rules give it, by each optimiser at each of its rates."""
    own = merge({"train": {**TIMED, "select": "loss"}}, settings)
    return [
        Experiment(group, f"{name} {rate:g}", task, seconds, merge(own, {"train": {"optimiser": name, "lr": rate}}))
        for name, several in rates.items()
        for rate in several
    ]


CIFAR: Tables = {"train": ["pictures/cifar10/train.bin"], "augment": {"crop": 3, "flip": True}}
EXPERIMENTS += [
    *by_rules(
        "optimisers-fill",
        "fill",
        100.0,
        {
            "data": {"train": ["tinyshakespeare.txt"], "context": 64},
            "tokens": {"size": 4096},
            "masked": 0.3,
            "model": {"norm": "pre", "layers": 4, "width": 128, "heads": 4, "feed_forward": 512},
            "train": {"warmup": 50, "batch_tokens": 2048},
            "validate": {"tokens": 65_536},
        },
        adam=(1e-3, 2e-3, 4e-3),
        muon=(2.5e-3, 5e-3, 1e-2),
    ),
    *by_rules(
        "optimisers-cifar10",
        "classify-pictures",
        100.0,
        {
            "data": CIFAR,
            "model": {"kind": "convnet", "channels": [32, 64, 128, 192], "layers": 1},
            "train": {"batch_pictures": 64, "smoothing": 0.1, "ema": 0.98},
        },
        adam=(3e-3,),
        muon=(3e-3, 1e-2),
    ),
    *by_rules(
        "optimisers-scenes",
        "caption",
        100.0,
        {
            "model": {"kind": "show-attend-tell", "width": 64, "hidden": 128},
            "train": {"batch_pictures": 32},
        },
        adam=(2e-3,),
        muon=(5e-3, 1e-2),
    ),
]


def by_embedding_rate(task: str, name: str, updates: int, settings: Tables) -> list[Experiment]:
    """Embeddings and the output layer at the rate of the matrices and at multiples of it, by as many updates each."""
    train = {**TIMED, "steps": updates, "fall": 0.6, "warmup": 50, "validate_every": updates // 2, "select": "loss"}
    base = merge({"probes": 0, "train": {**train, "optimiser": "muon", "lr": 1e-2}}, settings)
    times = {f"{rate:g} times": {"train": {"embedding_rate": rate}} for rate in (0.3, 3.0, 8.0)}
    return varied(Experiment(f"embedding-rate-{name}", "base", task, 0.0, base), times)


FOUR: Tables = {"kind": "llama", "layers": 4, "width": 128, "heads": 4, "feed_forward": 344}
EXPERIMENTS += [
    *by_embedding_rate(
        "generate",
        "ptb",
        500,
        {
            "data": {"train": ["ptb.train.txt"], "valid": ["ptb.valid.txt"], "context": 128},
            "tokens": {"kind": "space", "size": 10_004},
            "model": {**FOUR, "dropout": 0.0},
            "train": {"batch_tokens": 1024},
            "validate": {"tokens": 32_768},
            "samples": 0,
        },
    ),
    *by_embedding_rate(
        "generate",
        "shakespeare",
        700,
        {
            "data": {"train": ["tinyshakespeare/input.txt"], "context": 64},
            "tokens": {"size": 1024},
            "model": {**FOUR, "dropout": 0.1},
            "train": {"batch_tokens": 1024},
            "validate": {"tokens": 65_536},
            "samples": 0,
        },
    ),
    *by_embedding_rate(
        "translate",
        "translate-5000",
        400,
        {
            "data": {"train": ["m5000.en", "m5000.de"], "valid": ["val.en", "val.de"], "languages": ["en", "de"]},
            "tokens": {"size": 4000},
            "model": {"dropout": 0.3, "positions": "rotary", "encoder_layers": 3, "decoder_layers": 3},
            "train": {"batch_tokens": 1536},
            "validate": {"sentences": 150},
        },
    ),
]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--out", type=Path, default=Path("recipes.json"))
    parser.add_argument("--list", action="store_true", help="say which groups there are")
    parser.add_argument("--tiny", action="store_true", help="one experiment of two seconds on built-in dates")
    arguments = parser.parse_args(words)
    groups = list(dict.fromkeys(each.group for each in EXPERIMENTS))
    if arguments.tiny:
        settings: Tables = {"train": {**TIMED, "batch_tokens": 256}, "data": {"builtin_size": 300}, "preset": "demo"}
        print(json.dumps(measure(Experiment("tiny", "base", "translate", 2.0, settings), Path.cwd())))
        return
    if arguments.list or arguments.folder is None or not set(arguments.groups) <= set(groups):
        print("groups:", ", ".join(groups))
        return
    torch.set_num_threads(1)
    for each in EXPERIMENTS:
        found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        if each.key not in found and (not arguments.groups or each.group in arguments.groups):
            row = measure(each, arguments.folder)
            found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
            arguments.out.write_text(json.dumps({**found, each.key: row}, indent=1) + "\n")
            print(each.key, json.dumps(row["best"]), flush=True)


def measure(experiment: Experiment, data: Path) -> dict[str, Any]:
    """Train, by the processor's clock; the best validation and all of them."""
    folder = Path(tempfile.mkdtemp())
    try:
        settings = merge(experiment.settings, {"train": {"budget": experiment.seconds or None}})
        config = run_config(experiment.task, settings)
        prepared = prepare(config, folder, data_root=data, resume=False)
        outcome: Outcome = train(replace(prepared.job, clock=time.process_time), Show())
        rows = [row for row in RunLog(folder).rows() if row["kind"] == "valid"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "seconds": experiment.seconds,
        "steps": outcome.progress.step,
        "parameters": sum(parameter.numel() for parameter in prepared.job.model.parameters()),
        "best": {name: value for name, value in outcome.metrics.items() if name in KEPT},
        "validations": [{name: row[name] for name in KEPT if name in row} for row in rows],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
