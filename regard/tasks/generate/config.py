"""A language model from any text. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from regard.config import Tables, merge
from regard.data.chats import are_chats
from regard.data.config import TextConfig
from regard.data.form import RATE
from regard.data.notation import side_of, tokens_for
from regard.decode.config import DecodeConfig
from regard.models.config import (
    LlamaConfig,
    ModelConfig,
)
from regard.models.configs.pixels import BEFORE
from regard.models.kinds import PIXELS
from regard.tasks.config import TextRunConfig, TextValidateConfig
from regard.tokens.config import LABELS_FROM, SPECIALS, TokensConfig
from regard.training.config import TrainConfig

USUAL_SIDE = 28  # of pictures that are not there yet


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
        "pixels": {
            "tokens": {"kind": "pixels"},
            "train": {"lr": 8e-3, "warmup": 100, "weight_decay": 0.0, "batch_tokens": 12_560},
            "samples": 0,
            "probes": 0,
            "decode": {"temperature": 1.0, "top_p": 1.0, "max_length": None},  # a picture is written whole
        },
    }

    @classmethod
    def defaults_for(cls, values: Tables) -> Tables:
        """The defaults for texts, or for what files of music, of sound and of pictures are written in."""
        kind = _tokens_of(values)
        return merge(cls.defaults, {} if kind is None else cls.written[kind])

    @classmethod
    def kind_for(cls, values: Tables) -> str:
        """Samples and pixels are too many for attention."""
        kinds = {"samples": "wavenet", "pixels": "pixelcnn"}
        return kinds.get(_tokens_of(values) or "") or super().kind_for(values)

    @model_validator(mode="after")
    def _chats_stand_alone(self) -> GenerateConfig:
        if self.data.chats and (self.data.old or self.data.also):
            raise ValueError("data: chats are learned by themselves; leave out data.old and data.also")
        return self

    @classmethod
    def completed(cls, values: Tables) -> Tables:
        """With what the data say of themselves: that they are chats; of samples and pixels how many there are, and labels."""
        if are_chats(_named(values)):
            return _with_chat(values)
        kind, model = values.get("tokens", {}).get("kind"), values.get("model", {}).get("kind")
        if kind == "pixels":
            return _with_pixels(values)
        if kind != "samples":
            return values
        rate = values.get("data", {}).get("rate", RATE)
        labels = {"labels_from": LABELS_FROM} if model == "wavenet" else {}
        return merge({"model": labels, "tokens": {"rate": rate}}, values)


def _with_pixels(values: Tables) -> Tables:
    """The values with the side of the pictures, and what follows from it and from the levels."""
    data, tokens, model = (values.get(name, {}) for name in ("data", "tokens", "model"))
    side = data.get("side") or tokens.get("side") or side_of(_named(values)) or USUAL_SIDE
    levels = data.get("levels") or tokens.get("levels") or 2
    if not isinstance(side, int) or not isinstance(levels, int):  # whoever checks the configuration says so
        return values
    form, count = {"side": side, "levels": levels}, BEFORE + side**2
    about: Tables = {"data": {"context": count - 1, **form}, "tokens": form}
    if model.get("kind") in PIXELS:
        about["model"] = {"rows": side, "columns": side, "labels_from": SPECIALS + levels}
    elif model.get("kind") in ("gpt1", "gpt2", "gpt3", "llama"):
        about["model"] = {"max_length": count}
    return merge(about, {**values, "data": {key: value for key, value in data.items() if value is not None}})


def _with_chat(values: Tables) -> Tables:
    """The values of chats; the running text that a model brought along, with which they cannot be mixed, is left."""
    data = {name: value for name, value in values["data"].items() if name != "old" or not isinstance(value, dict)}
    return {**values, "data": {"chats": True, **data}}


def _named(values: Tables) -> tuple[str, ...]:
    """The names of the training data."""
    data = values.get("data", {})
    names = data.get("train", ()) if isinstance(data, dict) else ()
    return (names,) if isinstance(names, str) else tuple(names)


def _tokens_of(values: Tables) -> str | None:
    """The kind of tokens of music, sound or pictures in the training data; None for text."""
    return tokens_for(_named(values))
