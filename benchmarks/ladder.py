"""The ladder of attention in text classification, rung by rung, on SST-2, TREC or IMDb.

    REGARD_DATA=... python benchmarks/ladder.py sst2 trec imdb --budget 45s --out docs/results/ladder.json

Each rung is trained for the same time with three learning rates; the one that is best on validation is scored on the
test set, once. Results are kept in the file as they come, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.compare.conditions import conditions
from regard.config import merge
from regard.tasks.budget import fit
from regard.tasks.classify.evaluate import evaluate_labels, read_labelled_test
from regard.tasks.configure import data_folder, run_config
from regard.tasks.run import start_run
from regard.training.config import seconds

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "ladder"
RUNGS = ("tfidf", "token-weights", "plain-attention", "additive", "self-attention", "bert")
RATES = {  # the middle one did best, or nearly, on SST-2's validation texts
    "tfidf": (0.01, 0.03, 0.1),
    "token-weights": (3e-3, 1e-2, 3e-2),
    "plain-attention": (3e-3, 1e-2, 3e-2),
    "additive": (1.5e-3, 4e-3, 1e-2),
    "self-attention": (1e-3, 3e-3, 1e-2),
    "bert": (5e-4, 1e-3, 2e-3),
}
MADE = "made.tsv"
DROPOUT = {"tfidf": 0.0, "bert": 0.1}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", metavar="sst2|trec|imdb")
    parser.add_argument("--budget", default="45s")
    parser.add_argument("--rungs", nargs="+", default=RUNGS)
    parser.add_argument("--rates", type=int, default=3, help="learning rates tried: 1 takes the middle one")
    parser.add_argument("--out", type=Path, default=Path("ladder.json"))
    parser.add_argument("--tiny", action="store_true", help="one step of each rung on a made file, in seconds")
    arguments = parser.parse_args(words)
    if arguments.tiny:
        for rung in RUNGS:
            print(rung, json.dumps(climb(MADE, rung, 0.0, 1)), flush=True)
        return
    if not arguments.data or not {"sst2", "trec", "imdb"}.issuperset(arguments.data):
        parser.error("name sst2, trec or imdb (or --tiny)")
    found = (
        json.loads(arguments.out.read_text()) if arguments.out.exists() else {"conditions": conditions("cpu").data()}
    )
    for data in arguments.data:
        table = found.setdefault(data, {"rungs": {}})["rungs"]
        for rung in arguments.rungs:
            if rung not in table:
                table[rung] = {"budget": arguments.budget} | climb(
                    data, rung, float(seconds(arguments.budget)), arguments.rates
                )
                arguments.out.write_text(json.dumps(found, indent=1) + "\n")
            print(data, rung, json.dumps(table[rung]), flush=True)


def climb(data: str, rung: str, budget: float, rates: int) -> dict[str, Any]:
    """Train a rung with each learning rate; score the best on the test set."""
    place = Path(tempfile.mkdtemp())
    tried, best = {}, None
    for rate in RATES[rung] if rates == 3 else RATES[rung][1:2]:
        result = train(data, rung, rate, budget, place / str(rate))
        accuracy = result.outcome.metrics["accuracy"]
        tried[str(rate)] = accuracy
        if best is None or accuracy > best.outcome.metrics["accuracy"]:
            best = result
    assert best is not None
    model = best.load()
    names = [str(place / MADE)] if data == MADE else run_config(str(CONFIGS / f"{data}.toml")).data.test
    test = evaluate_labels(model, read_labelled_test(names, best.folder))
    shutil.rmtree(place)
    return {
        "validation": tried,
        "accuracy": test.scores.accuracy,
        "interval": [test.scores.low, test.scores.high],
        "macro_f1": test.scores.macro_f1,
        "parameters": sum(p.numel() for p in model.model.parameters()),
        "steps": best.outcome.progress.step,
        "texts_per_second": len(test.wanted) / test.seconds,
    }


def train(data: str, rung: str, rate: float, budget: float, folder: Path) -> Any:
    what = "classify" if data == MADE else str(CONFIGS / f"{data}.toml")
    over: dict[str, Any] = {"model": {"kind": rung, "dropout": DROPOUT.get(rung)}, "train": {"lr": rate}}
    if rung not in DROPOUT:
        del over["model"]["dropout"]
    if rung == "bert":
        over["model"] |= {"norm": "pre", "max_length": 384, "positions": "rotary", "labels_from": "mean"}
    if data == MADE:
        file = folder.with_name(MADE)
        file.write_text("".join(f"{'a good' if n % 2 else 'no'} film {n}\t{n % 2}\n" for n in range(60)))
        once = {"steps": 1, "validate_every": 1, "warmup": 0}
        return start_run(run_config(what, merge(over, {"data": {"train": [str(file)]}, "train": once})), folder=folder)
    config = run_config(what, over)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    config = fit(f"{data} {rung} {rate}", config, data_folder(what), budget, folder.with_name("m"), "cpu", say)
    return start_run(config, data_root=data_folder(what), folder=folder)


if __name__ == "__main__":
    torch.set_num_threads(max(1, torch.get_num_threads()))
    main()
