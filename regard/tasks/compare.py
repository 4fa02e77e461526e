"""Several models on one test set, side by side: quality and whether it differs by more than luck, size, speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.data.pairs import Pair
from regard.evaluate.significance import Comparison, paired_bootstrap
from regard.evaluate.translation import Score
from regard.runs import bundle_folder
from regard.tasks.evaluate import Evaluation, evaluate
from regard.tasks.translate import Translator


@dataclass(frozen=True)
class Row:
    """One model of a comparison."""

    run: str
    bleu: Score
    chrf: Score
    against_first: Comparison | None  # BLEU against the first model; None for the first itself
    parameters: int
    size: int  # bytes of the bundle
    sentences_per_second: float

    def data(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    runs: Sequence[str],
    pairs: Sequence[Pair],
    *,
    lowercase: bool = False,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[Row]:
    """A row for each run, in the order given; differences are to the first."""
    references = [target for _, target in pairs]
    rows: list[Row] = []
    first: Evaluation | None = None
    for number, run in enumerate(runs):
        translator = Translator.load(run, device)
        advance = _part(progress, number * len(pairs), len(runs) * len(pairs))
        found = evaluate(translator, pairs, lowercase=lowercase, metrics=("bleu", "chrf"), progress=advance, **options)
        against = None
        if first is None:
            first = found
        else:
            against = paired_bootstrap(first.outputs, found.outputs, references, lowercase=lowercase)
        rows.append(
            Row(
                run,
                found.scores["bleu"],
                found.scores["chrf"],
                against,
                sum(parameter.numel() for parameter in translator.model.parameters()),
                folder_size(bundle_folder(run)),
                found.sentences_per_second,
            )
        )
    return rows


def folder_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _part(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int, int], None] | None:
    """Progress of one model as part of all of them."""
    return progress and (lambda done, _: progress(before + done, total))
