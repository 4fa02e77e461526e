"""A classifier from labelled texts. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from regard.config import Tables, merge
from regard.data.config import LabelledConfig
from regard.data.graphs.config import are_graphs
from regard.data.pictures.config import are_pictures
from regard.data.sound.config import are_sounds
from regard.models.config import (
    KINDS_OF,
    ModelConfig,
    SelfAttentionConfig,
)
from regard.tasks.config import TextRunConfig
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig

BUILTIN = "builtin/names"


class ClassifyConfig(TextRunConfig):
    """A classifier from labelled texts."""

    task: Literal["classify"] = "classify"
    data: LabelledConfig = LabelledConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = SelfAttentionConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {
        "train": {
            "steps": 2000,
            "lr": 2e-3,
            "schedule": "linear",
            "warmup": 50,
            "smoothing": 0.0,
            "average": 0,
            "select": "accuracy",
        },
    }
    has_classes: ClassVar[bool] = True

    @classmethod
    def defaults_for(cls, values: Tables) -> Tables:
        if values.get("data", {}).get("train", BUILTIN) in (BUILTIN, [BUILTIN]):
            return merge(cls.defaults, {"tokens": {"kind": "character"}})  # names are short: their letters tell
        return cls.defaults


# Tasks that share the verb with texts, and what tells their data; what none of them takes is text.
OTHERS = (
    ("classify-pictures", are_pictures),
    ("classify-sounds", are_sounds),
    ("classify-graphs", are_graphs),
)


def which_classify(values: Tables) -> str:
    """The task that a configuration to classify means: of texts, pictures, sounds or graphs. The model or the data tell."""
    model, data = values.get("model", {}), values.get("data", {})
    kind = model.get("kind") if isinstance(model, dict) else None
    names = data.get("train", ()) if isinstance(data, dict) else ()
    names = (names,) if isinstance(names, str) else names
    meant = (task for task, are in OTHERS if (are(names) if kind is None else kind in KINDS_OF[task]))
    return next(meant, "classify")
