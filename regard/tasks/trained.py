"""A trained model of any task, ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.bundle import load_bundle
from regard.errors import UsageError
from regard.runs import bundle_folder
from regard.tasks.classify import TextClassifier
from regard.tasks.fill import Filler
from regard.tasks.generate import Generator
from regard.tasks.translate import Translator

USERS: dict[str, Any] = {
    "translate": Translator,
    "generate": Generator,
    "fill": Filler,
    "classify": TextClassifier,
}


def load_model(path: str | Path, device: str = "cpu", task: str | None = None) -> Any:
    """The model of a bundle's folder or a run's; with `task`, only one that does it."""
    bundle = load_bundle(bundle_folder(path), device)
    if task is not None and bundle.config.task != task:
        raise UsageError(f"{path} is a model to {bundle.config.task}, not to {task}; try: regard {bundle.config.task}")
    return USERS[bundle.config.task](bundle)
