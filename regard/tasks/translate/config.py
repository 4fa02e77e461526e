"""A translation model from pairs of texts. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import StrictConfig, Tables, merge
from regard.data.config import PairsConfig
from regard.decode.config import DecodeConfig
from regard.models.config import (
    ModelConfig,
    TransformerConfig,
)
from regard.tasks.config import TextRunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig


class ValidateConfig(StrictConfig):
    """What a validation of a translation model looks at besides the loss."""

    sentences: int = Field(500, ge=0, description="Validation sentences translated (greedily) for BLEU; 0 for none.")
    samples: int = Field(2, ge=0, description="Translations shown to the person.")
    bleu_tokenizer: Literal["auto", "13a", "char", "intl", "zh", "ja-mecab", "ko-mecab", "none"] = Field(
        "auto", description="How BLEU cuts words (sacreBLEU's names); auto: as the target language needs it."
    )


class TranslateConfig(TextRunConfig):
    """A translation model from pairs of texts."""

    fine_tunes: ClassVar[bool] = True

    task: Literal["translate"] = "translate"
    data: PairsConfig = PairsConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = TransformerConfig()
    train: TrainConfig = TrainConfig(select="bleu")
    validate_: ValidateConfig = Field(ValidateConfig(), alias="validate")
    decode: DecodeConfig = DecodeConfig()

    @classmethod
    def completed(cls, values: Tables) -> Tables:
        return _select_bleu(_separate(values))


def _select_bleu(values: Tables) -> Tables:
    """The best translations are kept; without any, only the loss can select."""
    validate = values.get("validate")
    translates = not (isinstance(validate, dict) and validate.get("sentences") == 0)
    return merge({"train": {"select": "bleu" if translates else "loss"}}, values)


def _separate(values: Tables) -> Tables:
    """Separate vocabularies cannot share the source's table: the default follows `tokens.joint`."""
    if values.get("tokens", {}).get("joint") is False and "tied" not in values["model"]:
        return merge(values, {"model": {"tied": "target"}})
    return values
