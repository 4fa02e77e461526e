"""One attention in a process of its own, from short lengths to long ones: its peak memory, and about how long it takes.

    python -m regard.tasks.bench_child JSON

A line of JSON for each length, as soon as it is measured. A length that would take longer than the limit, or more memory
than there is, is not tried, nor any longer one.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import torch

from regard.tasks.bench_memory import peak_memory
from regard.tasks.bench_subjects import Inputs, Sizes, Subject, make_subject

SHARE = 0.6  # of the machine's memory that one attention may take


@dataclass(frozen=True)
class Scouted:
    """What the child found of one length. `skipped` says why the rest is empty."""

    length: int
    seconds: float = 0.0  # of one pass
    memory: int = 0  # bytes at the peak, beside inputs
    inputs: int = 0  # bytes of queries, keys, values and the gradient of the output
    how: str = ""  # memory was measured
    skipped: str = ""


def scout(name: str, sizes: Sizes, lengths: Iterable[int], limit: float, how: str = "") -> Iterator[Scouted]:
    """Measure one length after another, as long as they can be afforded."""
    found: list[Scouted] = []
    for length in sorted(lengths):
        seconds = predicted([(each.length, each.seconds) for each in found], length)
        memory = predicted([(each.length, float(each.memory)) for each in found], length)
        if seconds > limit:
            yield Scouted(length, skipped=f"it would take about {seconds:.0f} s, more than the limit of {limit:g} s")
            return
        if memory > SHARE * memory_of_machine():
            yield Scouted(length, skipped=f"it would take about {memory / 2**30:.1f} GiB of memory")
            return
        found.append(_measured(make_subject(name, sizes, length), sizes, length, how))
        yield found[-1]


def _measured(subject: Subject, sizes: Sizes, length: int, how: str) -> Scouted:
    inputs = Inputs.of(sizes, length)
    run = subject.there_and_back if sizes.backward else subject.forward
    run(inputs)  # whatever is set up once is set up now
    started = time.perf_counter()
    memory, way = peak_memory(lambda: run(inputs), how)
    return Scouted(length, time.perf_counter() - started, memory, inputs.bytes, way)


def predicted(found: list[tuple[int, float]], length: int) -> float:
    """From lengths that were measured to a longer one: as the last two grew, at most with T²; with T² from a single one."""
    if not found:
        return 0.0
    (last, value), exponent = found[-1], 2.0
    if len(found) > 1 and found[-2][1] > 0 and value > 0:
        before, less = found[-2]
        exponent = min(2.0, max(1.0, math.log(value / less) / math.log(last / before)))
    return value * (length / last) ** exponent


def memory_of_machine() -> float:
    """In bytes; without end where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def main() -> None:
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    for found in scout(given["name"], Sizes(**given["sizes"]), given["lengths"], given["limit"], given["how"]):
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
