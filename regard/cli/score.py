"""`regard score`: what a model thinks of given translations."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.model import load_translator
from regard.cli.options import AsJson, Device, RunFolder
from regard.cli.output import print_json, say

if TYPE_CHECKING:
    from regard.tasks.translate import PairScore


def score(
    run: RunFolder,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS...",
            help="One .tsv or .jsonl file, two parallel files, or built-in, as builtin/dates/test.",
            show_default=False,
        ),
    ],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Log-probabilities of given pairs.

    One line for each pair: log-probability, tokens and perplexity, with tabs between them.
    """
    translator = load_translator(run, device)
    from regard.tasks.evaluate import read_test_set

    scores = translator.score(read_test_set(pairs, run))
    if as_json:
        print_json(
            {
                "run": run,
                **corpus(scores),
                "pairs": [{**asdict(each), "perplexity": each.perplexity} for each in scores],
            }
        )
        return
    for each in scores:
        print(f"{each.log_probability:.4f}\t{each.tokens}\t{each.perplexity:.4g}")
    total = corpus(scores)
    say(f"{len(scores):,} pairs, {total['tokens']:,} tokens, perplexity {total['perplexity']:.4g}")


def corpus(scores: list[PairScore]) -> dict[str, Any]:
    """Of all pairs together; tokens count their ends."""
    log_probability, tokens = sum(each.log_probability for each in scores), sum(each.tokens for each in scores)
    return {
        "log_probability": log_probability,
        "tokens": tokens,
        "perplexity": math.exp(min(700.0, -log_probability / tokens)),
    }
