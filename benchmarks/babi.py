"""The twenty tasks of bAbI (Weston et al. 2015), 1,000 questions each: a memory network, an LSTM and a Transformer.

    python benchmarks/babi.py FOLDER [--kinds lstm] [--tasks 1 2] [--seeds 1 2 3] [--joint] --out docs/results/babi.json
    python benchmarks/babi.py table --out docs/results/babi.json

FOLDER holds qa1_..._train.txt, qa1_..._test.txt and so on, as they come. Of each task several runs are started by different
seeds; the one with the least error on its own training questions is scored on the test questions (Sukhbaatar et al. 2015,
section 4.2, does so with ten). `--joint` trains one model on all tasks. A task fails above 5% of wrong answers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.data.builtin.worlds import told_stories
from regard.data.stories import read_stories
from regard.files import write_json
from regard.tasks.ask.evaluate import evaluate_stories
from regard.tasks.ask.predictor import StoryReader
from regard.tasks.configure import run_config
from regard.tasks.run import resume_run, start_run
from regard.training.state import has_checkpoint

FAILS = 5.0  # % of wrong answers
MODELS: dict[str, dict[str, Any]] = {
    "memory-network": {"kind": "memory-network", "width": 50, "hops": 3, "noise": 0.1},
    "lstm": {"kind": "lstm", "width": 64, "hidden": 128},
    "bert": {
        "kind": "bert",
        "width": 64,
        "heads": 4,
        "layers": 3,
        "feed_forward": 128,
        "max_length": 700,
        "norm": "pre",
    },
}
TRAINED: dict[str, dict[str, Any]] = {
    "memory-network": {"lr": 5e-3, "steps": 8000, "batch_tokens": 32_768},
    "lstm": {"lr": 2e-3, "steps": 1500},
    "bert": {"lr": 1e-3, "steps": 1500},
}  # on all tasks together
LINEAR = 0.25  # share of the updates of a memory network before there is a softmax (section 4.1, linear start)
ALONE = 0.15  # share of these updates for a single task
SHORT = 8192  # words of a batch of a single task
Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--kinds", nargs="+", choices=list(MODELS), default=["memory-network"])
    parser.add_argument("--tasks", nargs="+", type=int, default=list(range(1, 21)))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--joint", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="A.B=C", help="settings to try")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/babi"), help="where runs lie; one that was stopped goes on"
    )
    parser.add_argument("--out", type=Path, default=Path("babi.json"))
    parser.add_argument("--tiny", action="store_true", help="two small files of our own, some updates")
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    if options.folder is None:
        parser.error("name the folder of bAbI, or table (or --tiny)")
    if str(options.folder) == "table":
        print(table(json.loads(options.out.read_text(encoding="utf-8"))))
        return
    measure(
        options.folder,
        options.kinds,
        options.tasks,
        options.seeds,
        options.joint,
        options.set,
        options.runs,
        options.out,
    )


def measure(
    folder: Path, kinds: Sequence[str], tasks: Sequence[int], seeds: Sequence[int], joint: bool, given: Sequence[str],
    runs: Path, out: Path,
) -> None:  # fmt: skip
    """Run what is missing in the file of results, one row after the other."""
    rows: list[Row] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    known = {(row["kind"], tuple(row["tasks"]), row["seed"]) for row in rows}
    groups = [list(tasks)] if joint else [[task] for task in tasks]
    for kind in kinds:
        for group in groups:
            for seed in seeds:
                if (kind, tuple(group), seed) not in known:
                    rows.append(one(folder, kind, group, seed, runs, given))
                    write_json(out, rows)
                    print(json.dumps(rows[-1]), flush=True)


def one(
    folder: Path, kind: str, tasks: Sequence[int], seed: int, runs: Path, given: Sequence[str] = (), updates: int = 0
) -> Row:
    """One run: its errors on the questions that it learned from, and on the test questions of each task."""
    train, test = ([_file(folder, task, split) for task in tasks] for split in ("train", "test"))
    joint = len(tasks) > 1
    steps = updates or round(TRAINED[kind]["steps"] * (1.0 if joint else ALONE))
    values: dict[str, Any] = {
        "data": {
            "train": [str(file) for file in train],
            "hold_out": 100 * len(tasks),
            "mixed": kind == "memory-network",
        },
        "model": dict(MODELS[kind]),
        "train": {**TRAINED[kind], "seed": seed, "steps": steps, "validate_every": max(1, steps // 14)},
    }
    if kind == "memory-network":
        values["model"]["linear_start"] = round(LINEAR * steps)
    if not joint:
        values["train"]["batch_tokens"] = SHORT
    for each in given:
        (table_, key), value = each.split("=")[0].split("."), json.loads(each.split("=", 1)[1])
        values[table_][key] = value
    began, run = time.process_time(), runs / f"{kind}-{'-'.join(map(str, tasks))}-{seed}"
    if has_checkpoint(run):
        resume_run(run)
    else:
        start_run(run_config("ask", values), folder=run)
    reader = StoryReader.load(run)
    wrong = {file.name: 100 - evaluate_stories(reader, read_stories([str(file)])).scores.accuracy for file in test}
    learned = 100 - evaluate_stories(reader, read_stories([str(file) for file in train])).scores.accuracy
    seconds = round(time.process_time() - began, 1)
    return {
        "kind": kind,
        "tasks": list(tasks),
        "seed": seed,
        "updates": steps,
        "training_error": learned,
        "test_errors": wrong,
        "seconds": seconds,
    }


def _file(folder: Path, task: int, split: str) -> Path:
    found = sorted(folder.glob(f"qa{task}_*_{split}.txt"))
    if not found:
        sys.exit(f"{folder} has no file qa{task}_*_{split}.txt")
    return found[0]


def table(rows: Sequence[Row]) -> str:
    """Of each kind and task the run of the least training error, with all others beside it."""
    lines = [
        "| task | " + " | ".join(kinds := sorted({row["kind"] for row in rows})) + " |",
        "|---|" + "---|" * len(kinds),
    ]
    tasks = sorted({task for row in rows for task in row["tasks"]})
    best: dict[str, list[float]] = {kind: [] for kind in kinds}
    for task in tasks:
        cells = []
        for kind in kinds:
            runs = [row for row in rows if row["kind"] == kind and task in row["tasks"]]
            chosen = min(runs, key=lambda row: row["training_error"], default=None)
            if chosen is None:
                cells.append("")
                continue
            errors = [
                next(e for name, e in row["test_errors"].items() if name.startswith(f"qa{task}_")) for row in runs
            ]
            error = next(e for name, e in chosen["test_errors"].items() if name.startswith(f"qa{task}_"))
            best[kind].append(error)
            cells.append(f"{error:.1f} (of {', '.join(f'{each:.1f}' for each in errors)})")
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    means = [f"{statistics.mean(best[kind]):.1f}, {sum(e > FAILS for e in best[kind])} fail" for kind in kinds]
    return "\n".join([*lines, "| mean | " + " | ".join(means) + " |"])


def _tiny() -> None:
    """Stories of ours in bAbI's form, and a run of some updates."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for split, count in (("train", 60), ("test", 10)):
            told = told_stories(split, count)
            text = ""
            for sentences, question, answer, support in told:
                text += "".join(f"{number} {sentence}\n" for number, sentence in enumerate(sentences, start=1))
                facts = " ".join(str(place + 1) for place in support)
                text += f"{len(sentences) + 1} {question} \t{answer}\t{facts}\n"
            (folder / f"qa1_made_{split}.txt").write_text(text)
        rows = [one(folder, "memory-network", [1], 1, folder / "runs", updates=60)]
        print(table(rows))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
