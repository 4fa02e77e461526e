"""A model that remembers sequences of bits. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import Tables
from regard.data.config import BitsConfig
from regard.models.config import ModelConfig, TuringMachineConfig
from regard.tasks.config import RunConfig
from regard.training.config import TrainConfig


class RememberConfig(RunConfig):
    """A model that remembers sequences of bits."""

    task: Literal["remember"] = "remember"
    data: BitsConfig = BitsConfig()
    tokens: None = Field(None, description="Bits have no tokens.")
    model: ModelConfig = TuringMachineConfig()
    train: TrainConfig = TrainConfig(select="wrong")

    defaults: ClassVar[Tables] = {
        "train": {
            "steps": 2000,
            "lr": 1e-3,
            "schedule": "linear",
            "warmup": 50,
            "smoothing": 0.0,
            "average": 0,
            "select": "loss",
            "clip": 1.0,
            "betas": [0.9, 0.99],
            "precision": "float32",  # a place on the tape is lost in the rounding of bf16
        },
    }
