"""`regard heads`: what each head of a model does, whether it matters, and how faithful its maps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

import regard
from regard.cli.model import check_files, load_model, newest_of_any
from regard.cli.options import AsJson, Device
from regard.cli.output import print_json, print_table, progress, results, say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.attention import Role
    from regard.evaluate.bootstrap import Estimate
    from regard.look.heads import Faithfulness, Head, HeadReport

ROLES = ("self", "causal", "cross", "pool")
SUFFIXES = (".png", ".svg", ".html", ".json")
OTHERWISE = "make one with: regard demo, or name a model: regard heads RUN"


def heads(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A run or a bundle.", show_default="the newest run here")
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="FILE...", help="Texts, as for regard eval.", show_default="its validation data"),
    ] = None,
    texts: Annotated[int, typer.Option(metavar="N", min=1, help="The first so many texts that fit.")] = 200,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE", help="Only attention in one role: self, causal, cross or pool.", show_default="all"
        ),
    ] = None,
    removal: Annotated[
        bool, typer.Option("--removal/--no-removal", help="Measure the loss without each head: a pass for each.")
    ] = True,
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Remove source words: does the output depend on what maps point at?")
    ] = False,
    reference: Annotated[
        bool,
        typer.Option("--reference", help="For --faithful: of references and right labels, not of its own outputs."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Save it (.png .svg .html .json).")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Name what each head does (previous token, alignment, broad, ...), by rule, with the number that says so.

    And whether it matters: the loss on data with the head removed. For models of text.
    """
    _check(role, reference and not faithful, out)
    folder = run or str(newest_of_any(OTHERWISE, "regard heads RUN takes another"))
    check_files(on or ())
    predictor = load_model(folder, device)
    from regard.tasks.material import material_of

    material = material_of(predictor, folder, on or ())
    if faithful:
        from regard.inspect.faithfulness import check_faithful

        check_faithful(predictor)
    with progress("removing heads") as advance:
        report = regard.heads_of(
            predictor,
            material,
            texts=texts,
            role=cast("Role | None", role),
            removal=removal,
            name=folder,
            progress=advance,
        )
    if faithful:
        with progress("removing words") as advance:
            found = regard.faithfulness(predictor, material, texts=texts, reference=reference, progress=advance)
        report = replace(report, faithful=found)
    written = None if out is None else report.save(out)  # a reader that leaves early loses nothing
    if as_json:
        print_json(report.data())
    else:
        print_report(report)
    if written is not None:
        say(f"wrote {written}")


def _check(role: str | None, lone: bool, out: Path | None) -> None:
    """Refuse what is wrong before anything is loaded."""
    if role is not None and role not in ROLES:
        raise UsageError(f"--role is one of {', '.join(ROLES)}, not {role}")
    if lone:
        raise UsageError("--reference says of what faithfulness is measured; add --faithful")
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot tell how to write {out.name}; use {', '.join(SUFFIXES)}")


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
