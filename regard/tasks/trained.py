"""A trained model of any task, ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.bundle import load_bundle
from regard.errors import UsageError
from regard.runs import bundle_folder
from regard.tasks.answer import AnswerUser
from regard.tasks.caption import Captioner
from regard.tasks.classify import TextClassifier
from regard.tasks.classify_pictures import PictureUser
from regard.tasks.fill import Filler
from regard.tasks.generate import Generator
from regard.tasks.translate import Translator

USERS: dict[str, Any] = {
    "translate": Translator,
    "generate": Generator,
    "fill": Filler,
    "classify": TextClassifier,
    "classify-pictures": PictureUser,
    "caption": Captioner,
    "answer": AnswerUser,
}


def verb_of(task: str) -> str:
    """What a person types: to classify is one word for texts and pictures."""
    return task.partition("-")[0]


def load_model(path: str | Path, device: str = "cpu", task: str | None = None) -> Any:
    """The model of a bundle's folder or a run's; with `task`, only one that does it."""
    bundle = load_bundle(bundle_folder(path), device)
    own = verb_of(bundle.config.task)
    if task is not None and own != task:
        raise UsageError(f"{path} is a model to {own}, not to {task}; try: regard {own}")
    return USERS[bundle.config.task](bundle)
