"""`regard doctor`: the machine, the installation, and what could be better."""

from __future__ import annotations

from regard.cli.options import AsJson
from regard.cli.output import print_json, print_table, results
from regard.doctor import checkup


def doctor(as_json: AsJson = False) -> None:
    """Look at this machine and installation; say what could be better."""
    found = checkup()
    if as_json:
        print_json(found.data())
        return
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    rows = [*((fact.name, fact.value) for fact in found.facts), ("packages", versions)]
    print_table(("", " "), rows, fold=(" ",))
    console = results()
    for warning in found.warnings:
        console.print(f"[yellow]![/] {warning}", soft_wrap=True)
    if not found.warnings:
        console.print("[green]✓[/] nothing to mend")
