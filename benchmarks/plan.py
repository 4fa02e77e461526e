"""Steps that several processes of this machine make together, as `regard plan` predicts them and as they are.

    python benchmarks/plan.py [--rounds 9] [--json FILE] [--tiny]

At 1, 2 and 4 processes of one thread, joined by gloo over the loopback: all-reduces by the size of the message, from which
alone a latency and a bandwidth are fitted (those of a ring, `regard.bench.hardware.all_reduce`); then, in turns, steps that
each process makes by itself and steps that all make together (torch's DistributedDataParallel), each with the same tokens
however many they are. Predicted: the step by itself, with as many others at work, and the all-reduce of the gradients by the
fitted link, nothing of which hides behind the computing, as processors do both. Where there are more processes than cores
the steps by themselves are slower, and that is measured, not predicted.
Each number is the lower quartile of its rounds, of the slowest process: other programs may be at work.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.bench.exchange import SIZES, Exchange, fitted, measure
from regard.bench.hardware import Gpu, Link
from regard.bench.plan import Assumptions, Layout, Machine, Workload, exchanged
from regard.data.batch import TextBatch
from regard.doctor import cores, load_average
from regard.models.config import GPT2Config
from regard.models.table import build
from regard.world import World, joined

LENGTH = 64


@dataclass(frozen=True)
class Case:
    """A model and what each process reads in a step."""

    name: str
    layers: int
    width: int
    vocabulary: int
    texts: int  # of LENGTH tokens


CASES = (
    Case("small", 4, 128, 1000, 4),
    Case("wide, little to read", 6, 256, 4000, 1),
    Case("wide", 6, 256, 4000, 8),
)
TINY = (Case("tiny", 1, 16, 50, 1),)


@dataclass(frozen=True)
class Row:
    """One case at one number of processes; seconds of a step."""

    case: str
    parameters: int
    tokens: int
    processes: int
    apart: float
    exchange: float  # predicted
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--tiny", action="store_true", help="two small processes, to see that it runs")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cases, counts = (TINY, (1, 2)) if asked.tiny else (CASES, (1, 2, 4))
    sizes, rounds = (SIZES[:2], 2) if asked.tiny else (SIZES, asked.rounds)
    print(f"{cores()} cores, load average {load_average():.1f}, one thread a process, gloo\n")
    found: dict[str, Any] = {"cores": cores(), "load": load_average(), "rounds": rounds, "links": {}, "steps": []}
    rows = []
    for count in counts:
        told = together(count, lambda world: at_work(world, cases, sizes, rounds))
        link = None
        if count > 1:
            link = fitted([Exchange(**each) for each in told["exchanges"]], count)
            found["links"][str(count)] = {
                "latency": link.latency,
                "bandwidth": link.bytes,
                "by_size": told["exchanges"],
            }
            print(f"{count} processes: latency {1e6 * link.latency:,.0f} µs, bandwidth {link.bytes / 1e9:.2f} GB/s")
        rows += [predicted(case, count, link, each) for case, each in zip(cases, told["steps"], strict=True)]
    found["steps"] = [{**asdict(row), "error": row.error} for row in rows]
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
        print(f"\nwrote {asked.json}")
    return 0


# --- In each process


def together(count: int, work: Callable[[World], dict[str, Any]]) -> dict[str, Any]:
    """What the first of so many copies of this process finds, joined by gloo."""
    with socket.socket() as free, tempfile.NamedTemporaryFile("r") as answer:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        children = [copy(rank, count, port, work, answer.name) for rank in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            raise SystemExit(f"processes ended with {codes}")
        found: dict[str, Any] = json.loads(answer.read())
        return found


def copy(rank: int, count: int, port: str, work: Callable[[World], dict[str, Any]], answer: str) -> int:
    """A copy of this process that has a place among so many; the first writes down what it found."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with joined(120.0) as world:
            found = work(world)
        if world.is_first:
            Path(answer).write_text(json.dumps(found))
        code = 0
    finally:
        os._exit(code)


def at_work(world: World, cases: Sequence[Case], sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """All-reduces by size, and the steps of each case by itself and together."""
    exchanges = [] if world.is_alone else measure(world, torch.device("cpu"), sizes)
    steps = [steps_of(world, case, rounds) for case in cases]
    return {"exchanges": [asdict(each) for each in exchanges], "steps": steps}


def steps_of(world: World, case: Case, rounds: int) -> dict[str, float]:
    model, batch = made(case)
    alone = stepping(model, batch)
    joint = alone if world.is_alone else stepping(nn.parallel.DistributedDataParallel(model), batch)
    times: dict[str, list[float]] = {"apart": [], "together": []}
    for number in range(rounds + 1):
        for name, step in (("apart", alone), ("together", joint)):
            world.wait()
            started = time.perf_counter()
            step()
            slowest = max(world.gather(time.perf_counter() - started))
            if number:  # the first warms up
                times[name].append(slowest)
    parameters = sum(weight.numel() for weight in model.parameters())
    return {"parameters": parameters, **{name: sorted(each)[len(each) // 4] for name, each in times.items()}}


def made(case: Case) -> tuple[nn.Module, TextBatch]:
    torch.manual_seed(1)
    config = GPT2Config(
        layers=case.layers, width=case.width, heads=4, feed_forward=4 * case.width, max_length=LENGTH, dropout=0.0
    )
    model: nn.Module = build("generate", config, (case.vocabulary,)).train()
    ids = torch.randint(4, case.vocabulary, (case.texts, LENGTH + 1))
    return model, TextBatch(ids, torch.full((case.texts,), LENGTH), case.texts * LENGTH)


def stepping(model: nn.Module, batch: TextBatch) -> Callable[[], None]:
    """One update of the weights."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss = model(batch)
        loss.objective(dict(batch.counts)).backward()
        optimiser.step()

    return step


# --- Beside each other


def predicted(case: Case, count: int, link: Link | None, found: dict[str, float]) -> Row:
    """The step that a plan foresees from what a process computes by itself and from the link."""
    parameters, seconds = int(found["parameters"]), 0.0
    if link is not None:
        gpu = Gpu("core", "", 0, 1.0, 1.0, "", "")
        machine = Machine(gpu, link, link, count, 1, Assumptions(link_share=1.0, overlap=0.0))
        work = Workload(case.name, parameters, 0, 1, 0, 0, (0.0, 0.0), 0, 1)
        _, seconds, _, _ = exchanged(work, machine, Layout("replicated", "", 1, True), count, False)
    step = found["apart"] + seconds
    return Row(case.name, parameters, case.texts * LENGTH, count, found["apart"], seconds, step, found["together"])


def show(rows: Sequence[Row]) -> None:
    print("\ncase                  parameters  tokens  processes     apart  exchange  predicted  measured  error")
    for row in rows:
        times = "  ".join(f"{1e3 * each:8.1f}" for each in (row.apart, row.exchange, row.predicted, row.measured))
        print(f"{row.case:20}  {row.parameters:10,}  {row.tokens:6}  {row.processes:9}  {times}  {row.error:+6.0%}")
    print("milliseconds; tokens of each process")


if __name__ == "__main__":
    sys.exit(main())
