"""Forecasts of runs, held against how the runs ended: short runs of several tasks under budgets of processor time.

    REGARD_DATA=... python benchmarks/forecasts.py --outside --out docs/results/forecasts.json
    python benchmarks/forecasts.py runs/translate/*

Each run is kept as a row: its validations, its last step and the metrics of its best weights; what is there is not run again.
The second form trains nothing, and holds what would have been foretold half way against how these runs ended.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from regard.files import write_json
from regard.tasks.choose import Chooser
from regard.tasks.configure import asked_settings, run_config
from regard.tasks.run import start_run
from regard.training import timetable
from regard.training.history import RunLog, read_history
from regard.training.outlook import HALF_WAY, SCORES, Interval, curve_of, interval_at_end

Row = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """One kind of run: its task, its data, and what is set differently from the rules."""

    name: str
    task: str
    over: dict[str, Any] = field(default_factory=dict)
    outside: bool = False  # whether its data is not built in


FEW = {"sentences": 60}  # of a validation, which else would take most of such a short run
MULTI30K = {"train": ["multi30k/train.en.gz", "multi30k/train.de.gz"], "hold_out": 150, "languages": ["en", "de"]}
SHAKESPEARE = {"train": ["tinyshakespeare/input.txt"], "share": 0.02}
CHARACTERS = {"kind": "character"}
TREC = {"train": ["trec/TREC.train.all"], "label_first": True, "encoding": "latin1", "hold_out": 500}
SMALL = {"samples": 0, "model": {"layers": 2, "width": 64, "heads": 2}}
DEMO = {"preset": "demo", "validate": FEW}
SUBJECTS = (
    Subject("dates", "translate", {"data": {"builtin_size": 4000, "hold_out": 200}, **DEMO}),
    Subject("copies", "translate", {"data": {"train": ["builtin/copy/8"], "builtin_size": 4000}, **DEMO}),
    Subject("python", "generate", {"data": {"builtin_size": 400_000, "share": 0.05}, **SMALL}),
    Subject("python, little", "generate", {"data": {"builtin_size": 30_000}, **SMALL}),
    Subject("python, filled", "fill", {"data": {"builtin_size": 300_000, "share": 0.05}, "preset": "demo"}),
    Subject("names", "classify"),
    Subject("names, by attention", "classify", {"model": {"kind": "self-attention"}}),
    Subject("glyphs", "classify-pictures", {"data": {"builtin_size": 2000, "hold_out": 200}, "preset": "demo"}),
    Subject("shapes", "caption", {"data": {"builtin_size": 1000, "hold_out": 60}, "preset": "demo"}),
    Subject("shapes, asked", "answer", {"data": {"builtin_size": 1000, "hold_out": 100}, "preset": "demo"}),
    Subject("Multi30k", "translate", {"data": MULTI30K, **DEMO}, outside=True),
    Subject("Shakespeare", "generate", {"data": SHAKESPEARE, **SMALL}, outside=True),
    Subject("Shakespeare, characters", "generate", {"data": SHAKESPEARE, "tokens": CHARACTERS, **SMALL}, outside=True),
    Subject("TREC", "classify", {"data": TREC}, outside=True),
    Subject("TREC, by attention", "classify", {"data": TREC, "model": {"kind": "self-attention"}}, outside=True),
)
BATCH = {"batch_tokens": 256, "batch_pictures": 16}  # small ones, so that such a short run has many updates
COSTLY = 4.0  # validations are dear beside such short runs, but a forecast stands on them


def run(subject: Subject, budget: float, seed: int) -> Row:
    """Train for so many seconds of processor time; the validations, and how it ended."""
    over = {**subject.over, "train": {**BATCH, "seed": seed}}
    config, asked = run_config(subject.task, over), asked_settings(subject.task, over)
    chooser = Chooser(asked, budget, time.process_time(), clock=time.process_time)
    with tempfile.TemporaryDirectory() as place, mock.patch.object(timetable, "COSTLY", COSTLY):
        result = start_run(config, folder=Path(place) / "run", chooser=chooser)
        rows = RunLog(result.folder).rows()
        made = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))["config"]["train"]
    outcome = result.outcome
    about = {"name": subject.name, "task": subject.task, "budget": budget, "seed": seed, "select": made["select"]}
    about |= {"schedule": "wsd", "fall": made["fall"], "steps": outcome.progress.step, "reason": outcome.reason}
    return {**about, "metrics": outcome.metrics, "curve": [_numbers(row) for row in rows if row["kind"] == "valid"]}


def _numbers(row: Row) -> Row:
    return {
        name: value for name, value in row.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def recorded(folder: Path) -> Row:
    """The row of a run in its folder."""
    about, rows = json.loads((folder / "run.json").read_text(encoding="utf-8")), RunLog(folder).rows()
    train, history = about["config"]["train"], read_history(folder)
    assert history is not None
    return {
        "name": str(folder),
        "task": about["config"]["task"],
        "select": train["select"],
        "schedule": train["schedule"],
        "fall": train["fall"],
        "steps": history.steps,
        "metrics": history.validation,
        "curve": [_numbers(row) for row in rows if row["kind"] == "valid"],
    }


def rate_at(row: Row, share: float) -> float:
    """The learning rate as a share of its peak, by the schedule."""
    if row["schedule"] == "cosine":
        return 0.5 * (1 + math.cos(math.pi * share))
    return min(1.0, (1 - share) / (row["fall"] if row["schedule"] == "wsd" else 1.0))


@dataclass(frozen=True)
class Checked:
    """A forecast from about half way beside what came."""

    row: Row
    metric: str
    share: float
    interval: Interval
    came: float

    @property
    def held(self) -> bool:
        return self.interval.low - 1e-6 <= self.came <= self.interval.high + 1e-6


def check(row: Row, metric: str) -> Checked | None:
    """Forecast from the validation nearest to half way, as a run would have done then."""
    curve = [{"kind": "valid", **point} for point in row["curve"] if metric in point]
    low, high = HALF_WAY
    shares = [point["step"] / row["steps"] for point in curve]
    near = [number for number, share in enumerate(shares) if low <= share <= high]
    if not near or metric not in row["metrics"]:
        return None
    last = min(near, key=lambda number: abs(shares[number] - 0.5))
    seen = curve_of(curve[: last + 1], metric)
    interval = None if seen is None else interval_at_end(seen, shares[last], rate_at(row, shares[last]))
    if interval is None:
        return None
    values = [point[metric] for point in curve]
    return Checked(row, metric, shares[last], interval, max(values) if metric in SCORES else min(values))


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """Print, and return, how many forecasts held and how wide they were, of each task and in all."""
    found: dict[str, Any] = {}
    print(f"{len(rows)} runs")
    for kind in ("loss", "score"):
        checked = [check(row, "loss" if kind == "loss" else row["select"]) for row in rows]
        whole = [each for each in checked if each is not None and (kind == "loss" or each.metric in SCORES)]
        for task in (*dict.fromkeys(each.row["task"] for each in whole), *(["all"] if whole else [])):
            some = [each for each in whole if task in (each.row["task"], "all")]
            wide = [each.interval.high - each.interval.low for each in some]
            if kind == "loss":
                wide = [width / each.came for width, each in zip(wide, some, strict=True)]
            width = float(np.median(wide))
            found[f"{kind} {task}"] = {
                "runs": len(some),
                "held": sum(each.held for each in some),
                "width": round(width, 3),
            }
            told = f"{width:.1%} of the loss" if kind == "loss" else f"{width:.1f} points"
            print(f"{kind:5} {task:18} {sum(each.held for each in some):3} of {len(some):3} held, median width {told}")
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs: only they are checked, nothing is trained")
    parser.add_argument("--out", type=Path, default=Path("forecasts.json"))
    parser.add_argument("--budgets", type=float, nargs="+", default=[12.0, 24.0], help="seconds of processor time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--outside", action="store_true", help="also data that is not built in, from REGARD_DATA")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--tiny", action="store_true", help="two short runs on built-in data")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    if arguments.tiny:
        report([run(subject, 4.0, 1) for subject in SUBJECTS if subject.name == "names"])
        return
    if arguments.runs:
        report([recorded(folder) for folder in arguments.runs])
        return
    kept = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {"runs": []}
    for seed, budget, subject in product(arguments.seeds, arguments.budgets, SUBJECTS):
        wanted = not subject.outside or arguments.outside
        done = any(
            (row["name"], row.get("budget"), row.get("seed")) == (subject.name, budget, seed) for row in kept["runs"]
        )
        if not wanted or done or (arguments.only and subject.name not in arguments.only):
            continue
        kept["runs"].append(run(subject, budget, seed))
        write_json(arguments.out, kept)
        print(subject.name, budget, kept["runs"][-1]["metrics"], flush=True)
    kept["report"] = report(kept["runs"])
    write_json(arguments.out, kept)


if __name__ == "__main__":
    main()
