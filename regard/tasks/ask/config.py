"""A model that answers questions about stories. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from regard.config import Tables
from regard.data.config import StoriesConfig
from regard.models.config import MemoryNetworkConfig, ModelConfig
from regard.tasks.config import RunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class AskConfig(RunConfig):
    """A model that answers questions about stories."""

    task: Literal["ask"] = "ask"
    data: StoriesConfig = StoriesConfig()
    tokens: TokensConfig = TokensConfig(kind="word")
    model: ModelConfig = MemoryNetworkConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {
        "tokens": {"kind": "word", "lowercase": True},
        "train": {
            "steps": 6000,
            "lr": 1e-2,
            "schedule": "linear",
            "warmup": 50,
            "smoothing": 0.0,
            "average": 0,
            "batch_tokens": 8192,
            "clip": 5.0,
            "select": "accuracy",
            "patience": 0,
            "precision": "float32",  # bf16 blurs which of two sentences is nearer to the question
        },
    }
