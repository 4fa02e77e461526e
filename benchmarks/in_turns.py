"""Is another checkout of Regard as fast? Two checkouts in turns: help, a cold translation, and updates of a small Transformer.

    OMP_NUM_THREADS=1 python benchmarks/in_turns.py BEFORE AFTER     # folders that have regard/ in them, in about four minutes
    python benchmarks/in_turns.py --tiny                             # this checkout against itself, some seconds

Each pair of measurements is taken one right after the other, in both orders; what counts is the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from peers.typed import typed_here

HERE = Path(__file__).resolve().parent.parent
# A process that makes one update for each line that it reads, and prints how long it took.
UPDATES = """
import sys, time
import numpy as np, torch
torch.set_num_threads(1)
from regard.data.batches import TokenPairs
from regard.models.config import TransformerConfig
from regard.models.table import build
from regard.noise import noise
size, rows = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
model = build("translate", TransformerConfig(), (size, size)).train()
draw = np.random.default_rng(0)
texts = [[draw.integers(10, size, length).astype(np.int32) for _ in range(rows)] for length in (20, 21)]
batch = TokenPairs(*texts, 0).take(list(range(rows)))
for line in sys.stdin:
    began = time.perf_counter()
    with noise(1, int(line), 0):
        loss = model(batch).parts["loss"]
        (loss.sum / loss.count).backward()
    model.zero_grad(set_to_none=True)
    print(time.perf_counter() - began, flush=True)
"""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="FOLDER", help="before and after")
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args(words)
    before, after = (HERE, HERE) if asked.tiny else [each.resolve() for each in asked.checkouts]
    times = 1 if asked.tiny else 9
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        typed_here(_training(run)) if asked.tiny else _typed(before, place, *_training(run))
        show("regard --help", times, lambda folder: _typed(folder, place, "--help"), before, after)
        translate = ("translate", "-m", str(run), "3 mars 1998")
        show("regard translate, cold", times, lambda folder: _typed(folder, place, *translate), before, after)
    updates(before, after, asked.tiny)


def updates(before: Path, after: Path, tiny: bool) -> None:
    """Forward and backward of a Transformer on batches of 2,000 tokens, without the optimiser."""
    size, rows, times = ("40", "3", 1) if tiny else ("4000", "100", 60)
    workers = {name: _worker(folder, size, rows) for name, folder in (("before", before), ("after", after))}
    for number in range(1 if tiny else 4):
        for worker in workers.values():
            _asked(worker, number)
    found = [{name: _asked(workers[name], number) for name in _order(number)} for number in range(times)]
    _print("an update", [each["before"] for each in found], [each["after"] for each in found])
    for worker in workers.values():
        worker.communicate()


def show(name: str, times: int, measure: Callable[[Path], float], before: Path, after: Path) -> None:
    folders = {"before": before, "after": after}
    found = [{each: measure(folders[each]) for each in _order(number)} for number in range(times)]
    _print(name, [each["before"] for each in found], [each["after"] for each in found])


def _order(number: int) -> tuple[str, str]:
    return ("before", "after") if number % 2 else ("after", "before")


def _print(name: str, before: list[float], after: list[float]) -> None:
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(
        f"{name}: {statistics.median(before):.3f} s before, {statistics.median(after):.3f} s after; "
        f"after / before {statistics.median(ratios):.3f} (median of {len(ratios)} pairs, {spread})",
        flush=True,
    )


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def _typed(folder: Path, place: str, *words: str) -> float:
    """The seconds that a command takes."""
    began = time.perf_counter()
    typed = [sys.executable, "-m", "regard", *words]
    subprocess.run(typed, env=_environment(folder), cwd=place, check=True, capture_output=True)
    return time.perf_counter() - began


def _training(run: Path) -> list[str]:
    settings = ("data.builtin_size=300", "validate.sentences=2", "tokens.kind=character", "train.batch_tokens=256")
    words = ["train", "translate", "--data", "builtin/dates", "--preset", "demo", "--steps", "2", "-o", str(run)]
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def _worker(folder: Path, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", UPDATES, *words], env=_environment(folder), stdin=pipe, stdout=pipe, text=True
    )


def _asked(worker: subprocess.Popen[str], number: int) -> float:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(f"{number}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


if __name__ == "__main__":
    main()
