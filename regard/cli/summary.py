"""`regard summary`: what a model is made of, layer by layer, with every shape."""

from __future__ import annotations

from regard.cli.model import load_model
from regard.cli.options import AsJson, Device, RunFolder
from regard.cli.output import print_json, results


def summary(run: RunFolder, device: Device = "auto", as_json: AsJson = False) -> None:
    """Every layer of a model in the order in which they run: shape, parameters, multiply-adds."""
    user = load_model(run, device)
    from regard.models.summary import summary as summary_of
    from regard.verify.tasks import SUBJECTS

    subject = SUBJECTS[user.config.task].of(user.bundle)
    found = summary_of(user.model, subject.batch(user.model, [0]))
    if as_json:
        print_json(found.data())
    else:
        results().print(found)
