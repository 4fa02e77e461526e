"""What `regard bench` prints: one table of costs, one of what was learned, and how far it has come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from regard.cli.output import print_table, results, say

if TYPE_CHECKING:
    from regard.tasks.bench_attention import Tell
    from regard.tasks.bench_result import AttentionBench, Line

MIB = 2**20
EVERY = 10.0  # seconds between lines of progress in a file or a pipe


def conditions_of(found: AttentionBench) -> str:
    """What was measured under which conditions, in a line."""
    sizes = found.sizes
    way = "forward and backward" if sizes.backward else "forward"
    return (
        f"{'causal, ' if sizes.causal else ''}{way}, width {sizes.width}, {_of(sizes.heads, 'head')}, batch {sizes.batch}, "
        f"{_of(found.conditions['threads'], 'thread')}, median of {_of(found.rounds, 'round')}"
    )


def _of(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def print_bench(found: AttentionBench) -> None:
    from regard.tasks.bench_growth import exponent

    lengths = shown_lengths(sorted({length for line in found.lines for length in line.time()}))
    longest = lengths[-1]
    columns = [
        "kernel", *(f"{length:,}\nms" for length in lengths), "time\ngrows", "pays\nfrom",
        *([f"forward\n{longest:,} ms"] if found.sizes.backward else []), f"{longest:,}\nMiB", "memory\ngrows",
    ]  # fmt: skip
    rows = []
    for line in found.lines:
        seconds, forward, memory = line.time(), line.forward(), line.memory()
        cells = [line.name, *(number(1e3, seconds.get(length)) for length in lengths), power(exponent(seconds))]
        cells.append(pays(found, line))
        cells += [number(1e3, forward.get(longest))] if found.sizes.backward else []
        rows.append([*cells, number(1 / MIB, memory.get(longest)), power(exponent(memory))])
    print_table(columns, rows, right=columns[1:])
    console = results()
    console.print(conditions_of(found), style="dim", markup=False, soft_wrap=True)
    told = "growth: the power of T, fitted from 1,024 on; memory: at the peak, beside inputs"
    console.print(told, style="dim", soft_wrap=True)
    for note in (*settings_of(found), *never(found), *found.notes):
        console.print(note, markup=False, soft_wrap=True)


def shown_lengths(lengths: list[int]) -> list[int]:
    """Three that a table has room for: the longest, a quarter and a sixteenth of it, or the nearest there are."""
    longest = lengths[-1]
    return sorted({min(lengths, key=lambda length: abs(length - longest // part)) for part in (16, 4, 1)})


def settings_of(found: AttentionBench) -> list[str]:
    told = [(line.name, ", ".join(f"{key} {value}" for key, value in line.settings.items())) for line in found.lines]
    return [f"{name}: {settings}" for name, settings in told if settings]


def number(factor: float, value: float | None) -> str:
    if value is None:
        return ""
    value *= factor
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def power(exponent: float | None) -> str:
    return "" if exponent is None else f"T^{exponent:.2f}"


def never(found: AttentionBench) -> list[str]:
    """Who does not pay, and up to where that was seen."""
    exact = found.line("exact")
    times = {} if exact is None else exact.time()
    others = [line for line in found.lines if line.name != "exact" and line.time().keys() & times.keys()]
    return [
        f"{line.name} does not pay up to {max(line.time().keys() & times.keys()):,}"
        for line in others
        if found.pays_from(line) is None
    ]


def pays(found: AttentionBench, line: Line) -> str:
    """From which length on a kernel beats exact attention."""
    exact = found.line("exact")
    common = [] if exact is None else sorted(line.time().keys() & exact.time().keys())
    if line.name == "exact" or not common:
        return ""
    start = found.pays_from(line)
    if start is None:
        return "–"
    return f"≤ {common[0]:,}" if start <= common[0] else f"{start:,.0f}"


def print_quality(rows: list[dict[str, Any]]) -> None:
    """What each kernel learned, in the order of the file."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    results().print()
    print_table(columns, cells, right=[name for name in columns if name not in ("task", "kernel")])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def working() -> Iterator[Tell]:
    """What is measured now, and how long it will go on; a line now and then where stderr is no terminal."""
    from regard.training.probe import duration

    console = Console(stderr=True, highlight=False)
    started: list[float] = []
    if not console.is_terminal:
        last = time.monotonic() - EVERY

        def tell_line(what: str, done: float, total: float) -> None:
            nonlocal last
            first = bool(total) and not started
            if first:
                started.append(time.monotonic())
            if first or time.monotonic() - last >= EVERY:
                last = time.monotonic()
                say(f"{what}{f', about {duration(max(0.0, total - done))} left' if total else ''}")

        yield tell_line
        return
    with console.status("measuring …") as status:

        def tell(what: str, done: float, total: float) -> None:
            if not total:
                status.update(f"{what} …")
                return
            if not started:
                started.append(time.monotonic())
            spent = time.monotonic() - started[0]
            left = spent * (total - done) / max(done, 1e-9)
            status.update(f"{what} · {done / total:.0%} in {duration(spent)} · {duration(left)} left")

        yield tell
