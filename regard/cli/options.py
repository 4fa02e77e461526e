"""Options and arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import regard
from regard.cli.output import say
from regard.config import Tables
from regard.errors import UsageError
from regard.tasks.table import TASKS, family_of

if TYPE_CHECKING:
    from regard.predictor import Predictor


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
        help="Test data: one .tsv, .csv or .jsonl file, two parallel files, or built-in, as builtin/dates/test.",
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Column (or key) of the text: its name, or its number from 1."),
]
LabelColumn = Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column of the label.")]
PairColumn = Annotated[
    str | None, typer.Option("--pair", metavar="COLUMN", help="Column of the second text, if labels are of pairs.")
]
SourceColumn = Annotated[
    str | None, typer.Option("--source", metavar="COLUMN", help="Column (or key) of the source, by name or number.")
]
TargetColumn = Annotated[str | None, typer.Option("--target", metavar="COLUMN", help="Column of the target.")]
Lowercase = Annotated[
    bool, typer.Option("--lowercase", help="Score without regard to case (BLEU and chrF; TER never has it).")
]
Tokenize = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How BLEU cuts words: 13a, zh, ja-mecab, ko-mecab, char, intl or none.",
        show_default="by the target language",
    ),
]
Beam = Annotated[
    int | None, typer.Option(metavar="N", help="Width of the beam; 1 is greedy.", show_default="the model's")
]
Stopping = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="End a beam when nothing can win any more (exact), or early.",
        show_default="the model's",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", help="regard, or ctranslate2 for the same texts by that library (regard[fast])."
    ),
]
WeightsName = Annotated[
    str,
    typer.Option("--weights", metavar="NAME", help="float32, or int8: faster for large models, a little less exact."),
]
Softness = Annotated[
    float | None,
    typer.Option(metavar="X", help="Temperature of each look at the source; 0: only the best position is seen."),
]
Removals = Annotated[
    list[str] | None,
    typer.Option(
        "--remove",
        metavar="ROLE:LAYER:HEAD",
        help="Take a head away, such as cross:1:3; without HEAD all of a layer (may be repeated).",
    ),
]


def given(**options: object) -> Tables:
    """Return the options that the person gave: those left out are None."""
    return {name: value for name, value in options.items() if value is not None}


def column_settings(task: str, **asked: str | None) -> dict[str, str | tuple[str, str]]:
    """The columns that a person names, as keys of the data's configuration."""
    named, allowed = given(**asked), TASKS[task].data_options if task in TASKS else ()
    wrong = [name for name in named if name not in allowed]
    if wrong:
        may = f"say {', '.join('--' + name for name in allowed)}" if allowed else "leave it out"
        raise UsageError(f"--{wrong[0]} has no meaning for data to {task}; {may}")
    if not named:
        return {}
    family = family_of(task)
    if family == "translate":
        return {"fields": (named.get("source", "source"), named.get("target", "target"))}
    return {
        {"pair": "second", "text": "field" if family != "classify" else "text"}.get(k, k): v for k, v in named.items()
    }


@contextmanager
def removing(predictor: Predictor, words: Sequence[str]) -> Iterator[None]:
    """Inside this block, the heads that `--remove` names are taken away; one that is not there is told before."""
    if not words:
        yield
        return
    from regard.look.layers import check_choice, in_words

    changes, empty = [_removal(word) for word in words], predictor.read_ids(())
    roles: dict[str, list[int]] = {}
    for call in empty.look().calls:
        roles.setdefault(call.role, []).append(call.heads)
    for word, change in zip(words, changes, strict=True):
        others = {role: heads for role, heads in roles.items() if role != change.role}
        if change.role not in roles:
            there = f"there are {in_words(others)}, counted from 0" if others else "it has no attention"
            raise UsageError(f"--remove {word}: this model has no {change.role} attention; {there}")
        try:
            check_choice(change.layer, change.head, roles[change.role], f"{change.role} attention", others)
        except UsageError as error:
            raise UsageError(f"--remove {word}: {error}") from error
    say(f"removed: {', '.join(words)}")
    with regard.intervene(predictor.model, *changes):
        empty.look()  # so that each has met its attention, whatever is asked of the model
        yield


def _removal(word: str) -> regard.Remove:
    """Read role:layer:head; the last, or the last two, may be left out."""
    role, *numbers = word.split(":")
    if role not in ("self", "causal", "cross") or len(numbers) > 2 or not all(each.isdecimal() for each in numbers):
        raise UsageError(
            f"--remove {word}: type a role (self, causal or cross), a layer and a head, from 0, such as cross:1:3"
        )
    layer, head = [*map(int, numbers), None, None][:2]
    return regard.Remove(role, layer, head=head)  # type: ignore[arg-type]
