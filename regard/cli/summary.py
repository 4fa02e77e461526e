"""`regard summary`: what a model is made of, layer by layer, with every shape."""

from __future__ import annotations

from regard.cli.model import load_model
from regard.cli.options import AsJson, Device, RunFolder
from regard.cli.output import print_json, print_table
from regard.tasks.table import TASKS


def summary(run: RunFolder, device: Device = "auto", as_json: AsJson = False) -> None:
    """Every layer of a model in the order in which they run: shape, parameters, multiply-adds."""
    predictor = load_model(run, device)
    from regard.models import summary as layers

    subject = TASKS[predictor.config.task].make_subject.of(predictor.bundle)
    found = layers.summary(predictor.model, subject.batch(predictor.model, [0]))
    if as_json:
        print_json(found.data())
    else:
        print(found.name)
        print_table(layers.COLUMNS, found.rows(), right=layers.COUNTS, stack=True)
