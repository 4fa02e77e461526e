"""A trained model of any task, ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from regard.bundle import load_bundle
from regard.errors import UsageError
from regard.runs import bundle_folder
from regard.tasks.answer.predictor import QuestionAnswerer
from regard.tasks.answer.recipe import prepare_answer
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.recipe import prepare_caption
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.classify.recipe import prepare_classify
from regard.tasks.classify_pictures.predictor import PictureLabeller
from regard.tasks.classify_pictures.recipe import prepare_classify_pictures
from regard.tasks.config import RunConfig
from regard.tasks.fill.predictor import Filler
from regard.tasks.fill.recipe import prepare_fill
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.recipe import prepare_generate
from regard.tasks.recipe import Prepared
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.recipe import prepare_translate
from regard.training.events import Tell, Working, silent

PREDICTORS: dict[str, Any] = {
    "translate": Translator,
    "generate": Generator,
    "fill": Filler,
    "classify": TextClassifier,
    "classify-pictures": PictureLabeller,
    "caption": Captioner,
    "answer": QuestionAnswerer,
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
    return PREDICTORS[bundle.config.task](bundle)


class Prepare(Protocol):
    def __call__(
        self, config: RunConfig, folder: Path, /, *, data_root: Path | None, resume: bool, device: str, tell: Tell
    ) -> Prepared: ...


PREPARE: dict[str, Prepare] = {
    "translate": prepare_translate,
    "generate": prepare_generate,
    "fill": prepare_fill,
    "classify": prepare_classify,
    "classify-pictures": prepare_classify_pictures,
    "caption": prepare_caption,
    "answer": prepare_answer,
}


def prepare(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read the data, make or reload the tokenizer, build the model. Nothing is trained yet."""
    tell(Working("reading the data"))
    return PREPARE[config.task](config, folder, data_root=data_root, resume=resume, device=device, tell=tell)
