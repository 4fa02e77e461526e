"""Tasks: what a person wants done. `load`, `train` and `tune` are the Python side of the command line.

Each is imported when it is first used: who loads a model needs nothing that trains one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.tasks.calls import train, tune
    from regard.tasks.config import RunConfig
    from regard.tasks.configure import run_config
    from regard.tasks.trained import load

__all__ = ["RunConfig", "load", "run_config", "train", "tune"]

_HOME = {
    "RunConfig": "regard.tasks.config",
    "load": "regard.tasks.trained",
    "run_config": "regard.tasks.configure",
    "train": "regard.tasks.calls",
    "tune": "regard.tasks.calls",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"regard.tasks has no {name}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)
