"""`regard doctor`: the machine, the installation, and what could be better; of several processes, what passes between them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, results, say
from regard.doctor import checkup
from regard.errors import UsageError
from regard.runs import all_runs
from regard.world import world_of

if TYPE_CHECKING:
    from regard.world_doctor import WorldCheckup


def doctor(
    world: Annotated[
        bool, typer.Option("--world", help="Look at the processes that torchrun started, and what passes between them.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="With --world: start N here, without torchrun.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "-m", "--model", metavar="RUN", help="Whose gradient is to pass.", show_default="the newest run here"
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long a rank is waited for.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Look at this machine and installation; say what could be better.

    torchrun --nproc-per-node 2 -m regard doctor --world looks at several processes, on one machine or many.
    """
    if not world:
        if processes is not None or model is not None:
            raise UsageError("--processes and --model are about several processes; add --world")
        look_here(as_json)
        return
    if processes is not None:
        raise typer.Exit(start(processes, model, timeout, as_json))
    if world_of(os.environ).is_alone:
        raise UsageError(
            "there is one process; --processes 2 starts two here, or: torchrun --nproc-per-node 2 -m regard doctor --world"
        )
    from regard.world_doctor import examine, parameters_of

    runs = [str(run.folder) for run in all_runs() if run.has_bundle] if model is None else [model]
    found = examine((runs[-1], parameters_of(runs[-1])) if runs else None, timeout)
    if found is None:
        return
    if as_json:
        print_json(found.data())
    else:
        print_world(found)


def start(processes: int, model: str | None, timeout: float, as_json: bool) -> int:
    """Have torchrun start so many processes here that are asked the same; its exit code."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words = ["-m", "regard", "doctor", "--world", "--timeout", str(timeout)]
    words += ["--model", model] if model else []
    words += ["--json"] if as_json else []
    sys.stdout.flush()
    return subprocess.run([sys.executable, *launcher, *words]).returncode


def look_here(as_json: bool) -> None:
    """Print what is found of this machine."""
    found = checkup()
    if as_json:
        print_json(found.data())
        return
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    rows = [*((fact.name, fact.value) for fact in found.facts), ("packages", versions)]
    print_table(("", " "), rows, fold=(" ",))
    print_warnings(found.warnings)


def print_warnings(warnings: tuple[str, ...]) -> None:
    console = results()
    for warning in warnings:
        console.print(f"[yellow]![/] {warning}", soft_wrap=True)
    if not warnings:
        console.print("[green]✓[/] nothing to mend")


def print_world(found: WorldCheckup) -> None:
    columns = ("rank", "host", "device", "cores", "threads", "torch", "python", "backend")
    rows = [
        (
            str(each.rank),
            each.host,
            each.device,
            str(each.cores),
            str(each.threads),
            each.torch,
            each.python,
            each.backend,
        )
        for each in found.ranks
    ]
    print_table(columns, rows, right=("rank", "cores", "threads"))
    print()
    count = len(found.ranks)
    sums = [
        (size_in_words(each.size), f"{each.seconds * 1e3:,.3g} ms", f"{each.rate(count) / 1e9:.3g} GB/s")
        for each in found.exchanges
    ]
    print_table(("all-reduce of", "time", "sent by each"), sums, right=("all-reduce of", "time", "sent by each"))
    link = found.link
    print(
        f"\nlatency {link.latency * 1e6:,.3g} µs, bandwidth {link.bytes / 1e9:.3g} GB/s explain them (a ring of {count})"
    )
    if found.gradient is not None and found.gradient_seconds is not None:
        name, parameters = found.gradient
        told = f"{parameters:,} parameters, {size_in_words(4 * parameters)} in float32"
        print(f"the gradient of {name} ({told}) takes {found.gradient_seconds * 1e3:,.3g} ms of each update")
    else:
        say("no run here; -m RUN says what its gradient would take")
    print_warnings(found.warnings)


def size_in_words(size: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:,.4g} {name}"
    return f"{size} bytes"
