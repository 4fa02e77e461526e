"""The tokens and the model that a run takes over from the one that it goes on from. No torch here."""

from __future__ import annotations

from pathlib import Path

from regard.config import Tables
from regard.errors import UsageError
from regard.files import read_json
from regard.runs import bundle_folder


def started_from(start: str, task: str, able_from: tuple[str, ...]) -> Tables:
    """The tables `tokens` and `model` of the bundle that a run goes on from; its task is one of `able_from`."""
    folder = bundle_folder(start)
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    if not isinstance(config, dict) or not {"task", "tokens", "model"} <= config.keys():
        raise UsageError(f"start: {start} is neither a run nor a bundle")
    if config["task"] not in able_from:
        able = " or ".join(able_from) or "no other run"
        raise UsageError(f"start: {start} is a {config['task']} model; {task} goes on from {able}")
    return {"start": str(Path(start)), "tokens": config["tokens"], "model": config["model"]}
