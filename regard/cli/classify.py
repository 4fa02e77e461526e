"""`regard classify`: texts, pictures, sounds or graphs in, labels out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.inputs import (
    Answered,
    AsText,
    InputReader,
    Item,
    OutFile,
    answers,
    arguments,
    output_to,
    pictures,
    sounds,
    texts_or_lines,
)
from regard.cli.model import check_model, load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import json_line, printable, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.tasks.classify.predictor import Classified, TextClassifier
    from regard.tasks.classify_graphs.predictor import ClassifiedNode, GraphLabeller
    from regard.tasks.classify_pictures.predictor import ClassifiedPicture
    from regard.tasks.classify_sounds.predictor import ClassifiedSound

    AnyAnswer = (
        Answered[Classified] | Answered[ClassifiedPicture] | Answered[ClassifiedSound] | Answered[ClassifiedNode]
    )


def classify(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts, a file of lines, pictures, sounds, or a graph's files; without, the lines of standard input.",
        ),
    ] = None,
    model: Model = None,
    second: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, where labels are of pairs.")
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="NODE", help="Of a graph: only this node (may be repeated).", show_default="all"
        ),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put the probability behind each label.")] = False,
    out: OutFile = None,
    as_text: AsText = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with every label, one line for each text.")
    ] = False,
) -> None:
    """The label of each text, picture, sound or node of a graph, one a line; of several that are no texts, behind their names.

    Line n of the output is the label of line n of the input. Where the model was trained on pairs, a line has both texts
    with a tab between them. What cannot be read is named on stderr and leaves its line empty; the exit code is 1.
    """
    if second is not None and len(texts or []) != 1:
        raise UsageError("--second belongs to one TEXT; pairs in a file have a tab between them")
    run = model or newest_run("classify")
    way = WAYS.get(check_model(run, device, "classify").task, WAYS["classify"])
    if way.what != "text" and second is not None:
        raise UsageError(f"--second is for classifiers of pairs of texts; this model classifies {way.what}s")
    if way.what != "node" and nodes:
        raise UsageError(f"--node is for classifiers of graphs; this model classifies {way.what}s")
    asked = way.read(texts, as_text or second is not None)
    classifier = load_model(run, device, "classify")
    asked, ask = way.ask(classifier, asked, second, nodes)
    names = way.what != "text" and not asked.alone
    with output_to(out), answers(asked, ask, way.together, "classifying") as answered:
        for each in answered:
            print(_as_json(each, way.key) if as_json else _as_line(each, names, scores))


Asker = Callable[[list[Item]], Sequence[Any]]  # items -> what the model makes of each


@dataclass(frozen=True)
class Way:
    """How one kind of input is read and asked: what it is called, and how many are asked together."""

    what: str
    key: str  # under which a result names it
    read: Callable[[list[str] | None, bool], InputReader]  # (arguments, whether each is a text) -> items
    ask: Callable[[Any, InputReader, str | None, list[str] | None], tuple[InputReader, Asker]]
    together: int


def _ask_texts(
    classifier: TextClassifier, asked: InputReader, second: str | None, nodes: list[str] | None
) -> tuple[InputReader, Asker]:
    return asked, _texts(classifier, second)


def _ask_files(
    classifier: Any, asked: InputReader, second: str | None, nodes: list[str] | None
) -> tuple[InputReader, Asker]:
    return asked, lambda items: classifier.classify([item.value for item in items])


def _ask_graphs(
    classifier: GraphLabeller, asked: InputReader, second: str | None, nodes: list[str] | None
) -> tuple[InputReader, Asker]:
    """The files are one graph, or many: its nodes, or these, are the items, and all are classified at once."""
    files = [item.value for chunk in asked.chunks(8) for item in chunk]
    found = classifier.classify(files, nodes)
    names = [each.name for each in found]
    return arguments(names, names), lambda items: [found[item.place] for item in items]


def _graph_files(files: list[str] | None, as_text: bool) -> InputReader:
    if not files:
        raise UsageError("this model reads graphs; name a file: regard classify graph.npz, or edges.csv nodes.csv")
    return arguments(files, files)


WAYS = {
    "classify": Way("text", "text", lambda texts, as_text: texts_or_lines(texts, as_text=as_text), _ask_texts, 512),
    "classify-pictures": Way("picture", "picture", lambda files, as_text: pictures(files, "classify"), _ask_files, 64),
    "classify-sounds": Way("sound", "audio", lambda files, as_text: sounds(files, "classify"), _ask_files, 64),
    "classify-graphs": Way("node", "node", _graph_files, _ask_graphs, 4096),
}


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


def _as_line(each: AnyAnswer, names: bool, scores: bool) -> str:
    label = [""] if each.found is None else [each.found.label]
    share = [] if not scores else [""] if each.found is None else [f"{each.found.probability:.4f}"]
    return "\t".join([*([printable(each.item.where)] if names else []), *label, *share])


def _as_json(each: AnyAnswer, key: str) -> str:
    bad = {key: each.item.value, "error": str(each.error)}
    return json_line(bad if each.found is None else each.found.data())
