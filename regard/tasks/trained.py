"""A trained model of any task, ready to use."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from regard.bundle import load_bundle
from regard.errors import UsageError
from regard.predictor import Predictor
from regard.runs import bundle_folder, used_by
from regard.tasks.table import TASKS

if TYPE_CHECKING:
    from regard.tasks.answer.predictor import QuestionAnswerer
    from regard.tasks.ask.predictor import StoryReader
    from regard.tasks.caption.predictor import Captioner
    from regard.tasks.classify.predictor import TextClassifier
    from regard.tasks.classify_graphs.predictor import GraphLabeller
    from regard.tasks.classify_pictures.predictor import PictureLabeller
    from regard.tasks.classify_sounds.predictor import SoundLabeller
    from regard.tasks.compute.predictor import TableComputer
    from regard.tasks.fill.predictor import Filler
    from regard.tasks.generate.predictor import Generator
    from regard.tasks.remember.predictor import Rememberer
    from regard.tasks.transcribe.predictor import Transcriber
    from regard.tasks.translate.predictor import Translator


def load_model(path: str | Path, device: str = "cpu", task: str | None = None) -> Predictor:
    """Load the predictor of a bundle's folder or a run's; with `task`, only one that does it."""
    bundle = load_bundle(bundle_folder(path), device)
    record = TASKS[bundle.config.task]
    if task is not None and task not in (record.name, record.verb):
        raise UsageError(f"{path} is a model to {record.verb}, not to {task}; try: regard {used_by(record.name)}")
    return record.make_predictor(bundle)


@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["translate"]) -> Translator: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["generate"]) -> Generator: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["fill"]) -> Filler: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["classify"]) -> TextClassifier: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["classify-pictures"]) -> PictureLabeller: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["classify-graphs"]) -> GraphLabeller: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["caption"]) -> Captioner: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["answer"]) -> QuestionAnswerer: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["ask"]) -> StoryReader: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["remember"]) -> Rememberer: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["compute"]) -> TableComputer: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["transcribe"]) -> Transcriber: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: Literal["classify-sounds"]) -> SoundLabeller: ...
@overload
def load(path: str | PathLike[str], device: str = ..., *, task: None = ...) -> Predictor: ...


def load(path: str | PathLike[str], device: str = "cpu", *, task: str | None = None) -> Predictor:
    """Load a trained model from a run's or a bundle's folder, or of the run that `regard.train` gave.

    `regard.load("runs/translate/3", task="translate").translate("...")`: with `task`, an editor knows what the model can
    do, and one of another task is refused.
    """
    if not isinstance(path, (str, PathLike)):
        given = type(path).__name__
        raise UsageError(f"regard.load takes the folder of a run, as in regard.load('runs/translate/1'), not a {given}")
    found = load_model(Path(path), device)
    own = found.config.task
    if task is not None and own != task:
        raise UsageError(f"{path} is a model to {own}, not to {task}; say task={own!r}, or leave it out")
    return found
