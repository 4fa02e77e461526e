"""Options and arguments that several verbs share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Device = Annotated[str, typer.Option(metavar="NAME", help="auto (cuda, then mps, then cpu), cpu, cuda or mps.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunFolder = Annotated[
    str, typer.Argument(metavar="RUN", help="The folder of a run, or of a bundle.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("-m", "--model", metavar="RUN", help="A run or a bundle.", show_default="the newest run here"),
]
TestPairs = Annotated[
    list[str],
    typer.Option(
        "--on",
        metavar="FILE...",
        show_default=False,
        help="Test pairs: one .tsv or .jsonl file, two parallel files, or builtin/dates/test.",
    ),
]
Lowercase = Annotated[
    bool, typer.Option("--lowercase", help="Score without regard to case (BLEU and chrF; TER never has it).")
]
Beam = Annotated[
    int | None, typer.Option(metavar="N", help="Width of the beam; 1 is greedy.", show_default="the model's")
]
Softness = Annotated[
    float | None,
    typer.Option(metavar="X", help="Temperature of each look at the source; 0: only the best position is seen."),
]


def given(**options: Any) -> dict[str, Any]:
    """The options that the person gave: those left out are None."""
    return {name: value for name, value in options.items() if value is not None}
