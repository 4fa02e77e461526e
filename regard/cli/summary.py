"""`regard summary`: what a model is made of, layer by layer, with every shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.cli.model import load_model
from regard.cli.options import AsJson, Device, RunFolder
from regard.cli.output import print_json, print_table

if TYPE_CHECKING:
    from regard.models.summary import Summary

COLUMNS = ("layer", "kind", "output", "parameters", "multiply-adds")


def summary(run: RunFolder, device: Device = "auto", as_json: AsJson = False) -> None:
    """Every layer of a model in the order in which they run: shape, parameters, multiply-adds."""
    user = load_model(run, device)
    from regard.models.summary import summary as summary_of
    from regard.tasks.table import TASKS

    subject = TASKS[user.config.task].make_subject.of(user.bundle)
    found = summary_of(user.model, subject.batch(user.model, [0]))
    if as_json:
        print_json(found.data())
    else:
        print_layers(found)


def print_layers(found: Summary) -> None:
    """A row for each layer, and what they are in all."""
    rows = [
        (layer.name, layer.does, layer.gives, number(layer.parameters), number(layer.multiply_adds))
        for layer in found.layers
    ]
    rows.append(("in all", "", "", number(found.parameters), number(found.multiply_adds)))
    print(found.name)
    print_table(COLUMNS, rows, right=COLUMNS[3:], stack=True)


def number(count: int) -> str:
    return f"{count:,}" if count else ""
