"""Sequences of bits that come back: a neural Turing machine beside others, and a network that decides how long it thinks.

    python benchmarks/remember.py [copy copy-lstm copy-llama recall recall-lstm sums-0.003] --out docs/results/remember.json
    python benchmarks/remember.py table --out docs/results/remember.json [--image docs/images/remembering/steps.png]

Every run is one `regard train remember` with the settings below; it lies in a folder of its own under `--runs`, and one that
was stopped goes on. Of several seeds the one with the least loss in its last hundred updates of training counts; all are shown.
1,000 sequences of each length (Graves et al. 2014, sections 4.1 and 4.3; Graves 2016, section 3.1).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from regard.files import write_bytes, write_json
from regard.look.figures.sheet import DPI, render, style, tidy
from regard.tasks.configure import run_config
from regard.tasks.remember.predictor import Rememberer
from regard.tasks.run import resume_run, start_run
from regard.training.history import RunLog
from regard.training.state import has_checkpoint

LATE = 100  # last updates of training, whose mean loss tells which seed counts
Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What is trained, and the lengths that are tested."""

    data: str
    lengths: tuple[int, ...]
    model: dict[str, Any]
    train: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)


LSTM = {"kind": "lstm", "width": 256, "hidden": 256, "layers": 1, "dropout": 0.0}
LLAMA = {"kind": "llama", "width": 128, "heads": 4, "layers": 2, "feed_forward": 256, "max_length": 200, "dropout": 0.0}
LONGER = {"steps": 5000}
THINKS = {"kind": "ponder", "cell": "gru", "free": 600, "bias": -1.0}
SUMS = ({"steps": 2000, "lr": 2e-3}, {"batch": 128, "size": 128_000})
MEASURED = {
    "copy": Measured("builtin/copy-bits/20", (10, 20, 30, 40, 80), {}),
    "copy-lstm": Measured("builtin/copy-bits/20", (10, 20, 30, 40, 80), LSTM, LONGER),
    "copy-llama": Measured("builtin/copy-bits/20", (10, 20, 30, 40, 80), LLAMA),
    "recall": Measured("builtin/recall-bits/6", (2, 4, 6, 8, 12), {}, LONGER),
    "recall-lstm": Measured("builtin/recall-bits/6", (2, 4, 6, 8, 12), LSTM, LONGER),
    **{
        f"sums-{cost:g}": Measured(
            "builtin/sum-bits/8", tuple(range(1, 9)), {**THINKS, "cost": cost, "most": most}, *SUMS
        )
        for cost, most in ((0.003, 20), (0.01, 16))
    },
    "parity-0.01": Measured(
        "builtin/parity-bits/8",
        tuple(range(1, 9)),
        {"kind": "ponder", "cost": 0.01},
        {"steps": 12_000, "lr": 2e-3},
        {"batch": 64, "size": 64_000},
    ),
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["copy"], help=f"{', '.join(MEASURED)}; or table")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--runs", type=Path, default=Path("runs/remember"))
    parser.add_argument("--count", type=int, default=1000, help="sequences of each length")
    parser.add_argument("--out", type=Path, default=Path("remember.json"))
    parser.add_argument("--image", type=Path, help="with table: the steps of thinking by difficulty, as a picture")
    parser.add_argument("--tiny", action="store_true", help="some updates of one small machine")
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    rows: list[Row]
    if options.what == ["table"]:
        rows = json.loads(options.out.read_text(encoding="utf-8"))
        print(table(rows))
        if options.image is not None:
            write_bytes(options.image, render(steps_by_difficulty(rows), "png"))
        return
    rows = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    for name in options.what:
        for seed in options.seeds:
            if not any(row["what"] == name and row["seed"] == seed for row in rows):
                rows.append(one(name, MEASURED[name], seed, options.runs / f"{name}-{seed}", options.count))
                write_json(options.out, rows)
                print(json.dumps(rows[-1]), flush=True)


def one(name: str, measured: Measured, seed: int, folder: Path, count: int) -> Row:
    """One run, from its start or from where it was stopped, and what comes back wrong of each length."""
    began = time.process_time()
    values = {
        "data": {"train": [measured.data], **measured.sizes},
        "model": measured.model,
        "train": {"seed": seed, **measured.train},
    }
    config = run_config("remember", values)
    result = resume_run(folder) if has_checkpoint(folder) else start_run(config, folder=folder)
    if result.outcome.reason == "interrupted":
        sys.exit(f"{folder} was stopped and is not scored; type the same again to go on")
    rememberer = Rememberer.load(folder)
    late = [row for row in RunLog(folder).rows() if row["kind"] == "train"]
    late = [row for row in late if row["step"] > late[-1]["step"] - LATE]
    found = [rememberer.remember(length, count).data() for length in measured.lengths]
    loss = statistics.mean(row["loss"] for row in late)
    seconds = round(time.process_time() - began, 1)
    return {
        "what": name,
        "seed": seed,
        "training_loss": loss,
        "updates": late[-1]["step"],
        "seconds": seconds,
        "lengths": found,
    }


def table(rows: Sequence[Row]) -> str:
    """Of each experiment a row for every seed; the one that counts is marked."""
    lines = []
    for name in dict.fromkeys(row["what"] for row in rows):
        runs = [row for row in rows if row["what"] == name]
        best = min(runs, key=lambda row: row["training_loss"])
        ponders = "steps" in runs[0]["lengths"][0]
        lengths = [each["length"] for each in runs[0]["lengths"]]
        lines += [
            "",
            f"| {name} | loss of training | " + " | ".join(map(str, lengths)) + " |",
            "|---" * (len(lengths) + 2) + "|",
        ]
        for row in runs:
            cells = [f"{each['wrong_percent']:.3g}%" for each in row["lengths"]]
            if ponders:
                cells = [f"{cell}, {each['steps']:.1f} steps" for cell, each in zip(cells, row["lengths"], strict=True)]
            mark = ", counts" if row is best and len(runs) > 1 else ""
            lines.append(f"| seed {row['seed']}{mark} | {row['training_loss']:.2g} | " + " | ".join(cells) + " |")
    return "\n".join(lines).strip()


def steps_by_difficulty(rows: Sequence[Row]) -> Figure:
    """Steps of thinking over the places that a carry crosses, and wrong bits below: a line for each run on sums."""
    figure = Figure(figsize=(5.2, 5.0), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    ponders = [row for row in rows if row["what"].startswith("sums")]
    for number, row in enumerate(ponders):
        lengths = [each["length"] for each in row["lengths"]]
        label = f"a step costs {row['what'].removeprefix('sums-')}, seed {row['seed']}"
        above.plot(lengths, [each["steps"] for each in row["lengths"]], label=label, linewidth=1.6, **style(number))
        below.plot(lengths, [each["wrong_percent"] for each in row["lengths"]], linewidth=1.6, **style(number))
    for axes in (above, below):
        tidy(axes)
        axes.set_ylim(bottom=0)
    above.set_title("Steps of thinking", fontsize=9.5, loc="left")
    below.set_title("% of bits wrong", fontsize=9.5, loc="left")
    below.set_xlabel("places that the longest carry of a sum crosses")
    above.legend(fontsize=8, frameon=False)
    return figure


def _tiny() -> None:
    small = {"rows": 8, "width": 6, "hidden": 12}
    sizes = {"width": 4, "size": 64}
    with tempfile.TemporaryDirectory() as place:
        machine = Measured("builtin/copy-bits/3", (2, 4), small, {"steps": 60}, sizes)
        ponder = Measured("builtin/sum-bits/3", (1, 3), {"kind": "ponder", "hidden": 8}, {"steps": 60}, {"size": 64})
        rows = [one("copy", machine, seed, Path(place) / f"run-{seed}", count=20) for seed in (1, 2)]
        rows.append(one("sums", ponder, 1, Path(place) / "ponder", count=20))
        print(table(rows))
        write_bytes(Path(place) / "steps.png", render(steps_by_difficulty(rows), "png"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
