"""What preparing data beyond memory costs: pairs a second, peak memory, a second start, and updates from mapped arrays.

    REGARD_DATA=... python benchmarks/large_data.py FOLDER --pairs 10000000 --text 2000000000 --out docs/results/large_data.json

Pairs and text are made once in FOLDER by recombining Multi30k: the beginning of one sentence and the end of another, on both
sides alike. The cache is FOLDER/cache; without --keep it is cleared first, so that the first start prepares and the second
finds all. Each start is a process of its own. `peak` is the greatest memory that it and its copies had together, pages of
mapped files included; `anonymous` is what of that is its own and not a file's. `processor` is the time that all threads and
copies took together, which other programs disturb less than the clock.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.threads import only_waits

ROOT = Path(__file__).resolve().parent.parent
UPDATES, ROUNDS = 10, 16  # of each kind in turn, and how often
COMPARED = 100_000  # pairs of which updates are timed
TINY_SENTENCES = [(f"a man number {n} rides a bike .", f"ein mann nummer {n} fährt rad .") for n in range(50)]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--text", type=int, default=2_000_000_000, help="bytes of text for generate")
    parser.add_argument("--task", choices=("translate", "generate"), help="only this one, beside what --out has")
    parser.add_argument("--keep", action="store_true", help="leave the cache as it is")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--start", help=argparse.SUPPRESS)  # in a process of its own: the task
    parser.add_argument("--began", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--tiny", action="store_true", help="some hundred made pairs, in seconds")
    options = parser.parse_args(words)
    if options.start:
        print(json.dumps(start(options.start, options.folder, options.began)))
        return 0
    if options.tiny:
        with tempfile.TemporaryDirectory() as place:
            return measure(Path(place), TINY_SENTENCES, 300, 9_000, None, None, tiny=True)
    if options.folder is None or not os.environ.get("REGARD_DATA"):
        parser.error("name a folder with room, and set REGARD_DATA to that of the public sets (or --tiny)")
    if not options.keep:
        shutil.rmtree(options.folder / "cache", ignore_errors=True)
    return measure(options.folder, multi30k(), options.pairs, options.text, options.out, options.task)


def multi30k() -> list[tuple[str, str]]:
    folder = Path(os.environ["REGARD_DATA"]) / "multi30k"
    files = [(folder / f"train.{code}.gz").read_bytes() for code in ("en", "de")]
    sides = [gzip.decompress(data).decode("utf-8").splitlines() for data in files]
    return list(zip(*sides, strict=True))


# --- Data


def recombined(pairs: Sequence[tuple[str, str]], count: int) -> Iterator[tuple[str, str]]:
    """So many pairs, each the beginning of one and the end of another."""
    halves = [[_halved(side) for side in pair] for pair in pairs]
    random = np.random.default_rng(1)
    for start in range(0, count, 100_000):
        some = random.integers(len(pairs), size=(min(100_000, count - start), 2)).tolist()
        for first, second in some:
            yield tuple(f"{halves[first][side][0]} {halves[second][side][1]}" for side in (0, 1))  # type: ignore[misc]


def _halved(text: str) -> tuple[str, str]:
    words = text.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def make(folder: Path, pairs: Sequence[tuple[str, str]], count: int, size: int) -> None:
    """Write the files, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "pairs.tsv").exists():
        with open(folder / "pairs.tmp", "w", encoding="utf-8") as file:
            file.writelines(f"{source}\t{target}\n" for source, target in recombined(pairs, count))
        (folder / "pairs.tmp").rename(folder / "pairs.tsv")
    if size and not (folder / "text.txt").exists():
        written = 0
        with open(folder / "text.tmp", "w", encoding="utf-8") as file:
            for number, (_, target) in enumerate(recombined(pairs, 10**10)):
                written += file.write(target + ("\n" if number % 5 == 4 else " "))
                if written > size:
                    break
        (folder / "text.tmp").rename(folder / "text.txt")


# --- One start, in a process of its own


class Memory(threading.Thread):
    """Watches how much memory a process and its copies have, in all and without pages of files; shared pages count once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.anonymous, self.ended = 0, 0, threading.Event()
        only_waits(self)  # so that the process may be copied beside it

    def run(self) -> None:
        while not self.ended.wait(0.1):
            found = [_memory_of(process) for process in ("self", *_children())]
            self.peak = max(self.peak, sum(whole for whole, _ in found))
            self.anonymous = max(self.anonymous, sum(own for _, own in found))


def _children() -> list[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


def _memory_of(process: str) -> tuple[int, int]:
    """Bytes of a process, its share of pages that others have too, and what of it is no file's; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    found = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return found["Pss"], found["Pss_Anon"]


def processor_time() -> float:
    """Seconds of the processor that this process and copies that have ended took."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def start(task: str, folder: Path, began: float) -> dict[str, Any]:
    """Prepare a run of a small model, and learn from its first batch."""
    watch = Memory()
    watch.start()
    from regard.tasks.configure import run_config
    from regard.tasks.recipe import prepare

    with tempfile.TemporaryDirectory() as place:
        ready, used = time.monotonic(), processor_time()
        prepared = prepare(run_config(task, settings(task, folder)), Path(place), data_root=None, resume=False)
        seconds, processor = time.monotonic() - ready, processor_time() - used
        job = prepared.job
        batch = job.batches.get(0, 0)
        job.model(batch).objective(dict(batch.counts)).backward()
        first = time.time() - began
    watch.ended.set()
    return {
        "seconds": seconds,
        "processor": processor,
        "first_step": first,
        "peak": watch.peak,
        "anonymous": watch.anonymous,
        "notes": list(prepared.notes),
    }


def settings(task: str, folder: Path) -> dict[str, Any]:
    """A small model on the files of a folder."""
    if task == "translate":
        model = {"width": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
        return {"data": {"train": str(folder / "pairs.tsv")}, "tokens": {"size": 8000}, "model": model, "probes": 0}
    model = {"width": 64, "heads": 2, "layers": 1}
    return {"data": {"train": str(folder / "text.txt"), "share": 0.001}, "model": model, "probes": 0}


def started(task: str, folder: Path, tiny: bool) -> dict[str, Any]:
    if tiny:  # a process of its own would spend its time on imports
        return start(task, folder, time.time())
    command = [sys.executable, __file__, str(folder), "--start", task, "--began", repr(time.time())]
    environment = os.environ | {"REGARD_CACHE": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


# --- Updates from mapped arrays, and from arrays of each pair's own


def updates(folder: Path, tiny: bool) -> dict[str, float]:
    """Target tokens a second of the same updates from both, by turns; medians of several rounds.

    Who goes second finds operations that are already set up for these shapes: which is first changes with every round.
    """
    from regard.data.batches import Batches, TokenPairs
    from regard.data.kept.ragged import Ragged
    from regard.tasks.choose import make_optimiser
    from regard.tasks.configure import run_config
    from regard.tasks.recipe import prepare

    os.environ["REGARD_CACHE"] = str(folder / "cache")
    with tempfile.TemporaryDirectory() as place:
        config = run_config("translate", settings("translate", folder))
        job = prepare(config, Path(place), data_root=None, resume=False).job
    mapped: Any = job.batches.pairs  # type: ignore[attr-defined]
    few = min(COMPARED, len(mapped))
    sides = [Ragged(side.flat[: side.starts[few]], side.lengths[:few]) for side in (mapped.sources, mapped.targets)]
    lists = [[row.astype(np.int32) for row in side] for side in sides]
    mapped, own = (TokenPairs(first, second, mapped.fill) for first, second in (sides, lists))
    sources = {name: Batches(pairs, 2048, 1) for name, pairs in (("mapped", mapped), ("in_memory", own))}
    optimiser, rates = make_optimiser(job.model, config.train), {name: list[float]() for name in sources}
    for number in range(2 if tiny else ROUNDS):
        for name, source in list(sources.items())[:: -1 if number % 2 else 1]:
            tokens, began = 0, time.perf_counter()
            for index in range(2 if tiny else UPDATES):
                batch = source.get(0, (number * UPDATES + index) % source.count(0))
                job.model(batch).objective(dict(batch.counts)).backward()
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                tokens += batch.target_tokens
            rates[name].append(tokens / (time.perf_counter() - began))
    found = {name: statistics.median(each) for name, each in rates.items()}
    return found | {"ratio": found["mapped"] / found["in_memory"]}


# --- All of it


def measure(
    folder: Path,
    pairs: Sequence[tuple[str, str]],
    count: int,
    size: int,
    out: Path | None,
    only: str | None,
    tiny: bool = False,
) -> int:
    make(folder, pairs, count, size)
    results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if only and out and out.exists() else {}
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    results |= {"pairs": count, "text_bytes": size, **machine}
    for task in ("translate", "generate") if size else ("translate",):
        for which in ("first", "second") if only in (None, task) else ():
            found = results[f"{task}, {which} start"] = started(task, folder, tiny)
            print(f"{task}, {which} start: {told(found, count if task == 'translate' and which == 'first' else 0)}")
    if only != "generate":
        results["updates"] = updates(folder, tiny)
        print("updates: " + ", ".join(f"{name} {value:,.3f}" for name, value in results["updates"].items()))
    if out is not None:
        out.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def told(found: dict[str, Any], pairs: int) -> str:
    """One start in a line; with how many pairs a second it read, if it read some."""
    rate = f", {pairs / found['seconds']:,.0f} pairs/s, {pairs / found['processor']:,.0f} a second of a core"
    memory = f"peak {found['peak'] / 1e6:,.0f} MB, anonymous {found['anonymous'] / 1e6:,.0f} MB"
    steps = f"first step after {found['first_step']:.1f} s"
    return f"{found['seconds']:,.1f} s{rate if pairs else ''}, {steps}, {memory}"


if __name__ == "__main__":
    sys.exit(main())
