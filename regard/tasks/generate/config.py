"""A language model from any text. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from regard.config import Tables, merge
from regard.data.chats import are_chats
from regard.data.config import TextConfig
from regard.data.notation import RATE, tokens_for
from regard.decode.config import DecodeConfig
from regard.models.config import (
    LlamaConfig,
    ModelConfig,
)
from regard.tasks.config import TextRunConfig, TextValidateConfig
from regard.tokens.config import LABELS_FROM, TokensConfig
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

    # Where the data are not text: laid over the defaults, by the kind of tokens.
    written: ClassVar[dict[str, Tables]] = {
        "notes": {
            "tokens": {"kind": "notes"},
            "data": {"context": 320},
            "decode": {"temperature": 1.0, "top_p": 0.98, "max_length": 500},
        },
        "samples": {
            "tokens": {"kind": "samples"},
            "data": {"context": 2048},
            "samples": 0,
            "decode": {"temperature": 1.0, "top_p": 1.0, "max_length": 8000},
        },
    }

    @classmethod
    def defaults_for(cls, values: Tables) -> Tables:
        """The defaults for texts, or for what files of music and of sound are written in."""
        kind = _tokens_of(values)
        return merge(cls.defaults, {} if kind is None else cls.written[kind])

    @classmethod
    def kind_for(cls, values: Tables) -> str:
        """Samples are too many for attention."""
        return "wavenet" if _tokens_of(values) == "samples" else super().kind_for(values)

    @model_validator(mode="after")
    def _chats_stand_alone(self) -> GenerateConfig:
        if self.data.chats and (self.data.old or self.data.also):
            raise ValueError("data: chats are learned by themselves; leave out data.old and data.also")
        return self

    @classmethod
    def completed(cls, values: Tables) -> Tables:
        """With what the data say of themselves: that they are chats; of samples how many a second there are, and labels."""
        if _are_chats(values):
            return _with_chat(values)
        if values.get("tokens", {}).get("kind") != "samples":
            return values
        rate = values.get("data", {}).get("rate", RATE)
        labels = {"labels_from": LABELS_FROM} if values["model"].get("kind") == "wavenet" else {}
        return merge({"model": labels, "tokens": {"rate": rate}}, values)


def _are_chats(values: Tables) -> bool:
    data = values.get("data", {})
    names = data.get("train", ()) if isinstance(data, dict) else ()
    return are_chats((names,) if isinstance(names, str) else names)


def _with_chat(values: Tables) -> Tables:
    """The values of chats; the running text that a model brought along, with which they cannot be mixed, is left."""
    data = {name: value for name, value in values["data"].items() if name != "old" or not isinstance(value, dict)}
    return {**values, "data": {"chats": True, **data}}


def _tokens_of(values: Tables) -> str | None:
    """The kind of tokens of music or sound in the training data; None for text."""
    data = values.get("data", {})
    names = data.get("train", ()) if isinstance(data, dict) else ()
    return tokens_for((names,) if isinstance(names, str) else names)
