"""`regard demo`: the whole journey on built-in data, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from regard.cli.model import choose_device
from regard.cli.options import Device
from regard.cli.output import progress, results
from regard.cli.train import start

if TYPE_CHECKING:
    from regard.data.builtin.dates import DatePair
    from regard.tasks.demo import DemoReport
    from regard.tasks.translate.predictor import Translator

LOOKED_AT = "mardi 3 mars 1998"


def demo(
    seed: Annotated[int, typer.Option(metavar="N", help="Everything random follows from it.")] = 1,
    max_time: Annotated[str, typer.Option(metavar="TIME", help="Most training time.")] = "3m",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the picture goes.")] = Path("demo"),
    device: Device = "auto",
) -> None:
    """The whole journey on built-in data, in about a minute.

    Makes pairs of dates, trains a small model, scores it, and shows where it looks. Nothing is downloaded.
    """
    from regard.tasks.demo import demo_config, report, sample_pairs

    config, device = demo_config(seed, max_time), choose_device(device)
    introduce(sample_pairs(), max_time)
    result = start(config, Path.cwd(), None, device)
    translator = result.load(device)
    with progress("reading dates of days it never saw") as advance:
        found = report(translator, advance)
    print_report(found)
    print_attention(translator, out / "attention.png")
    print(f"wrote {result.folder} with the model (best), curves.png and log.jsonl")
    results().print(next_commands(str(result.folder)))


def introduce(pairs: list[DatePair], max_time: str) -> None:
    console = Console(stderr=True, highlight=False)
    console.print("A small Transformer learns to read dates in eighteen languages and to write them as ISO 8601:")
    table = Table(box=None, show_header=False, pad_edge=False)
    for pair in pairs:
        table.add_row(f"[dim]{pair.language}[/]", escape(pair.source), f"[dim]→[/] {pair.target}")
    console.print(Padding(table, (0, 2)))
    console.print(
        "The pairs are made on this machine from CLDR's names of days and months; a token is a character.\n"
        f"Training takes about a minute (at most {escape(max_time)}); Ctrl-C stops it so that it can go on later."
    )


def print_report(found: DemoReport) -> None:
    console = results()
    console.print("\n[bold]What it reads[/]")
    table = Table(box=None, show_header=False, pad_edge=False)
    for limit in (None, None, 20, None):  # a model that has learned nothing yet writes at length
        table.add_column(no_wrap=True, max_width=limit)
    for each in found.examples:
        mark = "[green]✓[/]" if each.output == each.reference else "[red]✗[/]"
        wrong = "" if each.output == each.reference else f"[dim]should be {each.reference}[/]"
        note = wrong or ("" if each.seen else "[dim]a day it never saw[/]")
        table.add_row(mark, escape(each.source), escape(each.output), note)
    console.print(Padding(table, (0, 2)))
    right = round(found.exact * found.tested / 100)
    console.print(
        f"\n[bold]{found.exact:.1f}%[/] exactly right: {right:,} of {found.tested:,} dates of days it never saw"
    )
    console.print(
        f"[bold]{found.alignment_error:.1%}[/] alignment error rate: its attention against the characters that each\n"
        f"digit truly comes from, on {found.aligned} of these dates (0% is perfect)"
    )


def print_attention(translator: Translator, path: Path) -> None:
    attention = translator.translate(LOOKED_AT, attention=True).attention
    assert attention is not None
    console = results()
    console.print("\n[bold]Where it looks[/] (across) while it writes each character of the date (down)")
    console.print(attention.map())
    print(f"\nwrote {attention.save(path)}")


def next_commands(run: str) -> Padding:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    for command, why in (
        ('regard translate "3 mai 2004" --attention', "read your own date"),
        ('regard walk "3 mai 2004" -o walk.html', "every number behind it"),
        (f"regard formation {run} -o formation.gif", "how it came to look there"),
        (f"regard heads {run}", "what each head does"),
        (f"regard eval {run} --on builtin/dates/test", "BLEU, chrF, TER"),
        ("regard train translate --data pairs.tsv", "learn from your own pairs"),
        ("regard runs", "list the runs here"),
    ):
        table.add_row(f"[cyan]{escape(command)}[/]", f"[dim]{why}[/]")
    return Padding(table, (1, 0, 0, 0))
