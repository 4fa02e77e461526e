"""What `regard heads` prints: a line for each head, one for each layer, what was found besides, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.cli.output import print_table, results

if TYPE_CHECKING:
    from regard.attention import Role
    from regard.evaluate.ratios import Estimate
    from regard.look.heads_findings import Faithfulness
    from regard.look.heads_report import Head, HeadReport

COLUMNS = ("attention", "layer", "head", "what it does", "number", "also", "loss without it", " ")
NARROW = ("head", "what it does", "number", "loss without it", " ")  # where a terminal has no room for all
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
    rows = [row[: len(shown)] for row in rows]
    if _fits(shown, rows):
        print_table(shown, rows, right=("layer", "head", "loss without it"))
    else:
        print_table(
            NARROW[: len(shown) - 3], _narrow(rows), right=("loss without it",), fold=("what it does", "number")
        )
    _print_rest(report)


def _cells(head: Head) -> list[str]:
    removed = "" if head.removal is None else head.removal.signed(4)
    return [str(head.head), head.rule, head.number(), ", ".join(head.rules[1:]), removed]


def _layer(whole: dict[tuple[Role, int], Estimate], layer: tuple[Role, int]) -> list[list[str]]:
    if layer not in whole:
        return []
    return [["", "", "all", "", "", "", whole[layer].signed(4), ""]]


def _fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the table has room where it goes; a file has."""
    console = results()
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    return not console.is_terminal or sum(widths) + 2 * (len(widths) - 1) <= console.width


def _narrow(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Attention, layer and head in one column, as in cross 2.1; what else holds of a head is left to the files."""
    found, role, layer = [], "", ""
    for row in rows:
        role, layer = row[0] or role, row[1] or layer
        whole = row[2] == "all"
        place, what = (f"{role} {layer}", "all its heads") if whole else (f"{role} {layer}.{row[2]}", row[3])
        found.append([place, what, row[4], *row[6:]])
    return found


def _tell(line: str, style: str = "") -> None:
    """A line, broken between words where a terminal shows it."""
    console = results()
    console.print(line, style=style, markup=False, soft_wrap=not console.is_terminal)


def _print_rest(report: HeadReport) -> None:
    loss = (
        "" if report.loss is None else f"; loss {report.loss.value:.4f} nats a {report.unit} ({report.predictions:,})"
    )
    _tell(f"{report.texts:,} texts of {report.on}{loss}")
    if report.marked():
        _tell(f"{MARK} the heads without which the loss rises most")
    for line in [] if report.induction is None else report.induction.sentences():
        _tell(line)
    if report.faithful is not None:
        print_faithful(report.faithful)
    for line in report.meaning():
        _tell(line, "dim")


def print_faithful(found: Faithfulness) -> None:
    """The maps of all heads and of layers, and of heads the best and the worst; JSON and HTML have the others."""
    heads = sorted((each for each in found.maps if each.name.startswith("head ")), key=lambda each: -each.score.value)
    shown = [(each.name, each) for each in found.maps if not each.name.startswith("head ")]
    shown += [(f"{each.name} (best of {len(heads)})", each) for each in heads[:1]]
    shown += [(f"{each.name} (worst)", each) for each in heads[1:][-1:]]
    rows = []
    for name, each in shown:
        rows.append([name, f"{each.score.value:.2f}", each.score.interval(), f"{each.drop:.2f}", f"{each.hits:.0%}"])
    columns = ("map", "faithful", "95% interval", "falls by", "is the best word")
    print_table(columns, rows, right=columns[1:], fold=("map",))
    for line in found.sentences():
        _tell(line)
