"""A model that says what is in a picture. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig, Tables
from regard.data.pictures.config import CaptionsConfig
from regard.decode.config import DecodeConfig
from regard.models.config import (
    ModelConfig,
    ShowAttendTellConfig,
)
from regard.tasks.config import SEEING, RunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class CaptionValidateConfig(StrictConfig):
    """What a validation of a captioner looks at besides the loss."""

    pictures: int = Field(200, ge=0, description="Validation pictures captioned (greedily) for BLEU-4; 0 for none.")
    samples: int = Field(2, ge=0, description="Captions shown to the person.")

    @model_validator(mode="before")
    @classmethod
    def _pictures_not_sentences(cls, values: object) -> object:
        if isinstance(values, dict) and "sentences" in values:
            raise ValueError("no key validate.sentences; what is captioned are pictures: validate.pictures")
        return values


class CaptionConfig(RunConfig):
    """A model that says what is in a picture."""

    fine_tunes: ClassVar[bool] = True

    task: Literal["caption"] = "caption"
    data: CaptionsConfig = CaptionsConfig()
    tokens: TokensConfig = TokensConfig(kind="word")
    model: ModelConfig = ShowAttendTellConfig()
    train: TrainConfig = TrainConfig()
    validate_: CaptionValidateConfig = Field(CaptionValidateConfig(), alias="validate")
    decode: DecodeConfig = DecodeConfig()

    defaults: ClassVar[Tables] = {
        "tokens": {"kind": "word", "lowercase": True},
        "train": {**SEEING, "steps": 3000, "batch_pictures": 32},
        "decode": {"max_length": 40},
    }
