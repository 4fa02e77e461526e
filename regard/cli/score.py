"""`regard score`: what a model thinks of given translations."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from regard.cli.inputs import Answered, Item, OutFile, answers, arguments, output_to
from regard.cli.model import check_files, load_translator
from regard.cli.options import AsJson, Device, RunFolder, SourceColumn, TargetColumn, column_settings
from regard.cli.output import print_json, say
from regard.cli.shards import batch_of, rows_in_shards
from regard.errors import RegardError
from regard.files import JSON

if TYPE_CHECKING:
    from regard.tasks.translate.results import PairScore

CHUNK = 512  # pairs scored together
COLUMNS = ("log_probability", "tokens", "perplexity")


def score(
    run: RunFolder,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS...",
            help="One .tsv, .csv or .jsonl file, two parallel files, or built-in, as builtin/dates/test.",
            show_default=False,
        ),
    ],
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Name the columns.", show_default="on a terminal, and not in a pipe"),
    ] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    out: OutFile = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Log-probabilities of given pairs.

    One line for each pair: log_probability, tokens and perplexity; in a pipe or a file with tabs between them and, unless
    --header asks for it, no line above. A pair that cannot be scored is named on stderr and leaves its line empty.
    """
    check_files(pairs, task="translate")
    translator = load_translator(run, device)
    from regard.tasks.translate.evaluate import read_test_set

    notes, bad = list[str](), dict[int, RegardError]()
    pairs_ = read_test_set(pairs, run, column_settings("translate", source=source, target=target), notes, bad)
    for note in notes:
        say(note)
    asked = arguments(pairs_, [f"pair {number}" for number in range(1, len(pairs_) + 1)], bad)
    terminal = sys.stdout.isatty() and out is None
    shown = _Shown(run, terminal, terminal if header is None else header, as_json)

    def ask(items: list[Item]) -> Sequence[PairScore]:
        return translator.score([item.value for item in items])

    batch = batch_of(out, asked, CHUNK, verb="score", run=run, options={"json": as_json, "header": header})
    if batch is None:
        with output_to(out), answers(asked, ask, CHUNK, "scoring") as answered:
            shown.show((each.item.value, each.found, str(each.error)) for each in answered)
        return
    with batch.opened() as shards, rows_in_shards(batch, shards, ask, _kept, "scoring") as rows:
        if rows is not None:
            with output_to(out):
                shown.show(_again(pair, *row) for pair, row in zip(pairs_, rows, strict=True))


Scored: TypeAlias = (
    "tuple[tuple[str, str], PairScore | None, str]"  # a pair, what the model thinks of it, or what is wrong
)


def _kept(each: Answered[PairScore]) -> list[JSON]:
    """A score as a shard holds it: JSON's numbers are exact."""
    return [None, str(each.error)] if each.found is None else [[each.found.log_probability, each.found.tokens], ""]


def _again(pair: tuple[str, str], numbers: tuple[float, int] | None, error: str) -> Scored:
    from regard.tasks.translate.results import PairScore

    return pair, None if numbers is None else PairScore(*pair, *numbers), error


@dataclass(frozen=True)
class _Shown:
    """How scores are printed."""

    run: str
    terminal: bool
    header: bool
    as_json: bool

    def show(self, scored: Iterable[Scored]) -> None:
        """Print each score as it comes, and what they are together."""
        every = []
        if self.header and not self.as_json:
            print(_row(COLUMNS, self.terminal))
        for each in scored:
            every.append(each)
            if not self.as_json:
                print("" if each[1] is None else _row(_cells(each[1]), self.terminal))
        good = [found for _, found, _ in every if found is not None]
        total = corpus(good)
        if self.as_json:
            print_json({"run": self.run, **total, "pairs": [_data(*each) for each in every]})
        else:
            say(f"{len(good):,} pairs, {total['token_count']:,} tokens, perplexity {total['perplexity']:.4g}")


def _cells(score: PairScore) -> tuple[str, ...]:
    return f"{score.log_probability:.4f}", str(score.tokens), f"{score.perplexity:.4g}"


def _row(cells: Sequence[str], terminal: bool) -> str:
    """Cells below their names on a terminal; with tabs between them for programs."""
    if not terminal:
        return "\t".join(cells)
    return "  ".join(cell.rjust(len(name)) for cell, name in zip(cells, COLUMNS, strict=True))


def _data(pair: tuple[str, str], found: PairScore | None, error: str) -> Mapping[str, object]:
    return {"source": pair[0], "target": pair[1], "error": error} if found is None else found.data()


def corpus(scores: Sequence[PairScore]) -> dict[str, float]:
    """Scores of all pairs together; tokens count their ends."""
    log_probability, tokens = sum(each.log_probability for each in scores), sum(each.tokens for each in scores)
    return {
        "log_probability": log_probability,
        "token_count": tokens,
        "perplexity": math.exp(min(700.0, -log_probability / tokens)) if tokens else math.nan,
    }
