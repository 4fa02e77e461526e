"""`regard compare`: several models on one test set, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import choose_device
from regard.cli.options import AsJson, Beam, Device, Lowercase, TestPairs, given
from regard.cli.output import print_json, print_table, progress, results, size_on_disk
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks.compare import Row

COLUMNS = ("run", "BLEU", "95% interval", "difference", "p", "chrF", "parameters", "on disk", "sentences/s")


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN RUN...", help="Folders of runs or bundles.", show_default=False)
    ],
    on: TestPairs,
    beam: Beam = None,
    lowercase: Lowercase = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """One table for several models: quality, significance, size, speed."""
    if len(runs) < 2:
        raise UsageError("a comparison needs two runs or more: regard compare RUN RUN --on test.tsv")
    from regard.runs import bundle_folder

    for run in runs:
        bundle_folder(run)  # a wrong name is told before torch is imported
    from regard.tasks.compare import compare as rows_of
    from regard.tasks.evaluate import read_test_set

    pairs = read_test_set(on, runs[0])
    with progress("translating") as advance:
        rows = rows_of(
            runs, pairs, lowercase=lowercase, device=choose_device(device), progress=advance, **given(beam=beam)
        )
    if as_json:
        print_json({"on": on, "sentences": len(pairs), "runs": [row.data() for row in rows]})
    else:
        print_rows(rows, on, len(pairs))


def print_rows(rows: list[Row], on: list[str], sentences: int) -> None:
    print_table(COLUMNS, [cells(row) for row in rows], right=COLUMNS[1:])
    console = results()
    console.print(f"{sentences:,} sentences of {' '.join(on)}; differences are to {rows[0].run}", markup=False)
    console.print("p: how often luck alone makes such a difference (paired bootstrap)", style="dim")
    console.print(rows[0].bleu.signature, style="dim", markup=False, soft_wrap=True)


def cells(row: Row) -> list[str]:
    against = row.against_first
    return [
        row.run,
        f"{row.bleu.value:.1f}",
        f"{row.bleu.low:.1f} to {row.bleu.high:.1f}",
        f"{against.difference:+.1f}" if against else "",
        f"{against.p_value:.3f}" if against else "",
        f"{row.chrf.value:.1f}",
        f"{row.parameters:,}",
        size_on_disk(row.size),
        f"{row.sentences_per_second:,.0f}",
    ]
