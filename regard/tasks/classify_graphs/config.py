"""A classifier of the nodes of a graph, or of whole graphs. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from regard.config import Tables
from regard.data.graphs.config import GraphsConfig
from regard.models.config import GATConfig, ModelConfig
from regard.tasks.config import RunConfig
from regard.training.config import TrainConfig


class ClassifyGraphsConfig(RunConfig):
    """A classifier of the nodes of a graph, or of whole graphs."""

    task: Literal["classify-graphs"] = "classify-graphs"
    data: GraphsConfig = GraphsConfig()
    tokens: None = Field(None, description="Graphs have no tokens.")
    model: ModelConfig = GATConfig()
    train: TrainConfig = TrainConfig(select="accuracy")

    defaults: ClassVar[Tables] = {
        "train": {
            "steps": 1000,
            "lr": 5e-3,
            "schedule": "constant",
            "warmup": 0,
            "weight_decay": 5e-4,
            "decay": "l2",  # as in the papers: words that no labelled node has are forgotten
            "betas": (0.9, 0.999),
            "epsilon": 1e-8,
            "clip": 0.0,
            "smoothing": 0.0,
            "average": 0,
            "batch_tokens": 1024,
            "validate_every": 10,
            "patience": 10,
            "select": "accuracy",
            "precision": "float32",
        },
    }
    has_classes: ClassVar[bool] = True
