"""The twenty tasks of bAbI (Weston et al. 2015), 1,000 questions each: a memory network, an LSTM and a Transformer.

    python benchmarks/babi.py FOLDER [--kinds lstm] [--tasks 1 2] [--seeds 1 2 3] [--joint] --out docs/results/babi.json
    python benchmarks/babi.py table --out docs/results/babi.json

FOLDER holds qa1_..._train.txt, qa1_..._test.txt and so on, as they come. Of each task several runs are started by different
seeds; the one with the least error on its own training questions is scored on the test questions (Sukhbaatar et al. 2015,
section 4.2, does so with ten). `--joint` trains one model on all tasks. A task fails above 5% of wrong answers.

A memory network learns by the paper's recipe: plain gradient descent in batches of 32 without a mean (a rate of 0.01 and a norm
of 40 there are 0.32 and 1.25 of the mean here), weights of N(0, 0.1), adjacent tying, empty memories at random, and a linear
start in which the rate rises. In the paper the rate is halved from time to time; here it falls on a line.
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

from regard.data.builtin.worlds import Told, told_stories
from regard.data.stories import read_stories
from regard.files import write_json
from regard.tasks.ask.evaluate import evaluate_stories
from regard.tasks.ask.predictor import StoryReader
from regard.tasks.configure import run_config
from regard.tasks.run import resume_run, start_run
from regard.training.state import has_checkpoint

FAILS = 5.0  # % of wrong answers
MODELS: dict[str, dict[str, Any]] = {
    "memory-network": {
        "kind": "memory-network",
        "width": 50,
        "hops": 3,
        "tying": "adjacent",
        "noise": 0.1,
        "relu": True,
    },
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
    "memory-network": {"optimiser": "sgd", "lr": 0.32, "clip": 1.25, "steps": 30_000, "batch_tokens": 20_000},
    "lstm": {"lr": 2e-3, "steps": 1500},
    "bert": {"lr": 1e-3, "steps": 600},
}  # on all tasks together: about 260 s of a core each
ALONE: dict[str, dict[str, Any]] = {
    "memory-network": {"model": {"width": 20, "relu": False}, "train": {"steps": 3000}},
    "lstm": {"model": {}, "train": {"steps": 225}},
    "bert": {"model": {}, "train": {"steps": 225}},
}  # what is different for a single task
LINEAR = 0.2  # share of the updates of a memory network before there is a softmax (section 4.1, linear start)
QUESTIONS = 32  # about so many in a batch of a single task
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
    own: dict[str, dict[str, Any]] = {"model": {}, "train": {}} if joint else ALONE[kind]
    train_settings = {**TRAINED[kind], **own["train"]}
    steps = updates or train_settings["steps"]
    values: dict[str, Any] = {
        "data": {
            "train": [str(file) for file in train],
            "hold_out": 100 * len(tasks),
            "mixed": kind == "memory-network",
        },
        "model": {**MODELS[kind], **own["model"]},
        "train": {**train_settings, "seed": seed, "steps": steps, "validate_every": max(1, steps // 14)},
    }
    if kind == "memory-network":
        values["model"]["linear_start"] = values["train"]["warmup"] = round(LINEAR * steps)
    if not joint:
        values["train"]["batch_tokens"] = QUESTIONS * _longest(train)
    for each in given:
        (table_, key), value = each.split("=")[0].split("."), json.loads(each.split("=", 1)[1])
        values[table_][key] = value
    began, run = time.process_time(), runs / f"{kind}-{'-'.join(map(str, tasks))}-{seed}"
    result = resume_run(run) if has_checkpoint(run) else start_run(run_config("ask", values), folder=run)
    if result.outcome.reason == "interrupted":
        sys.exit(f"{run} was stopped and is not scored; type the same again to go on")
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


def _longest(files: Sequence[Path]) -> int:
    """Words of the longest story with its padding, of fifty sentences at most."""
    told = read_stories([str(file) for file in files])
    widest = max(len(sentence.split()) + 1 for story in told for sentence in (*story.sentences, story.question))
    return widest * (1 + min(50, max(len(story.sentences) for story in told)))


def table(rows: Sequence[Row]) -> str:
    """Wrong answers of each kind by task, in %: those of the run of the least training error, and of all runs behind it."""
    kinds = [kind for kind in MODELS if any(row["kind"] == kind for row in rows)]
    tasks = sorted({task for row in rows for task in row["tasks"]})
    lines = [f"| task | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    counted: dict[str, list[float]] = {kind: [] for kind in kinds}
    for task in tasks:
        cells = []
        for kind in kinds:
            runs = [row for row in rows if row["kind"] == kind and task in row["tasks"]]
            counted[kind] += [error_of(min(runs, key=lambda row: row["training_error"]), task)] if runs else []
            cells.append(_cell(counted[kind][-1], [error_of(row, task) for row in runs]) if runs else "")
        lines.append(f"| {task} {_name_of(rows, task)} | {' | '.join(cells)} |")
    means = [f"{statistics.mean(errors):.1f}" for errors in counted.values()]
    fail = [f"{sum(error > FAILS for error in errors)} of {len(errors)}" for errors in counted.values()]
    return "\n".join([*lines, f"| mean | {' | '.join(means)} |", f"| over {FAILS:g}% | {' | '.join(fail)} |"])


def error_of(row: Row, task: int) -> float:
    """Wrong answers of a run to the test questions of a task, in %."""
    return next(float(error) for name, error in row["test_errors"].items() if name.startswith(f"qa{task}_"))


def _name_of(rows: Sequence[Row], task: int) -> str:
    """What a task asks for, by the name of its file: qa1_single-supporting-fact_test.txt."""
    files = (name for row in rows for name in row["test_errors"] if name.startswith(f"qa{task}_"))
    return next(files).split("_")[1].replace("-", " ")


def _cell(error: float, every: Sequence[float]) -> str:
    """The error that counts, with those of all runs behind it if there are several."""
    return f"{error:.1f}" + (f" ({', '.join(f'{each:.1f}' for each in every)})" if len(every) > 1 else "")


def _tiny() -> None:
    """Stories of ours in bAbI's form, and a run of some updates."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for split, count in (("train", 60), ("test", 10)):
            told = told_stories(split, count)
            (folder / f"qa1_made_{split}.txt").write_text("".join(map(_as_babi, told)))
        rows = [one(folder, "memory-network", [1], 1, folder / "runs", updates=60)]
        print(table(rows))


def _as_babi(told: Told) -> str:
    sentences, question, answer, support = told
    facts = " ".join(str(place + 1) for place in support)
    lines = [*sentences, f"{question} \t{answer}\t{facts}"]
    return "".join(f"{number} {line}\n" for number, line in enumerate(lines, start=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
