"""Kernels side by side on tasks that need length, at equal steps: ListOps, bytes of IMDb reviews, tiny Shakespeare.

    REGARD_DATA=... python benchmarks/long.py listops imdb shakespeare --out docs/results/long.json [--rows exact performer]

Each row is the same model with another kernel in it, trained for the same steps on the same batches, one thread. Results
are kept in the file as they come, and what is there is not run again. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.compare.conditions import conditions
from regard.config import merge
from regard.runs import CONFIG
from regard.tasks.classify.evaluate import evaluate_labels, read_labelled_test
from regard.tasks.configure import data_folder, run_config
from regard.tasks.run import resume_run, start_run
from regard.training.show import Show

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "long"
KERNELS: dict[str, dict[str, Any]] = {  # of each kernel about as many pairs for a query, where it has a choice
    "exact": {},
    "window": {"reach": 32},
    "strided": {"stride": 24},
    "bigbird": {"block": 16, "window": 3, "globals": 1, "random": 2},
    "linformer": {"size": 64},
    "reformer": {"chunk": 32, "rounds": 2},
    "performer": {"features": 64},
    "linear": {},
    "s4d": {"state": 16},
    "mamba": {"state": 8},
}
BOTH_SIDES_ONLY = ("bigbird", "linformer")
TESTED = 2000  # texts, evenly from all
ONCE = {"steps": 1, "validate_every": 1, "warmup": 0}
TASKS = {"listops": "listops.toml", "imdb": "imdb-bytes.toml", "shakespeare": "shakespeare-512.toml"}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="|".join(TASKS))
    parser.add_argument("--rows", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--runs", type=Path, default=Path("runs/long"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("long.json"))
    parser.add_argument("--tiny", action="store_true", help="one step of each row on a made file, in seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "made.tsv"
            file.write_text("".join(f"[MAX {n % 5} {n % 7} ]\t{max(n % 5, n % 7)}\n" for n in range(70)))
            once = {"data": {"train": [str(file)], "test": [str(file)]}, "train": ONCE}
            for kernel in KERNELS:
                print(kernel, json.dumps(measured("listops", kernel, Path(folder) / kernel, once)), flush=True)
        return
    if not options.tasks or not TASKS.keys() >= set(options.tasks):
        parser.error(f"name {', '.join(TASKS)} (or --tiny)")
    for task in options.tasks:
        for kernel in options.rows:
            if (task == "shakespeare" and kernel in BOTH_SIDES_ONLY) or kernel in read(options.out).get(task, {}):
                continue
            entry = measured(task, kernel, options.runs / task / kernel)
            found = read(options.out)
            found.setdefault(task, {})[kernel] = entry
            options.out.write_text(json.dumps(found, indent=1) + "\n")
            print(task, kernel, json.dumps(entry), flush=True)


def read(path: Path) -> dict[str, Any]:
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {"conditions": conditions("cpu").data()}


def measured(task: str, kernel: str, folder: Path, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train a row and score it."""
    what = str(CONFIGS / TASKS[task])
    over: dict[str, Any] = {"attention": {"kind": kernel, **KERNELS[kernel]}}
    if kernel in ("s4d", "mamba") and task != "listops":
        over["positions"] = "none"  # it knows its place, and has no queries that could be turned
    config = run_config(what, merge({"model": over}, more or {}))
    before = time.process_time()
    if (folder / CONFIG).exists():
        result = resume_run(folder, show=Show())
    else:
        result = start_run(config, data_root=data_folder(what), folder=folder, show=Show())
    worked = time.process_time() - before
    user, progress = result.load(), result.outcome.progress
    return {
        "parameters": sum(p.numel() for p in user.model.parameters() if p.requires_grad),
        "steps": progress.step,
        "seconds": progress.seconds,
        "processor_seconds": worked,  # of this process alone: other programs of the machine count less
        "validation": result.outcome.metrics,
        **scored(task, user, folder, config),
    }


def scored(task: str, user: Any, folder: Path, config: Any) -> dict[str, Any]:
    if task == "shakespeare":
        return {}  # validation is all there is
    names = config.data.test or ["builtin/listops/test"]
    texts = read_labelled_test(names, folder)
    found = evaluate_labels(user, texts[:: max(1, len(texts) // TESTED)])
    scores = found.scores
    return {"test": {"accuracy": scores.accuracy, "interval": [scores.low, scores.high], "items": len(found.wanted)}}


if __name__ == "__main__":
    torch.set_num_threads(max(1, torch.get_num_threads()))
    main()
