"""A model that fills gaps, from any text. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from regard.config import Tables
from regard.data.config import TextConfig
from regard.models.config import (
    BertConfig,
    ModelConfig,
)
from regard.tasks.config import TextRunConfig, TextValidateConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class FillConfig(TextRunConfig):
    """A model that fills gaps, from any text."""

    task: Literal["fill"] = "fill"
    data: TextConfig = TextConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = BertConfig()
    train: TrainConfig = TrainConfig()
    validate_: TextValidateConfig = Field(TextValidateConfig(), alias="validate")
    masked: float = Field(0.15, gt=0, lt=1, description="Share of the tokens that must be guessed.")

    defaults: ClassVar[Tables] = {
        "data": {"context": 128},
        "tokens": {"size": 4096},
        "train": {
            "steps": 3000,
            "optimiser": "muon",
            "lr": 5e-3,
            "schedule": "linear",
            "warmup": 100,
            "weight_decay": 0.1,
            "smoothing": 0.0,
            "average": 0,
        },
    }

    @model_validator(mode="after")
    def _no_trees(self) -> FillConfig:
        if isinstance(self.model, BertConfig) and self.model.positions == "tree":
            raise ValueError("model.positions: plain text has no trees; tree positions are for task classify")
        return self
