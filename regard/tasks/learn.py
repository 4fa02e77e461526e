"""Train a model of any task: which file prepares it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from regard.tasks.config import RunConfig
from regard.tasks.learn_answer import prepare_answer
from regard.tasks.learn_caption import prepare_caption
from regard.tasks.learn_classify import prepare_classify
from regard.tasks.learn_classify_pictures import prepare_classify_pictures
from regard.tasks.learn_fill import prepare_fill
from regard.tasks.learn_generate import prepare_generate
from regard.tasks.learn_translate import prepare_translate
from regard.tasks.prepared import Prepared
from regard.training.events import Tell, Working, silent


class Prepare(Protocol):
    def __call__(
        self, config: RunConfig, folder: Path, /, *, beside: Path | None, resume: bool, device: str, tell: Tell
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
    config: RunConfig, folder: Path, *, beside: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read the data, make or reload the tokenizer, build the model. Nothing is trained yet."""
    tell(Working("reading the data"))
    return PREPARE[config.task](config, folder, beside=beside, resume=resume, device=device, tell=tell)
