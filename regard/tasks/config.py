"""The configuration that the runs of all tasks share: data, tokens, model, training; each task extends it. No torch here."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from regard.config import StrictConfig, Tables
from regard.data.config import (
    BitsConfig,
    LabelledConfig,
    PairsConfig,
    PreferencesConfig,
    StoriesConfig,
    TablesConfig,
    TextConfig,
)
from regard.data.graphs.config import GraphsConfig
from regard.data.pictures.config import CaptionsConfig, PicturesConfig, QuestionsConfig
from regard.data.sound.config import SoundsConfig, SpeechConfig
from regard.models.config import (
    KINDS_OF,
    ModelConfig,
)
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig

# How tasks that see train where a configuration says nothing else.
SEEING: Tables = {
    "steps": 2000,
    "lr": 2e-3,
    "schedule": "linear",
    "warmup": 100,
    "weight_decay": 0.05,
    "betas": (0.9, 0.99),
    "epsilon": 1e-8,
    "smoothing": 0.0,
    "average": 0,
}


# How tasks that hear train where a configuration says nothing else; a batch is counted in frames.
HEARING: Tables = {
    "steps": 2000,
    "lr": 2e-3,
    "schedule": "linear",
    "warmup": 100,
    "weight_decay": 0.01,
    "betas": (0.9, 0.98),
    "epsilon": 1e-8,
    "smoothing": 0.0,
    "average": 0,
    "batch_tokens": 4096,
    "precision": "float32",
}


def article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"


class RunConfig(StrictConfig):
    """What the runs of all tasks share."""

    task: str
    data: (
        PairsConfig
        | TextConfig
        | LabelledConfig
        | PreferencesConfig
        | StoriesConfig
        | BitsConfig
        | TablesConfig
        | PicturesConfig
        | CaptionsConfig
        | QuestionsConfig
        | SoundsConfig
        | SpeechConfig
        | GraphsConfig
    )
    tokens: TokensConfig | None
    model: ModelConfig
    train: TrainConfig
    start: str | None = Field(None, description="A run or bundle to go on from: its model, tokenizer and weights.")

    @model_validator(mode="after")
    def _kind_does_the_task(self) -> RunConfig:
        kinds = KINDS_OF[self.task]
        if self.model.kind not in kinds:
            raise ValueError(
                f"model.kind: {article(self.model.kind)} {self.model.kind} does not {self.task}; {', '.join(kinds)} do"
            )
        return self

    @model_validator(mode="after")
    def _old_has_a_start(self) -> RunConfig:
        given = [
            name
            for name, value in (("data.old", getattr(self.data, "old", ())), ("train.blend", self.train.blend))
            if value
        ]
        if given and not self.fine_tunes:
            raise ValueError(f"{given[0]}: no run to {self.task} mixes old and new")
        if given and self.start is None:
            raise ValueError(
                f"{given[0]}: only a run that goes on from another model has something old; name it with start"
            )
        return self

    @model_validator(mode="after")
    def _classes_have_weights(self) -> RunConfig:
        if self.train.class_weights is not None and not self.has_classes:
            raise ValueError(f"train.class_weights: only classifiers have classes; leave it out to {self.task}")
        return self

    # Laid over the defaults of the fields where a configuration says nothing; a preset, a file and options come above.
    defaults: ClassVar[Tables] = {}
    size: ClassVar[str] = "tiny"  # the preset of a model that nobody sizes
    fine_tunes: ClassVar[bool] = False  # whether a run from a model of its own task mixes old and new
    has_classes: ClassVar[bool] = False  # whether `train.class_weights` has a meaning

    @classmethod
    def defaults_for(cls, values: Tables) -> Tables:
        """The task's defaults for a configuration that says `values`."""
        return cls.defaults

    @classmethod
    def kind_for(cls, values: Tables) -> str:
        """The kind of model of a configuration that names none."""
        return KINDS_OF[values["task"]][0]

    @classmethod
    def completed(cls, values: Tables) -> Tables:
        """The values, defaults and preset included, with what follows from them."""
        return values

    def dump(self) -> Tables:
        return self.model_dump(mode="json", by_alias=True)


class TextValidateConfig(StrictConfig):
    """How much of its text a validation of a language model reads."""

    tokens: int = Field(
        262_144,
        ge=1,
        description="Most tokens of the validation text that a validation reads, from all over it; of a shorter one all.",
    )


class TextRunConfig(RunConfig):
    """What the runs of all tasks on text share."""

    probes: int | tuple[str, ...] = Field(
        2, description="Texts whose attention is kept at each validation: how many, or which (a tab between pairs)."
    )

    @field_validator("probes", mode="before")
    @classmethod
    def _probes_are_texts(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{value}? say how many texts, 0 for none, or give the texts")
        return value
