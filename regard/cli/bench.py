"""`regard bench`: what a model costs on this machine, attention over the length, and which pairs sparse patterns see."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regard.cli.arguments import NearestName
from regard.cli.bench_model import bench_model
from regard.cli.extrapolate import print_lengths
from regard.cli.model import about, check_out
from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, results, say
from regard.config import from_assignments
from regard.errors import UsageError, nearest
from regard.files import finite, read_json, write_bytes, write_json
from regard.models.configs.attention import KERNEL_KINDS
from regard.training.stopwatch import duration

if TYPE_CHECKING:
    from typer._click.core import Context

    from regard.bench.attention import AttentionBench, KernelCosts, OnProgress
    from regard.bench.extrapolate import Extrapolation

Row = dict[str, object]  # what one kernel learned of one task, by the names of its figures


class RunOrCommand(NearestName):
    """A group whose first word may be a run, which is measured: `regard bench RUN` is `regard bench model RUN`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        known = (*self.list_commands(ctx), "-h", "--help")
        if args and args[0] not in known and (args[0].startswith("-") or os.sep in args[0] or Path(args[0]).is_dir()):
            args = ["model", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(
    cls=RunOrCommand,
    rich_markup_mode=None,
    add_completion=False,
    help="""What a model costs here (regard bench RUN); attention over the length of a text, and sparse patterns.""",
    epilog="Such as: regard bench RUN --budget 1m, regard bench attention -o growth.png",
)
bench.command("model")(bench_model)


@bench.command()
def attention(
    kernels: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...",
            help="What is measured; naive is exact attention with all its scores in memory.",
            show_default="all but naive",
        ),
    ] = "",
    lengths: Annotated[
        str, typer.Option(metavar="T,T,...", help="Lengths of the sequence.", show_default="128 to 16,384, doubling")
    ] = "",
    width: Annotated[int, typer.Option(metavar="N", min=1, help="Width of the model.")] = 256,
    heads: Annotated[int, typer.Option(metavar="N", min=1, help="Heads that it is split into.")] = 4,
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences at once.")] = 1,
    causal: Annotated[bool, typer.Option("--causal", help="Each position sees only what came before.")] = False,
    backward: Annotated[bool, typer.Option(help="Measure the way back as well.")] = True,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds; the median counts.")] = 5,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads.", show_default="torch's own")
    ] = None,
    limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Most seconds that one pass may take; longer ones are skipped."),
    ] = 20.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="A key of a kernel, as performer.features=128.")
    ] = None,
    quality: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON rows {task, kernel, loss, ...}, shown beside.")
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="RUN", help="A trained language model: its loss over these lengths, beside."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="A figure (.png .svg), or every round as .json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time and memory of each kind of attention over the length, how both grow, and from where a kernel pays."""
    names, sizes = read_names(kernels), read_lengths(lengths)
    learned = None if quality is None else read_quality(quality)
    check_out(out, (".png", ".svg", ".json"))
    if width % heads:
        raise UsageError(f"a width of {width} cannot be split into {heads} heads; choose a divisor of {width}")
    tables = from_assignments(settings or [])
    unknown = [name for name in tables if name not in names]
    if unknown:
        raise UsageError(f"--set {unknown[0]}: it is not among what is measured ({', '.join(names)})")
    for run in runs or ():
        about(run, "generate")
    say(
        f"measuring {', '.join(names)} at {len(sizes)} lengths up to {max(sizes):,}: first memory, each in a process of "
        f"its own, then time, {rounds} rounds and one to warm up; a pass over {limit:g} s (--limit) is skipped"
    )
    from regard.bench.attention import Sizes, bench_attention

    same = Sizes(width, heads, batch, causal, backward, tables)
    trained = losses(runs, max(sizes)) if runs else []
    with working() as tell:
        found = bench_attention(names, sizes, same, rounds=rounds, threads=threads, limit=limit, on_progress=tell)
    written = save(found, trained, out)  # before anything is printed: a reader that leaves early loses nothing
    if as_json:
        print_json(as_data(found, trained))
    else:
        print_bench(found)
    if learned is not None and not as_json:
        print_quality(learned)
    if trained and not as_json:
        print_lengths(trained, [])
    for path in written:
        say(f"wrote {path}")


def losses(runs: list[str], longest: int) -> list[Extrapolation]:
    """Measure trained models on their validation text: in windows of their training, doubled up to the longest."""
    from regard.bench.extrapolate import extrapolate, trained_context

    context = min(trained_context(run) for run in runs)
    times = [2**n for n in range(32) if context * 2**n <= longest] or [1]
    return extrapolate(runs, times=times)


def read_names(kernels: str) -> list[str]:
    names = [name.strip() for name in kernels.split(",") if name.strip()] or list(KERNEL_KINDS)
    for name in names:
        if name not in (*KERNEL_KINDS, "naive"):
            raise UsageError(f"no kernel {name}", nearest(name, (*KERNEL_KINDS, "naive")))
    return names


def read_lengths(lengths: str) -> list[int]:
    words = [word.strip() for word in lengths.split(",") if word.strip()]
    if not words:
        return [128 * 2**n for n in range(8)]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--lengths {lengths}: write whole numbers with commas between, as --lengths 512,1024,2048")
    return sorted({int(word) for word in words})


def read_quality(path: Path) -> list[Row]:
    """Rows of what kernels learned: a list, or tables of tables, {task: {kernel: {...}}}, as benchmarks/long.py has them."""
    value = read_json(path)
    rows = value if isinstance(value, list) else _rows_of(value)
    if not rows or not all(isinstance(row, dict) and {"task", "kernel"} <= row.keys() for row in rows):
        raise UsageError(
            f"{path} must hold a list of rows, each with task and kernel, and loss, accuracy, seconds, steps"
        )
    return [_flat(row) for row in rows]


def _flat(row: Row) -> Row:
    """Tables inside a row as columns of their own, "validation loss"; lists have no column."""
    found: Row = {}
    for key, value in row.items():
        inner = {f"{key} {name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        found |= {name: each for name, each in inner.items() if not isinstance(each, (dict, list))}
    return found


def _rows_of(tables: object) -> list[Row]:
    tasks = tables if isinstance(tables, dict) else {}
    return [
        {"task": task, "kernel": kernel, **entry}
        for task, kernels in tasks.items()
        if isinstance(kernels, dict) and task != "conditions"
        for kernel, entry in kernels.items()
        if isinstance(entry, dict)
    ]


def as_data(found: AttentionBench, trained: list[Extrapolation]) -> dict[str, object]:
    """Every round, and the losses of trained models beside."""
    return found.data() | ({"trained": finite([each.data() for each in trained])} if trained else {})


def save(found: AttentionBench, trained: list[Extrapolation], out: Path | None) -> list[Path]:
    if out is None:
        return []
    if out.suffix.lower() == ".json":
        return [write_json(out, as_data(found, trained))]
    from regard.look.figures import costs, sheet

    figure = costs.draw_growth(found.costs(), conditions_of(found))
    return [write_bytes(out, sheet.render(figure, out.suffix.lower()[1:]))]


@bench.command()
def patterns(
    length: Annotated[int, typer.Option(metavar="T", help="Positions of the sequence.")] = 64,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Draw them (.png .svg .json).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which pairs the sparse kernels see: window, strided, fixed and BigBird, to both sides and causal."""
    check_out(out, (".png", ".svg", ".json"))
    from regard.look import patterns as sparse
    from regard.look.figures import costs, sheet

    found = sparse.patterns(length)
    if out is not None and out.suffix.lower() == ".json":
        write_json(out, [each.data() for each in found])
    elif out is not None:
        write_bytes(out, sheet.render(costs.draw_patterns(found), out.suffix.lower()[1:]))
    if as_json:
        print_json([each.data() for each in found])
        return
    rows = [
        (
            each.name,
            "causal" if each.causal else "both",
            "" if each.pairs is None else f"{each.share:.1%}",
            each.settings,
        )
        for each in found
    ]
    print_table(("pattern", "sides", "of pairs", "with"), rows, right=("of pairs",), fold=("with",))
    results().print(sparse.NONE, style="dim", soft_wrap=True)
    if out is not None:
        say(f"wrote {out}")


MIB = 2**20
EVERY = 10.0  # seconds between lines of progress in a file or a pipe


def conditions_of(found: AttentionBench) -> str:
    """Say in a line under which conditions it was measured."""
    sizes = found.sizes
    way = "forward and backward" if sizes.backward else "forward"
    return (
        f"{'causal, ' if sizes.causal else ''}{way}, "
        f"width {sizes.width}, {_counted(sizes.heads, 'head')}, batch {sizes.batch}, "
        f"{_counted(found.conditions['threads'], 'thread')}, median of {_counted(found.rounds, 'round')}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def print_bench(found: AttentionBench) -> None:
    lengths = shown_lengths(sorted({length for line in found.lines for length in line.time()}))
    longest = lengths[-1]
    columns = [
        "kernel", *(f"{length:,}\nms" for length in lengths), "time\ngrows", "pays\nfrom",
        *([f"forward\n{longest:,} ms"] if found.sizes.backward else []), f"{longest:,}\nMiB", "memory\ngrows",
    ]  # fmt: skip
    rows = []
    for line in found.lines:
        seconds, forward, memory = line.time(), line.forward(), line.memory()
        growth = line.growth()
        cells = [line.name, *(number(1e3, seconds.get(length)) for length in lengths), power(growth["time"])]
        cells.append(pays(found, line))
        cells += [number(1e3, forward.get(longest))] if found.sizes.backward else []
        rows.append([*cells, number(1 / MIB, memory.get(longest)), power(growth["memory"])])
    print_table(columns, rows, right=columns[1:])
    console = results()
    console.print(conditions_of(found), style="dim", markup=False, soft_wrap=True)
    told = "growth: the power of T, fitted from 1,024 on; memory: at the peak, beside inputs"
    console.print(told, style="dim", soft_wrap=True)
    for note in (*settings_of(found), *never_paying(found), *found.notes):
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


def never_paying(found: AttentionBench) -> list[str]:
    """Name the kernels that do not pay, and up to where that was seen."""
    exact = found.line("exact")
    times = {} if exact is None else exact.time()
    others = [line for line in found.lines if line.name != "exact" and line.time().keys() & times.keys()]
    return [
        f"{line.name} does not pay up to {max(line.time().keys() & times.keys()):,}"
        for line in others
        if found.pays_from(line) is None
    ]


def pays(found: AttentionBench, line: KernelCosts) -> str:
    """From which length on a kernel beats exact attention."""
    exact = found.line("exact")
    common = [] if exact is None else sorted(line.time().keys() & exact.time().keys())
    if line.name == "exact" or not common:
        return ""
    start = found.pays_from(line)
    if start is None:
        return "–"
    return f"≤ {common[0]:,}" if start <= common[0] else f"{start:,.0f}"


def print_quality(rows: list[Row]) -> None:
    """Print the quality that each kernel reached, in the order of the file."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    results().print()
    print_table(columns, cells, right=[name for name in columns if name not in ("task", "kernel")])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def working() -> Iterator[OnProgress]:
    """Show what is measured now, and how long it will go on; a line now and then where stderr is no terminal."""
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
