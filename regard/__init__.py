"""Regard: train, run and look inside attention models on the machine you have.

    model = regard.load("runs/translate/3")
    out = model.translate("A man rides a bike.", attention=True)
    run = regard.train("translate", data="pairs.tsv", preset="tiny")  # or a list of pairs

What stands here is imported when it is first used, so that `import regard` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.attention import Pin, Remove, Temperature, attend, intervene, record
    from regard.attention.scores import add_score
    from regard.compare.landscape import landscape_of
    from regard.errors import RegardError, UsageError
    from regard.inspect.faithfulness import faithfulness
    from regard.inspect.formation import formation_of
    from regard.inspect.heads import heads_of
    from regard.inspect.positions import positions_of
    from regard.inspect.roll import roll_of
    from regard.inspect.routing import routing_of
    from regard.inspect.states import states_of
    from regard.inspect.walk import walk
    from regard.inspect.writing import beam_of, outputs_of
    from regard.models.attention import add_kernel
    from regard.models.table import add_kind
    from regard.tasks.calls import train, tune
    from regard.tasks.generate.paint import pixels_of
    from regard.tasks.recipe import add_task
    from regard.tasks.see import features_of
    from regard.tasks.task import Task
    from regard.tasks.trained import load

__version__ = "0.1.0"
__all__ = [
    "Pin",
    "RegardError",
    "Remove",
    "Task",
    "Temperature",
    "UsageError",
    "add_kernel",
    "add_kind",
    "add_score",
    "add_task",
    "attend",
    "beam_of",
    "faithfulness",
    "features_of",
    "formation_of",
    "heads_of",
    "intervene",
    "landscape_of",
    "load",
    "outputs_of",
    "pixels_of",
    "positions_of",
    "record",
    "roll_of",
    "routing_of",
    "states_of",
    "train",
    "tune",
    "walk",
]

_HOME = {
    "Task": "regard.tasks.task",
    "add_kernel": "regard.models.attention",
    "add_kind": "regard.models.table",
    "add_score": "regard.attention.scores",
    "add_task": "regard.tasks.recipe",
    "load": "regard.tasks.trained",
    "train": "regard.tasks.calls",
    "tune": "regard.tasks.calls",
    "record": "regard.attention",
    "attend": "regard.attention",
    "faithfulness": "regard.inspect.faithfulness",
    "formation_of": "regard.inspect.formation",
    "landscape_of": "regard.compare.landscape",
    "heads_of": "regard.inspect.heads",
    "states_of": "regard.inspect.states",
    "positions_of": "regard.inspect.positions",
    "roll_of": "regard.inspect.roll",
    "routing_of": "regard.inspect.routing",
    "beam_of": "regard.inspect.writing",
    "outputs_of": "regard.inspect.writing",
    "features_of": "regard.tasks.see",
    "pixels_of": "regard.tasks.generate.paint",
    "walk": "regard.inspect.walk",
    "intervene": "regard.attention",
    "Remove": "regard.attention",
    "Pin": "regard.attention",
    "Temperature": "regard.attention",
    "RegardError": "regard.errors",
    "UsageError": "regard.errors",
}
_MODULES = {"look": "regard.look", "events": "regard.training.events"}


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOME:
        raise AttributeError(f"regard has no {name}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)
