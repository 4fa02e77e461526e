"""Two processes of one thread against one of two threads, or of one, by updates of Transformer-Tiny; and what must be equal.

    python benchmarks/processes.py speed --rounds 5 --out docs/results/processes.json
    python benchmarks/processes.py equal --out docs/results/processes.json
    python benchmarks/processes.py kills --kills 50

`speed`: rounds in turns, each with its own processes; what counts is the median of the rounds' ratios. Each process waits at a
line of its own until it is its turn, so that the others take no time. `equal` trains every kind of model by one process, by two
and by four, in three layouts, and compares the weights (`tests/drivers/equal.py`). `kills` trains a small model with two
processes, ends a random one at random moments, and compares the weights with those of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.files import read_json, write_json
from regard.tensors import read_tensors

# A process of those that train together, which makes as many updates as each line says.
WORKER = """
import os, sys, tempfile, time
import numpy as np, torch
from pathlib import Path
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
from regard.data.batches import TokenPairs
from regard.models.config import TransformerConfig
from regard.models.table import build
from regard.training.config import TrainConfig
from regard.training.job import Job
from regard.training.loop import Trainer
from regard.training.show import Show
from regard.training.validation import Validation
from regard.world import joined
size, rows = int(sys.argv[1]), int(sys.argv[2])
draw = np.random.default_rng(0)
texts = [[draw.integers(10, size, length).astype(np.int32) for _ in range(rows)] for length in (20, 21)]
batch = TokenPairs(*texts, 0).take(list(range(rows)))
class Same:
    def count(self, epoch): return 1000
    def get(self, epoch, index): return batch
    def padding_share(self): return 0.0
with joined() as world, tempfile.TemporaryDirectory() as folder:
    torch.manual_seed(0)
    model = build("translate", TransformerConfig(), (size, size))
    config = TrainConfig(steps=100000, log_every=100000, precision="float32")
    job = Job(Path(folder), config, model, 64, Same(), lambda _: Validation({}), lambda *_: None, world=world)
    trainer = Trainer(job, Show())
    for line in sys.stdin:
        world.wait()
        began = time.perf_counter()
        for _ in range(int(line)):
            trainer.learn()
        print(time.perf_counter() - began, flush=True)
"""
ROOT = Path(__file__).resolve().parent.parent
TINY = ("classify/tfidf", "classify-pictures/resnet")  # the fastest kind, and one with batch norm
CONFIG = """task = "translate"
preset = "demo"
[data]
train = ["builtin/dates"]
builtin_size = 600
[tokens]
kind = "character"
[train]
steps = {steps}
warmup = 5
batch_tokens = 512
validate_every = {every}
log_every = 10
precision = "float32"
[validate]
sentences = 10
"""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("speed", "equal", "kills"), default="speed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=10, help="of a round")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="one round of two updates of a small batch; or two kinds")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        if asked.what == "kills":
            found = kills(Path(place), asked.kills)
        elif asked.what == "equal":
            found = equal(Path(place), TINY if asked.tiny else ())
        else:
            found = speed(40, 4, 1, 2) if asked.tiny else speed(4000, 100, asked.rounds, asked.updates)
    print(json.dumps(found))
    if asked.out is not None:
        before = read_json(asked.out) if asked.out.exists() else {}
        write_json(asked.out, {**before, **found})
        print(f"wrote {asked.out}")


def speed(vocabulary: int, rows: int, rounds: int, updates: int) -> dict[str, Any]:
    """Seconds of an update by one process of two threads, by two of one, and by one of one, in turns."""
    sizes = {
        "one process of two threads": (1, 2),
        "two processes of one thread": (2, 1),
        "one process of one thread": (1, 1),
    }
    if rounds == 1:  # only to see that it works
        del sizes["one process of two threads"]
    groups = {name: group(*size, str(vocabulary), str(rows)) for name, size in sizes.items()}
    for each in groups.values():
        ask(each, 2)  # the first updates warm up
    found: dict[str, list[float]] = {name: [] for name in groups}
    for number in range(rounds):
        for name in list(groups)[:: 1 if number % 2 else -1]:
            found[name].append(ask(groups[name], updates) / updates)
    for process in (each for group_ in groups.values() for each in group_):
        process.communicate()
    two, least = found["two processes of one thread"], found["one process of one thread"]
    one = found.get("one process of two threads", least)
    ratios = [first / second for first, second in zip(one, two, strict=True)]
    parts = [first / second for first, second in zip(least, two, strict=True)]
    medians = {name: round(statistics.median(each), 4) for name, each in found.items()}
    return {
        "vocabulary": vocabulary, "rows": rows, "rounds": rounds, "updates": updates, "seconds": medians,
        "times_faster": round(statistics.median(ratios), 3), "ratios": [round(each, 3) for each in ratios],
        "times_faster_than_one_thread": round(statistics.median(parts), 3), "load": os.getloadavg()[0],
    }  # fmt: skip


def equal(place: Path, kinds: Sequence[str]) -> dict[str, Any]:
    """The largest difference of a weight after ten updates, by kind, number of processes and layout, or why there is none."""
    command = [sys.executable, "-m", "tests.drivers.equal", str(place), *kinds]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=threads)
    rows = json.loads(done.stdout.splitlines()[-1])
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        here = table.setdefault(f"{row['task']} {row['kind']}", {})
        here[f"{row['processes']} {row['layout']}"] = row.get("told", row.get("difference"))
    compared = [row for row in rows if "difference" in row]
    return {
        "equal": table, "compared": len(compared), "largest": max(row["difference"] for row in compared),
        "same_bits": all(row["same_bits"] for row in compared),
    }  # fmt: skip


def group(size: int, threads: int, *words: str) -> list[subprocess.Popen[str]]:
    """So many processes of so many threads that train together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    common |= {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that turn while they wait take the cores from others
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    pipe = subprocess.PIPE
    return [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *words], env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=pipe, stdout=pipe, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip


def ask(processes: Sequence[subprocess.Popen[str]], updates: int) -> float:
    """Let processes make some updates together: seconds of the slowest."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{updates}\n")
        process.stdin.flush()
    return max(float(process.stdout.readline()) for process in processes if process.stdout is not None)


def kills(place: Path, count: int, steps: int = 400) -> dict[str, Any]:
    """A run with kills against one without."""
    (place / "run.toml").write_text(CONFIG.format(steps=steps, every=steps // 40))
    typed = [sys.executable, "-m", "regard", "train", str(place / "run.toml"), "--processes", "2"]
    subprocess.run([*typed, "-o", str(place / "whole")], check=True, capture_output=True)
    run = subprocess.Popen([*typed, "-o", str(place / "killed"), "--restarts", str(count)], stdout=subprocess.DEVNULL)
    done: list[int] = []
    threading.Thread(target=_kill, args=(run, count, done), daemon=True).start()
    code = run.wait()
    ends = [read_tensors(place / name / "last/model.safetensors") for name in ("whole", "killed")]
    unlike = [name for name, tensor in ends[0].items() if not tensor.equal(ends[1][name])]
    return {"kills": len(done), "exit_code": code, "unlike": unlike}


def _kill(run: subprocess.Popen[bytes], count: int, done: list[int]) -> None:
    """Kill a random process of the group at random moments, until it was done `count` times or the run has ended."""
    dice = random.Random(1)
    while run.poll() is None and len(done) < count:
        time.sleep(dice.uniform(1.0, 12.0))
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        found = [int(word) for word in children.read_text().split()] if children.exists() else []
        workers = [pid for pid in found if b"RANK=" in Path(f"/proc/{pid}/environ").read_bytes()]
        if workers:
            os.kill(dice.choice(workers), signal.SIGKILL)
            done.append(1)


if __name__ == "__main__":
    main()
