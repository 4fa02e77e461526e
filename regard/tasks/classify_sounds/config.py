"""A classifier from labelled sounds. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import Tables
from regard.data.sound.config import SoundsConfig
from regard.models.config import ConformerConfig, ModelConfig
from regard.tasks.config import HEARING, RunConfig
from regard.training.config import TrainConfig


class ClassifySoundsConfig(RunConfig):
    """A classifier from labelled sounds."""

    task: Literal["classify-sounds"] = "classify-sounds"
    data: SoundsConfig = SoundsConfig()
    tokens: None = Field(None, description="Sounds have no tokens.")
    model: ModelConfig = ConformerConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {"train": {**HEARING, "select": "accuracy"}}
    has_classes: ClassVar[bool] = True
