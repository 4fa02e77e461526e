"""`regard bench attention`: time and memory of kinds of attention over the length, and from where each one pays.

Memory first, each kind in a process of its own, which also finds out what can be afforded. Then time, in this process: at
each length all kinds in turns, round by round, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.bench.scout import AT_ONCE, BenchInputs, BenchSubject, Scouted, Sizes, config_of, make_subject
from regard.compare.conditions import conditions
from regard.errors import RegardError, UsageError
from regard.look.comparison import Costs

FIRST = 1024  # shorter ones are ruled by what a call costs anyway


def exponent(costs: Mapping[int, float], first: int = FIRST) -> float | None:
    """The slope of log cost over log T by least squares, of lengths from `first` on; None for fewer than two."""
    kept = {length: cost for length, cost in costs.items() if length >= first and cost > 0}
    if len(kept) < 2:
        return None
    return float(np.polyfit(np.log(list(kept)), np.log(list(kept.values())), deg=1)[0])


def pays_from(costs: Mapping[int, float], exact: Mapping[int, float]) -> float | None:
    """The length from which on a kernel costs less than exact attention up to the longest that both were measured at.

    Between two lengths both costs are taken to be straight on log-log paper. The shortest length means: or even less.
    None: at the longest it does not pay.
    """
    common = sorted(costs.keys() & exact.keys())
    gains = {length: math.log(exact[length] / costs[length]) for length in common}
    if not common or gains[common[-1]] <= 0:
        return None
    start = len(common) - 1
    while start > 0 and gains[common[start - 1]] > 0:
        start -= 1
    if start == 0:
        return float(common[0])
    before, after = common[start - 1], common[start]
    share = gains[before] / (gains[before] - gains[after])  # of the way, where both cost the same
    return float(math.exp(math.log(before) + share * math.log(after / before)))


@dataclass(frozen=True)
class Point:
    """One kind of attention at one length."""

    length: int
    memory: int  # bytes at the peak, beside inputs
    inputs: int  # bytes
    forward: tuple[float, ...]  # seconds of each round
    both: tuple[float, ...]  # seconds of each round, forward and backward; empty where only forward was asked for


@dataclass(frozen=True)
class KernelCosts:
    """One kind of attention over all lengths."""

    name: str
    settings: dict[str, object]
    points: tuple[Point, ...]

    def forward(self) -> dict[int, float]:
        """The median seconds at each length."""
        return {point.length: statistics.median(point.forward) for point in self.points}

    def time(self) -> dict[int, float]:
        """Seconds of a forward pass, with the backward pass if that was asked for."""
        return {point.length: statistics.median(point.both or point.forward) for point in self.points}

    def memory(self) -> dict[int, float]:
        return {point.length: float(point.memory) for point in self.points}

    def growth(self) -> dict[str, float | None]:
        """The power of the length with which each of these grows; None where that cannot be told."""
        costs = {"forward": self.forward(), "time": self.time(), "memory": self.memory()}
        return {name: exponent(each) for name, each in costs.items()}


@dataclass(frozen=True)
class AttentionBench:
    """All that was measured, and what it says."""

    sizes: Sizes
    rounds: int
    lines: tuple[KernelCosts, ...]
    how: str  # memory was measured: see bench_memory
    conditions: dict[str, Any]
    notes: tuple[str, ...] = ()

    def line(self, name: str) -> KernelCosts | None:
        return next((line for line in self.lines if line.name == name), None)

    def pays_from(self, line: KernelCosts) -> float | None:
        """See `bench_growth.pays_from`; None also where there is nothing to compare with."""
        exact = self.line("exact")
        return None if exact is None or line.name == "exact" else pays_from(line.time(), exact.time())

    def costs(self) -> list[Costs]:
        """As a figure shows them."""
        return [Costs(line.name, line.time(), line.memory(), self.pays_from(line)) for line in self.lines]

    def data(self) -> dict[str, object]:
        return {
            **asdict(self.sizes),
            "rounds": self.rounds,
            "memory_measured_by": self.how,
            "conditions": self.conditions,
            "notes": list(self.notes),
            "kernels": [self._data(line) for line in self.lines],
        }

    def _data(self, line: KernelCosts) -> dict[str, object]:
        return {**asdict(line), "growth": line.growth(), "pays_from": self.pays_from(line)}


LENGTHS = tuple(128 * 2**n for n in range(8))  # 128 to 16,384
OnProgress = Callable[
    [str, float, float], None
]  # what is measured, seconds of work done, seconds of work in all (0: unknown)


@dataclass
class _Work:
    """Progress of a benchmark: seconds of work done and in all, as the child processes estimated them."""

    on_progress: OnProgress
    total: float
    done: float = field(default=0.0)

    def add(self, what: str, seconds: float) -> None:
        self.done += seconds
        self.on_progress(what, self.done, self.total)


def bench_attention(
    names: Sequence[str],
    lengths: Sequence[int] = LENGTHS,
    sizes: Sizes = Sizes(),
    *,
    rounds: int = 5,
    threads: int | None = None,
    limit: float = 20.0,
    how: str = "",
    on_progress: OnProgress = lambda what, done, total: None,
) -> AttentionBench:
    """Measure; `limit` is the most seconds that one pass of one kind at one length may take."""
    notes: list[str] = []
    with _threads(threads) as used:
        able = _able(names, sizes, lengths, notes)
        scouted = {name: _scouted(name, sizes, lengths, limit, used, how, notes, on_progress) for name in able}
        times = _time_all(scouted, sizes, rounds, on_progress)
        found = conditions("cpu").data()
    lines = [
        KernelCosts(name, _settings(name, sizes), tuple(_point(each, *times[name, each.length]) for each in row))
        for name, row in scouted.items()
    ]
    ways = {each.how for row in scouted.values() for each in row}
    return AttentionBench(sizes, rounds, tuple(lines), ", ".join(sorted(ways)), found, tuple(notes))


def _point(found: Scouted, forward: list[float], both: list[float]) -> Point:
    return Point(found.length, found.memory, found.inputs, tuple(forward), tuple(both))


def _settings(name: str, sizes: Sizes) -> dict[str, object]:
    if name in ("exact", "naive"):
        return {}
    values = config_of(name, sizes, 1).model_dump(exclude={"kind"})
    return {**values, "stride": sizes.settings.get(name, {}).get("stride", "√T")} if name == "strided" else values


def _able(names: Sequence[str], sizes: Sizes, lengths: Sequence[int], notes: list[str]) -> list[str]:
    """Those that can do what is asked; the others say in `notes` what they cannot."""
    able = []
    for name in dict.fromkeys(names):
        if name not in ("exact", "naive"):
            config_of(name, sizes, min(lengths))  # a wrong setting is an error, not a refusal
        try:
            make_subject(name, sizes, min(lengths))
            able.append(name)
        except UsageError as refusal:
            notes.append(f"{name} is left out: {refusal}")
    if not able:
        raise UsageError("nothing is left to measure: " + "; ".join(notes))
    return able


def _scouted(
    name: str,
    sizes: Sizes,
    lengths: Sequence[int],
    limit: float,
    threads: int,
    how: str,
    notes: list[str],
    on_progress: OnProgress,
) -> list[Scouted]:
    """Each length that can be afforded, measured in a child."""
    given = {"name": name, "sizes": asdict(sizes), "lengths": list(lengths), "limit": limit, "how": how}
    found: list[Scouted] = []
    command = [sys.executable, "-m", "regard.bench.scout", json.dumps({**given, "threads": threads})]
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **AT_ONCE, "PYTHONPATH": paths}
    on_progress(f"memory of {name}", 0.0, 0.0)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as child,
    ):
        assert child.stdout is not None
        for row in map(json.loads, child.stdout):
            each = Scouted(**row)
            if each.skipped:
                notes.append(f"{name} is not measured from T = {each.length:,} on: {each.skipped}")
            else:
                found.append(each)
                on_progress(f"memory of {name} at {each.length:,}", 0.0, 0.0)
        child.wait()
        errors.seek(0)
        trouble = errors.read().strip()
    if child.returncode < 0:  # killed, as the system does where memory ends
        tried = [length for length in sorted(lengths) if length not in [each.length for each in found]]
        notes.append(f"{name} is not measured from T = {tried[0]:,} on: its process was killed, likely for its memory")
    elif child.returncode > 0:
        raise RegardError(f"measuring {name} failed: {trouble.splitlines()[-1] if trouble else 'no reason was given'}")
    return found


def _time_all(
    scouted: dict[str, list[Scouted]], sizes: Sizes, rounds: int, on_progress: OnProgress
) -> dict[tuple[str, int], tuple[list[float], list[float]]]:
    """Seconds of every round, forward and both, by name and length."""
    costs = {(name, each.length): each.seconds for name, row in scouted.items() for each in row}
    work = _Work(on_progress, sum(costs.values()) * (rounds + 1))
    times: dict[tuple[str, int], tuple[list[float], list[float]]] = {key: ([], []) for key in costs}
    for length in sorted({length for _, length in costs}):
        inputs = BenchInputs.of(sizes, length)
        subjects = [make_subject(name, sizes, length) for name in scouted if (name, length) in costs]
        for turn in range(rounds + 1):
            for subject in subjects:
                forward, both = times[subject.name, length] if turn else ([], [])  # the first is for warming up
                _time_once(subject, inputs, sizes.backward, forward, both)
                work.add(f"time at {length:,}", costs[subject.name, length])
    return times


def _time_once(
    subject: BenchSubject, inputs: BenchInputs, backward: bool, forward: list[float], both: list[float]
) -> None:
    started = time.perf_counter()
    subject.forward(inputs)
    forward.append(time.perf_counter() - started)
    if backward:
        started = time.perf_counter()
        subject.there_and_back(inputs)
        both.append(time.perf_counter() - started)


@contextmanager
def _threads(wanted: int | None) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield wanted or before
    finally:
        torch.set_num_threads(before)
