"""A model that writes down what is said. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import StrictConfig, Tables
from regard.data.sound.config import SpeechConfig
from regard.decode.config import DecodeConfig
from regard.models.config import ConformerConfig, ModelConfig
from regard.tasks.config import HEARING, RunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class TranscribeValidateConfig(StrictConfig):
    """What a validation of a transcriber looks at besides the loss."""

    sounds: int = Field(200, ge=0, description="Validation sounds transcribed (greedily) for the word error rate.")
    samples: int = Field(2, ge=0, description="Transcripts shown to the person.")


class TranscribeConfig(RunConfig):
    """A model that writes down what is said."""

    task: Literal["transcribe"] = "transcribe"
    data: SpeechConfig = SpeechConfig()
    tokens: TokensConfig = TokensConfig(kind="character")
    model: ModelConfig = ConformerConfig()
    train: TrainConfig = TrainConfig()
    validate_: TranscribeValidateConfig = Field(TranscribeValidateConfig(), alias="validate")
    decode: DecodeConfig = DecodeConfig()

    defaults: ClassVar[Tables] = {
        "tokens": {"kind": "character", "lowercase": True, "min_count": 1},
        "train": {**HEARING, "steps": 3000},
        "decode": {"beam": 4, "length_penalty": "none"},
    }

    @classmethod
    def defaults_for(cls, values: Tables) -> Tables:
        names = values.get("data", {}).get("train", "builtin/keys")
        if names in ("builtin/keys", ["builtin/keys"], ("builtin/keys",)):  # keys are words, with nothing between them
            return {**cls.defaults, "tokens": {"kind": "space", "min_count": 1}}
        return cls.defaults
