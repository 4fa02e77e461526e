"""The scores of a model that sees, for `regard eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.output import one_line, print_json, print_table, progress, results, say

if TYPE_CHECKING:
    from regard.tasks.evaluate_pictures import CaptionEvaluation


def score_pictures(
    user: Any, run: str, on: list[str], options: dict[str, Any], save: Path | None, out: Path | None, as_json: bool
) -> None:
    """Labels, captions or answers of a test set."""
    if user.config.task == "caption":
        _captions(user, run, on, options, save, as_json)
        return
    from regard.cli.eval import print_label_scores, say_notes
    from regard.files import write_text
    from regard.look.confusion_samples import save_confusion_samples
    from regard.tasks.evaluate_pictures import evaluate_answers, evaluate_pictures

    answers = user.config.task == "answer"
    with progress("answering" if answers else "classifying") as advance:
        found = (evaluate_answers if answers else evaluate_pictures)(user, on, progress=advance)
    say_notes(found.notes, found.left_out)
    if save is not None:
        say(f"wrote {write_text(save, ''.join(user.labels[place] + chr(10) for place in found.predicted))}")
    if out is not None:
        title = f"{found.scores.accuracy:.1f}% of {len(found.wanted):,} right"
        say(f"wrote {save_confusion_samples(found.scores.confusion, user.labels, found.samples, out, title)}")
    if as_json:
        print_json({"run": run, "on": on, **found.data()})
    else:
        print_label_scores(run, on, found, "questions" if answers else "pictures")


def _captions(user: Any, run: str, on: list[str], options: dict[str, Any], save: Path | None, as_json: bool) -> None:
    from regard.cli.eval import say_notes
    from regard.files import write_text
    from regard.tasks.evaluate_pictures import evaluate_captions

    found = evaluate_captions(user, on, **options)
    say_notes(found.notes, found.left_out)
    if save is not None:
        say(f"wrote {write_text(save, ''.join(one_line(output) + chr(10) for output in found.outputs))}")
    if as_json:
        print_json({"run": run, "on": on, **options, **found.data()})
    else:
        print_caption_scores(run, on, found)


def print_caption_scores(run: str, on: list[str], found: CaptionEvaluation) -> None:
    scores = found.scores
    rows = [(f"BLEU-{n}", f"{getattr(scores, f'bleu{n}'):.1f}") for n in (1, 2, 3, 4)]
    rows += [("CIDEr-D", f"{100 * scores.cider_d:.1f}"), ("ROUGE-L", f"{scores.rouge_l:.1f}")]
    if found.exact is not None:
        rows.append(("exact", f"{found.exact:.1f}"))
    print_table((run, "score"), rows, right=("score",))
    speed = len(found.outputs) / max(1e-9, found.seconds)
    left = f" ({len(found.left_out):,} left out)" if found.left_out else ""
    results().print(f"{len(found.outputs):,} pictures of {' '.join(on)}{left}, {speed:,.0f} a second", markup=False)
