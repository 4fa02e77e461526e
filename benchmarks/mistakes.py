"""How long it takes to be told of a mistake: the common ones, typed as a person types them, each in a new process.

    python benchmarks/mistakes.py                          # a small model is trained first, for two updates
    python benchmarks/mistakes.py --against ../before      # another checkout beside, in turns

Milliseconds by the wall clock, the median of --rounds. A mistake that is not told (exit code other than 1 or 2) ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where the folder of its parts lies

from peers.typed import typed_here

HERE = Path(__file__).resolve().parent.parent
PAIRS = "".join(f"word{n} and {n}\tWort{n} und {n}\n" for n in range(60))
TRAINED = "runs/translate/1"
TRAINING = (
    "train translate --data pairs.tsv --preset demo --steps 2 --set validate.sentences=2 --set train.validate_every=2 "
    f"--set tokens.kind=character --device cpu -o {TRAINED}"
)
MISTAKES = {  # what it is -> what is typed; RUN is a trained run
    "unknown verb": "trian translate",
    "unknown option": "train translate --dat pairs.tsv",
    "missing data file": "train translate --data nope.tsv",
    "unknown preset": "train translate --data pairs.tsv --preset huge",
    "typo in --set": "train translate --data pairs.tsv --set train.stpes=9",
    "wrong -m": "translate a -m runs/nope",
    "--beam 0": "translate a -m RUN --beam 0",
    "--layer 99": "look a -m RUN --layer 99",
    "eval --on nope.tsv": "eval RUN --on nope.tsv",
    "unknown device": "translate a -m RUN --device gpu",
    "-o map.gif": "look a -m RUN -o map.gif",
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout of Regard, measured in turns with this one")
    parser.add_argument("--run", type=Path, help="a trained translation run (else one is trained for two updates)")
    parser.add_argument("--tiny", action="store_true", help="one round: to see that it works")
    parser.add_argument("--json", type=Path, help="every time, as JSON")
    given = parser.parse_args(words)
    rounds = 1 if given.tiny else given.rounds
    checkouts = {"here": HERE} | ({"against": given.against.resolve()} if given.against else {})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
        if given.tiny:
            typed_here(TRAINING.split(), folder)
            given.run = Path(folder) / TRAINED
        run = given.run.resolve() if given.run else trained(Path(folder), list(checkouts.values())[-1])
        found = measure(checkouts, run, Path(folder), rounds)
    report(found)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


def trained(home: Path, checkout: Path) -> Path:
    """A run of two updates, by the older of the checkouts: what it wrote, the newer one reads."""
    done = typed(checkout, TRAINING, home)
    if done.returncode:
        sys.exit(f"the model could not be trained: {done.stderr}")
    return home / TRAINED


def measure(checkouts: dict[str, Path], run: Path, home: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of every round: mistake -> checkout -> times."""
    found: dict[str, dict[str, list[float]]] = {what: {name: [] for name in checkouts} for what in MISTAKES}
    for _ in range(rounds):
        for what, words in MISTAKES.items():
            for name, checkout in checkouts.items():
                started = time.perf_counter()
                done = typed(checkout, words.replace("RUN", str(run)), home)
                found[what][name].append(1000 * (time.perf_counter() - started))
                if done.returncode not in (1, 2) or "regard: " not in done.stderr:
                    sys.exit(f"regard {words} was not told: exit {done.returncode}, {done.stderr.strip()}")
    return found


def typed(checkout: Path, words: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regard", *words.split()]
    return subprocess.run(
        command, cwd=home, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True
    )


def report(found: dict[str, dict[str, list[float]]]) -> None:
    names = list(next(iter(found.values())))
    print(f"{'mistake':20}" + "".join(f"{name:>10}" for name in names) + "   ms")
    for what, times in found.items():
        print(f"{what:20}" + "".join(f"{statistics.median(times[name]):10.0f}" for name in names))


if __name__ == "__main__":
    main()
