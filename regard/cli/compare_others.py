"""`regard compare` for all tasks but translation: one table, one JSON file, and the words that each classifier weighs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.output import print_json, print_table, progress, results, say

if TYPE_CHECKING:
    from regard.data.labelled import Labelled
    from regard.tasks.compare_others import OtherReport
    from regard.tasks.contenders import Contender


UNITS = {"classify-pictures": "pictures", "caption": "pictures", "answer": "questions"}  # of what models see


def compare_others(
    task: str,
    contenders: list[Contender],
    folders: dict[str, Path],
    on: tuple[str, ...],
    texts: list[Labelled],
    columns: dict[str, Any],
    *,
    sentence: str | None,
    budget: float | None,
    place: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Test the trained models, write the report and print it.

    `texts` are labelled ones to classify; `columns` those that a person named, as keys of the data's configuration.
    """
    from regard.files import write_json
    from regard.tasks.compare_others import compare_classifiers, compare_language_models, compare_seeing

    beside = contenders[0].beside
    with progress("testing") as advance:
        if task == "classify":
            report = compare_classifiers(
                folders, texts, on=on, sentence=sentence, budget=budget, device=device, progress=advance
            )
        elif task in UNITS:
            report = compare_seeing(task, folders, on=on, beside=beside, budget=budget, device=device, progress=advance)
        else:
            report = compare_language_models(
                folders, on=on, beside=beside, budget=budget, device=device, progress=advance, **columns
            )
    for note in report.notes:
        say(note)
    written = [] if place is None else [write_json(place / "report.json", report.data())]
    print_json(report.data()) if as_json else print_report(report)
    for path in written:
        say(f"wrote {path}")


def print_report(report: OtherReport) -> None:
    names = list(report.entries[0].scores)
    unit = {"classify": "texts", **UNITS}.get(report.task, "tokens")
    several = report.entries[0].interval is not None
    columns = ["model", *names, *(["95% interval", "p"] if several else []), "parameters", "steps"]
    columns.append(f"{unit}/s")
    rows = []
    for entry in report.entries:
        digits = 1 if several else 3
        cells = [entry.name, *(f"{entry.scores[name]:.{digits}f}" for name in names)]
        if entry.interval is not None:
            cells += [f"{entry.interval[0]:.1f} to {entry.interval[1]:.1f}"]
            cells += ["" if entry.p_value is None else f"{entry.p_value:.3f}"]
        steps = "" if entry.training is None else f"{entry.training.steps:,}"
        rows.append([*cells, f"{entry.parameters:,}", steps, f"{entry.rate:,.0f}"])
    print_table(tuple(columns), rows, right=tuple(columns)[1:], fold=("model",))
    console = results()
    console.print(f"{report.count:,} {unit} of {' '.join(report.on)}", markup=False)
    if any(entry.p_value is not None for entry in report.entries):
        console.print(f"p: of the difference to {report.entries[0].name} (McNemar's test)", style="dim")
    for entry in report.entries:
        if entry.looked is not None:
            console.print()
            console.print(entry.looked)
