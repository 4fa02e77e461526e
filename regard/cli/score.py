"""`regard score`: what a model thinks of given translations."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import Answered, Item, answers, arguments
from regard.cli.model import check_files, load_translator
from regard.cli.options import AsJson, Device, RunFolder, SourceColumn, TargetColumn, column_settings
from regard.cli.output import print_json, say
from regard.errors import RegardError

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
    terminal, found = sys.stdout.isatty(), []

    def ask(items: list[Item]) -> Sequence[PairScore]:
        return translator.score([item.value for item in items])

    with answers(asked, ask, CHUNK, "scoring") as answered:
        if (terminal if header is None else header) and not as_json:
            print(_row(COLUMNS, terminal))
        for each in answered:
            found.append(each)
            if not as_json:
                print("" if each.found is None else _row(_cells(each.found), terminal))
        good = [each.found for each in found if each.found is not None]
        total = corpus(good)
        if as_json:
            print_json({"run": run, **total, "pairs": [_data(each) for each in found]})
        else:
            say(f"{len(good):,} pairs, {total['token_count']:,} tokens, perplexity {total['perplexity']:.4g}")


def _cells(score: PairScore) -> tuple[str, ...]:
    return f"{score.log_probability:.4f}", str(score.tokens), f"{score.perplexity:.4g}"


def _row(cells: Sequence[str], terminal: bool) -> str:
    """Cells below their names on a terminal; with tabs between them for programs."""
    if not terminal:
        return "\t".join(cells)
    return "  ".join(cell.rjust(len(name)) for cell, name in zip(cells, COLUMNS, strict=True))


def _data(each: Answered[PairScore]) -> Mapping[str, object]:
    if each.found is None:
        source, target = each.item.value
        return {"source": source, "target": target, "error": str(each.error)}
    return each.found.data()


def corpus(scores: Sequence[PairScore]) -> dict[str, float]:
    """Scores of all pairs together; tokens count their ends."""
    log_probability, tokens = sum(each.log_probability for each in scores), sum(each.tokens for each in scores)
    return {
        "log_probability": log_probability,
        "token_count": tokens,
        "perplexity": math.exp(min(700.0, -log_probability / tokens)) if tokens else math.nan,
    }
