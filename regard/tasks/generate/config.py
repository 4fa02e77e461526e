"""A language model from any text. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import Tables
from regard.data.config import TextConfig
from regard.decode.config import DecodeConfig
from regard.models.config import (
    LlamaConfig,
    ModelConfig,
)
from regard.tasks.config import TextRunConfig, TextValidateConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class GenerateConfig(TextRunConfig):
    """A language model from any text."""

    fine_tunes: ClassVar[bool] = True

    task: Literal["generate"] = "generate"
    data: TextConfig = TextConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = LlamaConfig()
    train: TrainConfig = TrainConfig()
    validate_: TextValidateConfig = Field(TextValidateConfig(), alias="validate")
    samples: int = Field(120, ge=0, description="Tokens of a sample shown at each validation; 0 for none.")
    decode: DecodeConfig = DecodeConfig()

    defaults: ClassVar[Tables] = {
        "tokens": {"size": 4096},
        "train": {
            "steps": 3000,
            "optimiser": "muon",
            "lr": 1e-2,
            "schedule": "linear",
            "warmup": 50,
            "weight_decay": 0.1,
            "smoothing": 0.0,
            "average": 0,
        },
        "decode": {"sample": True, "temperature": 0.8, "top_p": 0.95, "max_length": 200},
    }
