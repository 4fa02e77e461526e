"""`regard plan`: memory, exchange, time and money of a training on many accelerators, before one is rented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import check_out
from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, say
from regard.errors import UsageError
from regard.training.stopwatch import duration

if TYPE_CHECKING:
    from regard.bench.hardware import Gpu
    from regard.bench.plan import Estimate, Machine, Plan

SUFFIXES = (".png", ".svg", ".html", ".json")
LIST, HERE, CUSTOM = "list", "cpu", "custom"
PARTS = ("weights", "gradients", "optimiser", "activations")
COLUMNS = ("layout", "batches", "memory", *PARTS, "sent a step", "step", "efficiency")


def plan(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="A TOML file, a task, a preset such as base, a run or a bundle.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=1, help="Ranks: one for each accelerator.")] = 8,
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="a100, h100, ...; list names all; cpu is this machine; custom is yours.")
    ] = "a100",
    per_node: Annotated[int, typer.Option(metavar="N", min=1, help="Accelerators of one machine.")] = 8,
    inside: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="Link within a machine.", show_default="the accelerator's usual one"),
    ] = None,
    between: Annotated[str, typer.Option(metavar="LINK", help="Link between machines.")] = "infiniband-hdr",
    adapters: Annotated[int, typer.Option(metavar="N", min=1, help="Network adapters of each machine.")] = 1,
    model: Annotated[str | None, typer.Option(metavar="KIND", help="Kind of model of a preset, such as llama.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of the configuration.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tokens that see each other.", show_default="a window; a sentence"),
    ] = None,
    each: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tokens of an update on each rank, instead of one batch that all share."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="PRICE", min=0, help="Dollars an hour of one accelerator.")
    ] = None,
    share: Annotated[
        float, typer.Option(metavar="X", min=0.001, max=1, help="Share of the peak operations that is reached.")
    ] = 0.4,
    link_share: Annotated[
        float, typer.Option(metavar="X", min=0.001, max=1, help="Share of a link's bandwidth that is reached.")
    ] = 0.8,
    overlap: Annotated[
        float, typer.Option(metavar="X", min=0, max=1, help="Share of the computing behind which an exchange can hide.")
    ] = 0.8,
    rate: Annotated[
        float | None, typer.Option(metavar="TERA", help="Of --gpu custom: 10^12 operations a second in bf16.")
    ] = None,
    memory: Annotated[float | None, typer.Option(metavar="GIB", help="Of --gpu custom: its memory.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Draw efficiency over 1 to 1,024 ranks (.png .svg)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Memory, exchange, time, efficiency and money of a training on many accelerators, by layout; on paper.

    All constants are stated: regard plan --gpu list shows them with their sources.
    """
    check_out(out, SUFFIXES)
    if gpu == LIST:
        print_hardware(as_json)
        return
    if what is None:
        raise UsageError("plan needs a model: regard plan base --gpus 8, or a TOML file, a run, a bundle")
    from regard.bench.hardware import LINKS, named
    from regard.bench.plan import Assumptions, Machine, make_plan
    from regard.bench.workload import configured, workload_of

    found = device_of(gpu, rate, memory, gpus)
    link = named(inside or found.inside, LINKS, "link")
    assumed = Assumptions(share=share, link_share=link_share, overlap=overlap)
    if gpu == HERE:
        assumed = replace(
            assumed, share=1.0, link_share=1.0, overlap=0.0, reserved=0.3e9, trees=False
        )  # all of it measured
    machine = Machine(found, link, named(between, LINKS, "link"), per_node, adapters, assumed)
    config, vocabulary = configured(what, model, {}, assignments or [])
    half = bool(found.bf16) and config.train.precision not in ("float32", "tf32")
    work = workload_of(str(what), config, vocabulary, length)
    made = make_plan(work, machine, gpus, half, price=price, each=each)
    if out is not None:
        say(f"wrote {made.picture().save(out)}")
    if as_json:
        print_json(made.data())
    else:
        print_plan(made)


def device_of(name: str, rate: float | None, memory: float | None, ranks: int) -> Gpu:
    """The accelerator of the table, a share of this machine as it is measured now, or one that a person describes."""
    from regard.bench.hardware import GIB, GPUS, TERA, Gpu, named

    if name != CUSTOM and (rate or memory):
        raise UsageError("--rate and --memory describe an accelerator of your own: --gpu custom")
    if name == CUSTOM:
        if not rate or not memory:
            raise UsageError("an accelerator of your own needs both: --gpu custom --rate 100 --memory 24")
        return Gpu(CUSTOM, "as described", rate * TERA, rate * TERA, memory * GIB, "pcie-4", "the person who asks")
    if name == HERE:
        import torch

        from regard import doctor

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as each of several processes has
        speed = 1e9 * doctor.matrix_speed(0.5) * min(1.0, doctor.cores() / ranks)
        torch.set_num_threads(threads)
        total, _ = doctor.memory()
        return Gpu(HERE, "this machine's processor", 0, speed, total / ranks, "loopback", "measured just now")
    return named(name, GPUS, "accelerator")


# --- Printing


def print_plan(found: Plan) -> None:
    work, machine = found.work, found.machine
    precision = "bf16" if found.half else "float32"
    size = f"{work.parameters / 1e6:,.1f} million parameters"
    print(
        f"{work.name}: {size}, {work.tokens:,} tokens an update, {work.tokens / found.ranks:,.0f} on each rank, {precision}"
    )
    print(f"{found.ranks} x {machine.gpu.title}, {links_in_words(machine, found.ranks)}\n")
    print_table(COLUMNS, [row_of(each) for each in found.each], right=COLUMNS[1:])
    print(f"\n{found.why()}")
    best = found.best
    if best is not None and work.steps:
        seconds, dollars = found.seconds(best), found.dollars(best)
        cost = "" if dollars is None else f", {dollars:,.2f} dollars"
        print(
            f"{work.steps:,} updates: {duration(seconds)}, {seconds / 3600 * found.ranks:,.1f} hours of an accelerator{cost}"
        )
    for note in found.notes():
        say(note)


def row_of(each: Estimate) -> tuple[str, ...]:
    from regard.bench.plan import gigabytes, time_in_words

    memory = each.memory
    parts = (
        memory.total,
        memory.weights + memory.gathered,
        memory.gradients,
        memory.optimiser,
        memory.activations,
        each.sent,
    )
    total, *rest = map(gigabytes, parts)
    fits = total if each.fits else f"{total} (too much)"
    return (
        each.layout.name,
        str(each.accumulate),
        fits,
        *rest,
        time_in_words(each.step),
        f"{100 * each.efficiency:.0f}%",
    )


def links_in_words(machine: Machine, ranks: int) -> str:
    if ranks <= machine.per_node:
        return f"one machine, {machine.inside.title}"
    nodes, network = -(-ranks // machine.per_node), f"{machine.adapters} x {machine.between.title}"
    return f"{nodes} machines of {machine.per_node}, {machine.inside.title} inside, {network} between"


def print_hardware(as_json: bool) -> None:
    from dataclasses import asdict

    from regard.bench.hardware import GIB, GPUS, LINKS, TERA

    if as_json:
        print_json(
            {"gpus": [asdict(each) for each in GPUS.values()], "links": [asdict(each) for each in LINKS.values()]}
        )
        return
    columns = ("gpu", "bf16", "float32", "memory", "inside", "source")
    rows = [
        (each.name, f"{each.bf16 / TERA:g}" if each.bf16 else "", f"{each.float32 / TERA:g}", f"{each.memory / GIB:g} GiB",
         each.inside, each.source)
        for each in GPUS.values()
    ]  # fmt: skip
    print_table(columns, rows, right=columns[1:4], fold=("source",))
    print()
    links = [
        (each.name, f"{each.bytes / 1e9:g}", f"{each.latency * 1e6:g} µs", each.title, each.source)
        for each in LINKS.values()
    ]
    print_table(("link", "GB/s", "latency", "", "source"), links, right=("GB/s", "latency"), fold=("source",))
    say("10^12 operations a second; bytes in one direction")
