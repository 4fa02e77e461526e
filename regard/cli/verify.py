"""`regard verify`: the invariants, on a person's own model."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.text import Text

from regard.cli.options import AsJson, RunFolder
from regard.cli.output import print_json, print_table
from regard.runs import bundle_folder

MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("–", "dim")}


def verify(run: RunFolder, as_json: AsJson = False) -> None:
    """Check what must hold for a model, on your own.

    Cached = uncached, batched = single, padded = unpadded, reloaded = saved, and so on.
    """
    folder = bundle_folder(run)
    from regard.verify import verify_bundle

    checks = verify_bundle(folder)
    failed = sum(check.passed is False for check in checks)
    if as_json:
        print_json({"bundle": str(folder), "failed": failed, "checks": [asdict(check) for check in checks]})
    else:
        rows = [(Text(*MARKS[check.passed]), check.name, check.detail) for check in checks]
        print_table(("", "check", "detail"), rows, fold=("detail",))
        passed = sum(check.passed is True for check in checks)
        print(f"{passed} passed, {failed} failed, {len(checks) - passed - failed} not applicable")
    if failed:
        raise typer.Exit(1)
