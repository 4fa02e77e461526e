"""`regard classify`: texts or pictures in, labels out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.inputs import Answered, AsText, Item, OutFile, answers, output_to, pictures, texts_or_lines
from regard.cli.model import check_model, load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import json_line, printable, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.tasks.classify.predictor import Classified, TextClassifier
    from regard.tasks.classify_pictures.predictor import ClassifiedPicture

CHUNK = 512  # texts classified together
PICTURES = 64


def classify(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts, a file of lines, or picture files; without, the lines of standard input."
        ),
    ] = None,
    model: Model = None,
    second: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, where labels are of pairs.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put the probability behind each label.")] = False,
    out: OutFile = None,
    as_text: AsText = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with every label, one line for each text.")
    ] = False,
) -> None:
    """The label of each text or picture, one a line; of several pictures, their names before their labels.

    Line n of the output is the label of line n of the input. Where the model was trained on pairs, a line has both texts
    with a tab between them. What cannot be read is named on stderr and leaves its line empty; the exit code is 1.
    """
    if second is not None and len(texts or []) != 1:
        raise UsageError("--second belongs to one TEXT; pairs in a file have a tab between them")
    run = model or newest_run("classify")
    of_pictures = check_model(run, device, "classify").task == "classify-pictures"
    if of_pictures and second is not None:
        raise UsageError("--second is for classifiers of pairs of texts; this model classifies pictures")
    asked = pictures(texts, "classify") if of_pictures else texts_or_lines(texts, as_text=as_text or second is not None)
    classifier = load_model(run, device, "classify")
    ask = (
        (lambda items: classifier.classify([item.value for item in items]))
        if of_pictures
        else _texts(classifier, second)
    )
    names = of_pictures and not asked.alone
    with output_to(out), answers(asked, ask, PICTURES if of_pictures else CHUNK, "classifying") as answered:
        for each in answered:
            print(_as_json(each, of_pictures) if as_json else _as_line(each, names, scores))


def _texts(classifier: TextClassifier, second: str | None) -> Callable[[list[Item]], Sequence[Classified]]:
    """How texts are asked. Whether a tab is between two texts or part of one is for the bundle to say."""
    pairs, told = classifier.config.pairs, False
    if second is not None:
        classifier.check_pair(True)
        return lambda items: [classifier.classify(items[0].value, second)]

    def ask(items: list[Item]) -> Sequence[Classified]:
        nonlocal told
        if pairs is False:
            return classifier.classify([item.value for item in items])
        halves = [item.value.partition("\t") for item in items]
        if pairs and not all(tab for _, tab, _ in halves):
            raise RegardError("no tab, and this model was trained on pairs: type both texts with a tab between them")
        if pairs is None and not told and any(tab for _, tab, _ in halves):
            say("this bundle does not say whether its texts are pairs; a text with a tab in it is taken for one")
            told = True
        return classifier.classify([one for one, _, _ in halves], [other if tab else None for _, tab, other in halves])

    return ask


def _as_line(each: Answered[Classified] | Answered[ClassifiedPicture], names: bool, scores: bool) -> str:
    label = [""] if each.found is None else [each.found.label]
    share = [] if not scores else [""] if each.found is None else [f"{each.found.probability:.4f}"]
    return "\t".join([*([printable(each.item.where)] if names else []), *label, *share])


def _as_json(each: Answered[Classified] | Answered[ClassifiedPicture], of_pictures: bool) -> str:
    bad = {"picture" if of_pictures else "text": each.item.value, "error": str(each.error)}
    return json_line(bad if each.found is None else each.found.data())
