"""Runs under a budget while another program starts and stops: do they end in time, and as good as undisturbed ones?

    python benchmarks/disturbed.py disturbed --budget 60 --rounds 2 --out docs/results/disturbed.json
    python benchmarks/disturbed.py again --budget 60 --rounds 5 --out docs/results/disturbed.json

`disturbed` trains by the clock beside a program that multiplies matrices for some seconds, pauses for some, and so on; then, by
no clock, a run of the same settings with as many updates, whose rate falls at the same share of them. `again` trains by the
same command several times with nothing else running, by seeds 1, 1, 1, ...: how far apart are they?
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from peers.typed import typed_here

from regard.config import check
from regard.files import write_json
from regard.runs import read_run
from regard.tasks.configure import check_run
from regard.tasks.run import start_run
from regard.training.history import read_history

Row = dict[str, Any]
Typed = Callable[[Sequence[str]], object]  # runs the words of a command
COMMANDS = {
    "dates": ["translate", "--model", "bahdanau"],
    "python": ["generate"],
    "names": ["classify"],
}
BUSY = "import torch\na = torch.rand(600, 600)\nwhile True:\n    a = (a @ a).clamp(0, 1)"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("disturbed", "again"))
    parser.add_argument("--commands", nargs="+", choices=list(COMMANDS), default=list(COMMANDS)[:2])
    parser.add_argument("--budget", type=float, default=60.0, help="seconds")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("disturbed.json"))
    parser.add_argument("--tiny", action="store_true", help="one disturbed run of some seconds")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(disturbed("names", 10.0, 1, Path(place), typed_here)))
        return
    if options.what is None:
        parser.error("name disturbed or again (or --tiny)")
    kept: Row = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    for name in options.commands:
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory() as place:
                if options.what == "disturbed":
                    row = disturbed(name, options.budget, number + 1, Path(place))
                else:
                    row = by_the_clock(name, options.budget, 1, Path(place) / "run")
            kept.setdefault(options.what, {}).setdefault(f"{name}, {options.budget:g} s", []).append(row)
            write_json(options.out, kept)
            print(name, json.dumps(row), flush=True)


def in_a_process(words: Sequence[str]) -> None:
    """Run a command as a person does, whose time begins with the process."""
    subprocess.run([sys.executable, "-m", "regard", *words], check=True, capture_output=True)


def disturbed(name: str, budget: float, seed: int, place: Path, typed: Typed = in_a_process) -> Row:
    """A run beside a program that comes and goes, and one of as many updates that nothing hurries."""
    with somebody_else(seed):
        hurried = by_the_clock(name, budget, seed, place / "hurried", typed)
    config = check_run(read_run(place / "hurried")["config"], "the run")
    steps, train = hurried["steps"], config.train.model_dump()
    warmup = min(train["warmup"], max(1, steps // 10))  # as by the clock
    train |= {"budget": None, "steps": steps, "patience": 0, "warmup": warmup}
    calm = check(type(config), {**config.dump(), "train": train}, "the run")
    outcome = start_run(calm, folder=place / "calm").outcome
    return {"hurried": hurried, "calm": {"steps": outcome.progress.step, **outcome.metrics}}


def by_the_clock(name: str, budget: float, seed: int, folder: Path, typed: Typed = in_a_process) -> Row:
    """Run the command; its time by the clock, its updates and what its best weights were worth on validation."""
    began = time.monotonic()
    typed(["train", *COMMANDS[name], "--budget", f"{budget:g}s", "--seed", str(seed), "-o", str(folder)])
    seconds, history = time.monotonic() - began, read_history(folder)
    assert history is not None
    return {"seconds": round(seconds, 1), "of_budget": round(seconds / budget, 3), "steps": history.steps} | {
        name: value for name, value in history.validation.items() if isinstance(value, int | float)
    }


@contextmanager
def somebody_else(seed: int) -> Iterator[None]:
    """Another program, on for 3 to 12 seconds, off for as long, again and again."""
    done, dice = Event(), random.Random(seed)

    def come_and_go() -> None:
        while not done.is_set():
            busy = subprocess.Popen([sys.executable, "-c", BUSY])
            done.wait(dice.uniform(3, 12))
            busy.kill()
            busy.wait()
            done.wait(dice.uniform(3, 12))

    thread = Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    main()
