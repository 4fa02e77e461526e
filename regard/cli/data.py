"""`regard data`: what stands in data before a model learns from it, and what is kept of it.

`regard data check` says what is wrong there; `regard data cache` lists and clears what was made of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from regard.check.report import CHECKED, Coverage, Example, Finding, PartSize, Report, SetSize, Severity
from regard.cli.arguments import SeveralValues, as_typed
from regard.cli.options import (
    AsJson,
    LabelColumn,
    PairColumn,
    SourceColumn,
    TargetColumn,
    TextColumn,
    column_settings,
)
from regard.cli.output import print_json, print_table, printable, progress, results, say
from regard.cli.runs import span
from regard.errors import UsageError, spelled

if TYPE_CHECKING:
    from regard.data.kept.cache import EntryInfo

MARKS: dict[Severity, tuple[str, str]] = {"error": ("✗", "bold red"), "warning": ("!", "yellow"), "fine": ("·", "dim")}
LABELS_SHOWN = 8  # of many labels
LEAST = 16  # columns of a text, however narrow the terminal is

data = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    help="""See what is wrong with data before training on it, and what is kept of it.""",
)


@data.callback()
def choose() -> None:
    """See what is wrong with data before training on it, and what is kept of it."""


@data.command(cls=SeveralValues)
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            show_default=False,
            help="What a model would learn from: pairs, labelled texts, plain text, pictures (files, folders, builtin/…).",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help=f"{', '.join(CHECKED)}.", show_default="by the form and columns of the file"),
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(metavar="FILE...", help="Validation data, to find leaks.")] = None,
    test: Annotated[list[str] | None, typer.Option(metavar="FILE...", help="Test data, to find leaks.")] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    pair: PairColumn = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    languages: Annotated[str | None, typer.Option(metavar="A,B", help="Language codes, such as en,de.")] = None,
    examples: Annotated[int, typer.Option(metavar="N", min=0, help="Examples shown of each finding.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with data: duplicates, swapped or misaligned pairs, broken text, leaks, rare labels.

    Exits 0 if nothing is an error, 1 if something should be mended before training (as linters do), 2 on wrong use.
    """
    if task in CHECKED:
        column_settings(str(task), text=text, label=label, pair=pair, source=source, target=target)
    from regard.check.data import Asked, check_data  # which brings all readers of data

    asked = Asked(
        task,
        text or "text",
        label or "label",
        pair,
        (source or "source", target or "target"),
        _codes(languages),
        examples,
    )
    with progress("checking") as advance:
        report = check_data(files, asked, valid=valid or (), test=test or (), progress=advance)
    if as_json:
        print_json(report.data())
    else:
        print_report(report, results())
    if report.severity == "error":
        raise typer.Exit(1)


@data.command()
def cache(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]", show_default=False, help="Entries, by the beginning of their names; or kinds."
        ),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove these entries, or all: they can be made again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what was made of data once and is kept for all runs: texts, tokenizers, tokens, decoded pictures."""
    from regard.data.kept import cache as kept  # which brings NumPy

    found = [each for each in kept.entries() if not names or any(each.name.startswith(name) for name in names)]
    found += [each for each in kept.entries() if names and each.kind in names and each not in found]
    if names and not found:
        raise UsageError(f"no entry of the cache begins with {', '.join(names)}; regard data cache lists all")
    removed, busy = kept.clear({each.name for each in found}) if clear else (found, [])
    if as_json:
        print_json([each.data() for each in removed])
    elif removed:
        print_table(ENTRY_COLUMNS, [_entry_cells(each) for each in removed], right=("size",), stack=True)
    for each in busy:
        say(f"{each.name} is being made now by another process, and stays")
    total = sum(each.bytes for each in removed) / 1e6
    say(f"{'removed' if clear else 'in'} {kept.data_cache().parent}: {len(removed)} entries, {total:,.0f} MB")


ENTRY_COLUMNS = ("name", "of", "holds", "size", "used")


def _entry_cells(each: EntryInfo) -> list[str]:
    holds = each.counts if each.whole else "half made: it goes on"
    ago = f"{span(max(0.0, time.time() - each.used))} ago"
    return [each.name[:20], printable(each.made_of), holds, f"{each.bytes / 1e6:,.1f} MB", ago]


def _codes(languages: str | None) -> tuple[str, str] | None:
    if languages is None:
        return None
    first, comma, second = (part.strip() for part in languages.partition(","))
    if not (first and comma and second) or "," in second:
        raise UsageError(f"--languages {languages}: name two codes with a comma between them, as --languages en,de")
    return first, second


# --- In the terminal


def print_report(report: Report, console: Console) -> None:
    """Sizes, then findings, the worst first, then one line that says it all."""
    for note in report.notes:
        _print(console, Text(printable(spelled(note, as_typed)), style="dim"))
    for each in report.sets:
        _print_size(each, report, console)
    if report.labels:
        _print(console, _labels(report))
    for finding in report.findings:
        console.print()
        _print_finding(finding, console)
    console.print()
    mark, style = ("✓", "bold green") if report.severity == "fine" else MARKS[report.severity]
    console.print(Text.assemble((f"{mark} ", style), (report.verdict, "bold")))


def _print_size(size: SetSize, report: Report, console: Console) -> None:
    files = printable(", ".join(size.files))
    _print(console, Text.assemble((size.name, "bold"), f"  {size.examples:,} {report.unit}  ", (files, "dim")))
    for part in size.parts:
        covered = next((each for each in report.coverage if (each.set, each.part) == (size.name, part.name)), None)
        _print(console, Text(_in_words(part, covered)), 2)


def _print(console: Console, text: Text, indent: int = 0, mark: Text | None = None) -> None:
    """A text in lines that fit, each indented; a mark stands before the first."""
    for number, line in enumerate(text.wrap(console, max(LEAST, console.width - indent))):
        line.rstrip()
        start = Text(" " * indent) if mark is None or number else mark
        console.print(Text.assemble(start, line), soft_wrap=True)


def _in_words(part: PartSize, covered: Coverage | None) -> str:
    if not part.words:  # height and width of pictures
        return f"{part.name}: {part.median:,.0f} pixels in the middle, at most {part.longest:,}"
    told = (
        f"{part.name}: {part.words:,} words, {part.types:,} different ({part.once:.0%} of these come once); "
        f"length {part.median:,.0f} in the middle, 95% up to {part.most:,.0f}, at most {part.longest:,}"
    )
    return told if covered is None else f"{told}; training has {covered.words:.1%} of the words"


def _labels(report: Report) -> Text:
    counts, total = list(report.labels.items()), max(1, sum(report.labels.values()))
    shown = [f"{label} {count:,} ({count / total:.0%})" for label, count in counts[:LABELS_SHOWN]]
    more = [f"… {len(counts) - LABELS_SHOWN} more"] if len(counts) > LABELS_SHOWN else []
    return Text.assemble((f"{len(counts)} labels", "bold"), "  ", printable(", ".join(shown + more)))


def _print_finding(finding: Finding, console: Console) -> None:
    mark, style = MARKS[finding.severity]
    of = "" if finding.set == "train" or finding.set in finding.what else f" in {finding.set}"
    share = f" of {finding.total:,} ({_percent(finding.share)})" if finding.total != finding.count else ""
    head = Text.assemble(f"{finding.what}{of}: ", (f"{finding.count:,}", "bold"), (share, "dim"))
    _print(console, head, 2, Text(f"{mark} ", style=style))
    for line in _examples(finding.examples, console.width - 4):
        _print(console, line, 4)
    if finding.severity != "fine":
        _print(console, Text(spelled(finding.advice, as_typed), style="italic"), 4, Text("  → "))


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def _examples(examples: Sequence[Example], width: int) -> Iterator[Text]:
    """A line for each example, its texts side by side in what room there is; a note in a line of its own."""
    places = [_seen(example.place.rpartition("/")[2]) for example in examples]
    wide = min(max(map(cell_len, places), default=0), width // 3)
    texts = [[_seen(text) or "(empty)" for text in example.texts] for example in examples]
    rooms = _rooms([max(map(cell_len, column)) for column in zip(*texts, strict=False)], width - wide - 2)
    for place, example, cells in zip(places, examples, texts, strict=True):
        line = Text(place, style="cyan")
        line.truncate(wide if cells or example.note else width, overflow="ellipsis", pad=bool(cells or example.note))
        for number, (text, room) in enumerate(zip(cells, rooms, strict=False)):
            cell = Text(text, style="dim" if text == "(empty)" else "")
            cell.truncate(room, overflow="ellipsis", pad=number + 1 < len(cells))
            line.append("  " if number == 0 else " │ ", style="dim").append_text(cell)
        if example.note and not cells:
            line.append(f"  {_seen(example.note)}", style="dim")
        yield line
        if example.note and cells:
            yield Text(" " * (wide + 2) + _seen(example.note), style="dim")


def _rooms(wanted: Sequence[int], width: int) -> list[int]:
    """Columns for texts side by side: short ones take what they need, and leave the rest to the others."""
    left = max(LEAST, width - 3 * (len(wanted) - 1))
    rooms = [0] * len(wanted)
    for done, place in enumerate(sorted(range(len(wanted)), key=lambda place: wanted[place])):
        rooms[place] = max(1, min(wanted[place], left // (len(wanted) - done)))
        left -= rooms[place]
    return rooms


def _seen(text: str) -> str:
    """A text in one line, with characters that a terminal would obey made visible; not more than a screen of it."""
    from regard.look.labels import visible_title  # which brings all that can be shown

    return visible_title(printable(text[:500])) if text.strip() else ""
