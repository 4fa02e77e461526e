"""Which model and which device the person means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.output import say
from regard.errors import UsageError, nearest

if TYPE_CHECKING:
    from regard.tasks.translate import Translator

DEVICES = ("auto", "cpu", "cuda", "mps")
DATA = {
    "translate": "pairs.tsv (or: regard demo)",
    "generate": "book.txt",
    "fill": "book.txt",
    "classify": "texts.tsv",
    "caption": "captions.jsonl",
    "answer": "questions.jsonl",
}


def choose_device(name: str) -> str:
    """A device that torch has here: `auto` is cuda, then mps, then cpu."""
    kind = name.split(":")[0]  # "cuda:1"
    if kind not in DEVICES:
        raise UsageError(f"no device {name}{nearest(name, DEVICES)}")
    import torch

    has: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if kind == "auto":
        return next(each for each, there in has.items() if there())
    if not has[kind]():
        raise UsageError(f"torch finds no {kind} on this machine; use --device auto (regard doctor says what there is)")
    return name


def load_model(run: str | Path, device: str, task: str | None = None) -> Any:
    """The model of a run's or a bundle's folder, ready to do its task."""
    from regard.runs import bundle_folder

    folder = bundle_folder(run)  # a wrong name is told before torch is imported
    from regard.tasks.trained import load_model as load

    return load(folder, choose_device(device), task)


def load_translator(run: str | Path, device: str) -> Translator:
    translator: Translator = load_model(run, device, "translate")
    return translator


def newest_of_any(otherwise: str, another: str = "-m takes another") -> Path:
    """The newest run of any task in this folder that has a model; says which. `otherwise`: what to type if none has."""
    from regard.runs import all_runs

    found = [run for run in all_runs() if (run.best / "config.json").exists()]
    if not found:
        raise UsageError(f"there is no trained run here; {otherwise}")
    say(f"model: {found[-1].folder} (the newest run here; {another})")
    return found[-1].folder


def newest_run(task: str) -> Path:
    """The newest run of a task in this folder that has a model; says which."""
    from regard.runs import newest

    run = newest(task)
    if run is None:
        raise UsageError(
            f"there is no {task} run here (in runs/{task}); make one with: regard train {task} --data {DATA[task]}; "
            "or name a model with -m"
        )
    say(f"model: {run.folder} (the newest run here; -m takes another)")
    return run.folder
