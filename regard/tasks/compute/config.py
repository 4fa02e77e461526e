"""A model that computes answers from tables. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import field_validator

from regard.config import Tables
from regard.data.config import TablesConfig
from regard.models.config import ModelConfig, ProgrammerConfig
from regard.tasks.config import RunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class ComputeConfig(RunConfig):
    """A model that computes answers from tables."""

    task: Literal["compute"] = "compute"
    data: TablesConfig = TablesConfig()
    tokens: TokensConfig = TokensConfig(kind="space")
    model: ModelConfig = ProgrammerConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {
        "tokens": {"kind": "space", "lowercase": True},
        "train": {
            "steps": 3000,
            "lr": 3e-3,
            "schedule": "linear",
            "warmup": 50,
            "smoothing": 0.0,
            "average": 0,
            "batch_tokens": 1024,
            "select": "accuracy",
            "validate_every": 250,
            "patience": 0,
        },
    }

    @field_validator("tokens")
    @classmethod
    def _whole_words(cls, tokens: TokensConfig) -> TokensConfig:
        if tokens.kind != "space":
            raise ValueError(
                f"kind {tokens.kind}: a question about a table is read word by word; leave out tokens.kind"
            )
        return tokens
