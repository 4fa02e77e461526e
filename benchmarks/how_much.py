"""How many examples and minutes for what? Tables and the figure of docs/how-much.md, from what `benchmarks/in_time.py` found.

    python benchmarks/how_much.py docs/results/how_much.json --image docs/images/how-much.png

Also prints the rows of `EXPECTED` in `regard/tasks/expected.py`, by which `regard train --dry-run` says what to expect.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from regard.files import write_bytes
from regard.look.figures.sheet import DPI, render, style, tidy
from regard.tasks.configure import DEFAULT_TIME
from regard.training.config import seconds

Table = dict[int, dict[float, float]]  # examples -> minutes -> value


@dataclass(frozen=True)
class Subject:
    """One task on one set of data: which cases are of it, and what is measured."""

    title: str
    case: str  # a pattern of names, with the examples and the time
    task: str
    data: str
    unit: str
    metric: str
    measure: str  # as a person calls it


SUBJECTS = (
    Subject("translate", r"multi30k-(\d+)-(\w+)", "translate", "Multi30k", "pairs", "bleu", "BLEU"),
    Subject(
        "generate", r"shakespeare-(\d+)-(\w+)", "generate", "tiny Shakespeare", "characters", "nats", "nats a character"
    ),
    Subject("classify", r"sst2-(\d+)-(\w+)", "classify", "SST-2", "texts", "accuracy", "% right"),
)
MADE = {f"multi30k-{pairs}-{time}/1/processor": {"value": 9.0} for pairs in (1000, 5000) for time in ("1m", "3m")}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=Path("docs/results/how_much.json"))
    parser.add_argument("--image", type=Path, default=Path("docs/images/how-much.png"))
    parser.add_argument("--tiny", action="store_true", help="of made results, and the figure is thrown away")
    options = parser.parse_args(words)
    found = MADE if options.tiny else json.loads(options.results.read_text(encoding="utf-8"))
    tables = {subject: table for subject in SUBJECTS if (table := table_of(found, subject))}
    for subject, table in tables.items():
        print(written(subject, table))
        print("\n".join(rows_of(subject, table)) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        write_bytes(Path(folder) / "how-much.png" if options.tiny else options.image, render(draw(tables), "png"))


def table_of(found: dict[str, dict[str, float]], subject: Subject) -> Table:
    """The means over seeds, of runs on one core."""
    values: dict[tuple[int, float], list[float]] = defaultdict(list)
    for key, row in found.items():
        name, _, by = key.split("/")
        if by == "processor" and (match := re.fullmatch(subject.case, name)):
            asked = DEFAULT_TIME if match[2] == "default" else seconds(match[2])
            values[int(match[1]), asked / 60].append(row["value"])
    table: Table = defaultdict(dict)
    for (examples, minutes), several in sorted(values.items()):
        table[examples][minutes] = mean(several)
    return dict(table)


def written(subject: Subject, table: Table) -> str:
    times = sorted({minutes for row in table.values() for minutes in row})
    lines = [f"| {subject.unit} | {' | '.join(f'{each:.2g} min' for each in times)} |", "|---" * (len(times) + 1) + "|"]
    digits = 2 if subject.metric == "nats" else 1
    for examples, row in table.items():
        cells = [f"{row[each]:.{digits}f}" if each in row else "–" for each in times]
        lines.append(f"| {examples:,} | {' | '.join(cells)} |")
    return "\n".join([f"{subject.title}, {subject.data}: {subject.measure}", "", *lines, ""])


def rows_of(subject: Subject, table: Table) -> list[str]:
    return [
        f'    Measured("{subject.task}", "{subject.data}", {examples:_}, {minutes:.3g}, "{subject.metric}", {value:.4g}),'
        for examples, row in table.items()
        for minutes, value in row.items()
    ]


def draw(tables: dict[Subject, Table]) -> Figure:
    """A panel for each subject: quality over minutes, a line for each number of examples."""
    figure = Figure(figsize=(3.7 * len(tables) + 0.4, 3.5), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    several = figure.subplots(1, len(tables), squeeze=False)[0]
    for axes, (subject, table) in zip(several, tables.items(), strict=True):
        _panel(axes, subject, table)
    return figure


def _panel(axes: Axes, subject: Subject, table: Table) -> None:
    for number, (examples, row) in enumerate(table.items()):
        label = f"{examples:,} {subject.unit}"
        axes.plot(list(row), list(row.values()), linewidth=1.6, markersize=5, label=label, **style(number))
    tidy(axes)
    axes.margins(y=0.3)  # room for names
    times = sorted({minutes for row in table.values() for minutes in row})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(times))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{each:.2g}" for each in times])
    axes.set_xlabel("minutes of one core")
    axes.set_title(f"{subject.title}: {subject.measure} on {subject.data}", fontsize=9.5, loc="left")
    axes.legend(fontsize=8, frameon=False)


if __name__ == "__main__":
    main()
