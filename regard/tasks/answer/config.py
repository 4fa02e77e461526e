"""A model that answers questions about pictures. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from regard.config import Tables
from regard.data.pictures.config import QuestionsConfig
from regard.models.config import (
    AnswererConfig,
    ModelConfig,
)
from regard.tasks.config import SEEING, RunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class AnswerConfig(RunConfig):
    """A model that answers questions about pictures."""

    task: Literal["answer"] = "answer"
    data: QuestionsConfig = QuestionsConfig()
    tokens: TokensConfig = TokensConfig(kind="word")
    model: ModelConfig = AnswererConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {
        "tokens": {"kind": "word", "lowercase": True},
        "train": {**SEEING, "steps": 3000, "batch_pictures": 32, "select": "accuracy"},
    }
