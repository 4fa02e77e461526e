"""`regard vectors`: texts in, one vector for each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from regard.cli.inputs import AsText, Item, OutFile, answers, output_to, texts_or_lines
from regard.cli.model import load_model, newest_run
from regard.cli.options import Device, Model
from regard.cli.output import json_line, print_table, say
from regard.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from regard.tasks.fill.predictor import Filler, TextVector

CHUNK = 256  # texts read together
ALIKE = 0.999  # of the cosine: what is nearer is the same to two digits


def vectors(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts, or a file of lines; without, standard input.")
    ] = None,
    model: Model = None,
    pooling: Annotated[
        str | None, typer.Option(metavar="NAME", help="mean of all tokens, or cls.", show_default="the model's")
    ] = None,
    similar: Annotated[bool, typer.Option("--similar", help="Print how alike the texts are instead.")] = False,
    out: OutFile = None,
    as_text: AsText = False,
    device: Device = "auto",
) -> None:
    """One vector of length 1 for each text, as JSON, a line each; the product of two says how alike the texts are."""
    if pooling not in (None, "mean", "cls"):
        raise UsageError(f"--pooling {pooling}: choose mean or cls")
    how = cast("Literal['cls', 'mean'] | None", pooling)
    asked = texts_or_lines(texts, as_text=as_text)
    filler: Filler = load_model(model or newest_run("fill"), device, "fill")
    near, compared = Nearness(), []

    def ask(items: list[Item]) -> Sequence[TextVector]:
        return filler.text_vectors([item.value for item in items], how)

    with output_to(out), answers(asked, ask, CHUNK, "reading") as answered:
        for each in answered:
            if each.found is not None:
                near.add(each.item.value, each.found.vector)
            if similar:
                compared += [] if each.found is None else [(each.item.value, each.found.vector)]
                continue
            bad = {"text": each.item.value, "error": str(each.error)}
            print(json_line(bad if each.found is None else each.found.data()))
        if similar:
            _print_alike(compared)
        near.say()


def _print_alike(compared: list[tuple[str, np.ndarray]]) -> None:
    """How alike any two texts are, as a table."""
    numbers = [str(place) for place in range(1, len(compared) + 1)]
    rows = [
        (number, *(f"{vector @ other:.2f}" for _, other in compared), text)
        for number, (text, vector) in zip(numbers, compared, strict=True)
    ]
    print_table(("", *numbers, "text"), rows, right=numbers)


class Nearness:
    """How near the vectors of other texts are to that of the first: where all are the same, they tell nothing."""

    def __init__(self) -> None:
        self.first: tuple[str, np.ndarray] | None = None
        self.others, self.least = 0, 1.0

    def add(self, text: str, vector: np.ndarray) -> None:
        if self.first is None:
            self.first = (text, vector)
        elif text != self.first[0]:
            self.others += 1
            self.least = min(self.least, float(self.first[1] @ vector))

    def say(self) -> None:
        if self.others and self.least > ALIKE:
            say(
                f"all {self.others + 1:,} texts have nearly the same vector (the least cosine with the first is "
                f"{self.least:.4f}), so that they tell little; train longer, or try another --pooling"
            )
