"""What `regard heads` prints: a line for each head, one for each layer, what was found besides, and what it means."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from regard.cli.output import Advance, print_table, results

if TYPE_CHECKING:
    from regard.attention import Role
    from regard.evaluate.ratios import Estimate
    from regard.look.heads_findings import Faithfulness
    from regard.look.heads_report import Head, HeadReport

COLUMNS = ("attention", "layer", "head", "what it does", "number", "also", "loss without it", " ")
MARK = "◀"


def print_report(report: HeadReport) -> None:
    marked = report.marked()
    whole = {(each.role, each.layer): each.removal for each in report.layers}
    rows: list[list[str]] = []
    last: tuple[Role, int] | None = None
    for head in report.heads:
        here = (head.role, head.layer)
        if last is not None and here != last:
            rows += _layer(whole, last)
        new = last is None or last[0] != head.role
        rows.append([head.role if new else "", str(head.layer) if here != last else "", *_cells(head)])
        rows[-1].append(MARK if (head.role, head.layer, head.head) in marked else "")
        last = here
    rows += _layer(whole, last) if last is not None else []
    shown = COLUMNS if report.loss is not None else COLUMNS[:6]
    print_table(shown, [row[: len(shown)] for row in rows], right=("layer", "head", "loss without it"), fold=("also",))
    _print_rest(report)


def _cells(head: Head) -> list[str]:
    removed = "" if head.removal is None else f"{head.removal.value:+.4f} ± {head.removal.error:.4f}"
    return [str(head.head), head.rule, head.number(), ", ".join(head.rules[1:]), removed]


def _layer(whole: dict[tuple[Role, int], Estimate], layer: tuple[Role, int]) -> list[list[str]]:
    if layer not in whole:
        return []
    found = whole[layer]
    return [["", "", "all", "", "", "", f"{found.value:+.4f} ± {found.error:.4f}", ""]]


def _print_rest(report: HeadReport) -> None:
    console = results()
    loss = (
        "" if report.loss is None else f"; loss {report.loss.value:.4f} nats a {report.unit} ({report.predictions:,})"
    )
    console.print(f"{report.texts:,} texts of {report.on}{loss}", markup=False, soft_wrap=True)
    if report.marked():
        console.print(f"{MARK} the heads without which the loss rises most", markup=False)
    for line in [] if report.induction is None else report.induction.sentences():
        console.print(line, markup=False, soft_wrap=True)
    if report.faithful is not None:
        print_faithful(report.faithful)
    for line in report.meaning():
        console.print(line, style="dim", markup=False, soft_wrap=True)


def print_faithful(found: Faithfulness) -> None:
    """The maps of all heads and of layers, and of heads the best and the worst; JSON and HTML have the others."""
    heads = sorted((each for each in found.maps if each.name.startswith("head ")), key=lambda each: -each.score.value)
    shown = [(each.name, each) for each in found.maps if not each.name.startswith("head ")]
    shown += [(f"{each.name} (best of {len(heads)})", each) for each in heads[:1]]
    shown += [(f"{each.name} (worst)", each) for each in heads[1:][-1:]]
    rows = []
    for name, each in shown:
        interval = f"{each.score.low:.2f} to {each.score.high:.2f}"
        rows.append([name, f"{each.score.value:.2f}", interval, f"{each.drop:.2f}", f"{each.hits:.0%}"])
    columns = ("map", "faithful", "95% interval", "falls by", "is the best word")
    print_table(columns, rows, right=columns[1:])
    for line in found.sentences():
        results().print(line, markup=False, soft_wrap=True)


@contextmanager
def timed(what: str) -> Iterator[Advance]:
    """A line on the terminal: how many of how many, how fast, and how long it will take; nothing where there is none."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    started = time.monotonic()
    with console.status("reading …") as status:

        def advance(done: int, total: int) -> None:
            rate = done / max(1e-9, time.monotonic() - started)
            status.update(f"{what}: {done:,} of {total:,}, {rate:.1f} a second, {(total - done) / rate:.0f} s left")

        yield advance
