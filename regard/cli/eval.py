"""`regard eval`: the scores of a model on a test set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.model import load_translator
from regard.cli.options import AsJson, Beam, Device, Lowercase, RunFolder, Softness, TestPairs, given
from regard.cli.output import one_line, print_json, print_table, progress, results, say

if TYPE_CHECKING:
    from regard.tasks.evaluate import Evaluation


def evaluate(
    run: RunFolder,
    on: TestPairs,
    beam: Beam = None,
    softness: Softness = None,
    lowercase: Lowercase = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the translations, one a line.")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a model on a test set.

    BLEU, chrF and TER with 95% confidence intervals and sacreBLEU's signatures; exact match for built-in dates; speed.
    """
    translator = load_translator(run, device)
    from regard.files import write_text
    from regard.tasks.evaluate import evaluate as score
    from regard.tasks.evaluate import has_one_answer, read_test_set

    pairs, decode = read_test_set(on, run), given(beam=beam, softness=softness)
    with progress("translating") as advance:
        found = score(translator, pairs, lowercase=lowercase, one_answer=has_one_answer(on), progress=advance, **decode)
    if save is not None:
        say(f"wrote {write_text(save, ''.join(one_line(output) + chr(10) for output in found.outputs))}")
    if as_json:
        print_json({"run": run, "on": on, "decode": translator.options(decode).model_dump(), **found.data()})
    else:
        print_scores(run, on, found)


def print_scores(run: str, on: list[str], found: Evaluation) -> None:
    scores = found.scores.values()
    rows = [(each.name, f"{each.value:.1f}", f"{each.low:.1f} to {each.high:.1f}") for each in scores]
    if found.exact is not None:
        right = round(found.exact / 100 * found.sentences)
        rows.append(("exact", f"{found.exact:.1f}", f"{right:,} of {found.sentences:,} right"))
    print_table((f"{run}", "score", "95% interval"), rows, right=("score",))
    console = results()
    console.print(
        f"{found.sentences:,} sentences of {' '.join(on)}, {found.sentences_per_second:,.0f} a second", markup=False
    )
    for score in scores:
        console.print(f"{score.name}: {score.signature}", style="dim", markup=False, soft_wrap=True)
