"""`regard heads`: what each head of a model does, whether it matters, and how faithful its maps are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.heads_show import print_report
from regard.cli.model import check_files, load_model, newest_of_any
from regard.cli.options import AsJson, Device
from regard.cli.output import print_json, progress, say
from regard.errors import UsageError

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
    """What each head does (previous token, alignment, broad, ...), by rule, with the number that says so.

    And whether it matters: the loss on data with the head removed. For models of text.
    """
    _check(role, reference and not faithful, out)
    folder = run or str(newest_of_any(OTHERWISE, "regard heads RUN takes another"))
    check_files(on or ())
    user = load_model(folder, device)
    from regard.tasks.heads_data import material_of

    material = material_of(user, folder, on or ())
    report = _report(user, material, folder, texts, role, removal, faithful, reference)
    written = None if out is None else report.save(out)  # a reader that leaves early loses nothing
    if as_json:
        print_json(report.data())
    else:
        print_report(report)
    if written is not None:
        say(f"wrote {written}")


def _check(role: str | None, lone: bool, out: Path | None) -> None:
    """What can be told before anything is loaded."""
    if role is not None and role not in ROLES:
        raise UsageError(f"--role is one of {', '.join(ROLES)}, not {role}")
    if lone:
        raise UsageError("--reference says of what faithfulness is measured; add --faithful")
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UsageError(f"cannot tell how to write {out.name}; use {', '.join(SUFFIXES)}")


def _report(
    user: Any, material: Any, folder: str, texts: int, role: Any, removal: bool, faithful: bool, reference: bool
) -> Any:
    from dataclasses import replace

    from regard.tasks.faithful import check_faithful, faithfulness
    from regard.tasks.heads import heads_of

    if faithful:
        check_faithful(user)
    with progress("removing heads") as advance:
        report = heads_of(user, material, texts=texts, role=role, removal=removal, name=folder, progress=advance)
    if not faithful:
        return report
    with progress("removing words") as advance:
        found = faithfulness(user, material, texts=texts, reference=reference, progress=advance)
    return replace(report, faithful=found)
