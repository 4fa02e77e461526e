"""A trained model of any task, ready to use."""

from __future__ import annotations

from pathlib import Path

from regard.bundle import load_bundle
from regard.errors import UsageError
from regard.predictor import Predictor
from regard.runs import bundle_folder
from regard.tasks.table import TASKS


def load_model(path: str | Path, device: str = "cpu", task: str | None = None) -> Predictor:
    """Load the predictor of a bundle's folder or a run's; with `task`, only one that does it."""
    bundle = load_bundle(bundle_folder(path), device)
    record = TASKS[bundle.config.task]
    if task is not None and task not in (record.name, record.verb):
        raise UsageError(f"{path} is a model to {record.verb}, not to {task}; try: regard {record.verb}")
    return record.make_predictor(bundle)
