"""`regard bench RUN`: what a model costs on this machine, and what to set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import check_model, choose_device
from regard.cli.options import AsJson, Device, RunFolder
from regard.cli.output import print_json, print_table, say
from regard.errors import UsageError
from regard.training.config import seconds

if TYPE_CHECKING:
    from regard.bench.model import ModelBench


def bench_model(
    run: RunFolder,
    budget: Annotated[str, typer.Option(metavar="TIME", help="About how long to measure, such as 20s or 2m.")] = "20s",
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads.", show_default="torch's own, and one beside them")
    ] = None,
    as_json: AsJson = False,
    device: Device = "cpu",
) -> None:
    """Training and decoding rates, latency, memory and load time of a model on this machine, and what to set."""
    try:
        span = float(seconds(budget))  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--budget {budget}: {error}") from error
    check_model(run, device)
    if not as_json:
        say(f"measuring {run} for about {span:.0f} s, on random inputs (--budget takes another time)")
    chosen = choose_device(device)
    from regard.bench.model import bench_model as measure

    found = measure(run, budget=span, threads=threads, device=chosen)
    if as_json:
        print_json(found.data())
    else:
        print_found(found)


def print_found(found: ModelBench) -> None:
    print(f"{found.kind} to {found.task}, {found.parameters:,} parameters; {_where(found)}")
    print(f"loads in {found.load:.2g} s{_cold(found)}; at most in memory: {_memory(found)}")
    print(f"one large matrix product: {2e-9 * found.limit:,.0f} GFLOP/s\n")
    columns: tuple[str, ...] = ("decoding", "together", "inputs/s", "tokens/s")
    rates = [(e.way, str(e.batch), _rate(e.inputs_per_second), _rate(e.tokens_per_second)) for e in found.decoding]
    print_table(columns, rates, right=columns[1:])
    print()
    columns = ("one input, ms", "p50", "p90", "p99", "measured")
    spans = [
        (e.way, *(f"{1000 * each:,.1f}" for each in (e.p50, e.p90, e.p99)), f"{e.inputs:,}") for e in found.latency
    ]
    print_table(columns, spans, right=columns[1:])
    if found.training:
        print()
        columns = ("training, together", "updates/s", "tokens/s", "of the limit")
        learned = [
            (f"{e.batch:,}", _rate(e.updates_per_second), _rate(e.tokens_per_second), f"{e.share:.0%}")
            for e in found.training
        ]
        print_table(columns, learned, right=columns)
    print()
    for sentence in found.advice:
        print(sentence)


def _where(found: ModelBench) -> str:
    about = found.conditions
    return f"{about.device}, {about.threads} thread{'s' * (about.threads > 1)}, {about.cores} cores"


def _cold(found: ModelBench) -> str:
    return "" if found.cold_load is None else f", {found.cold_load:.2g} s in a new process with all that it imports"


def _memory(found: ModelBench) -> str:
    return ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in found.memory.items())


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
