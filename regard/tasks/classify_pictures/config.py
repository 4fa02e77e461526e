"""A classifier from labelled pictures. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import Tables
from regard.data.pictures.config import PicturesConfig
from regard.models.config import (
    ConvNetConfig,
    ModelConfig,
)
from regard.tasks.config import SEEING, RunConfig
from regard.training.config import TrainConfig


class ClassifyPicturesConfig(RunConfig):
    """A classifier from labelled pictures."""

    task: Literal["classify-pictures"] = "classify-pictures"
    data: PicturesConfig = PicturesConfig()
    tokens: None = Field(None, description="Pictures have no tokens.")
    model: ModelConfig = ConvNetConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {"train": {**SEEING, "batch_pictures": 128, "select": "accuracy"}}
    has_classes: ClassVar[bool] = True
