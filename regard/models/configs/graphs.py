"""Configurations of networks over the edges of graphs. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig

Readout = Literal["mean", "attention"]


class GraphNetConfig(StrictConfig):
    """What all networks over graphs share."""

    layers: int = Field(2, ge=1, description="Layers: how many edges away a node sees.")
    dropout: float = Field(0.6, ge=0, lt=1, description="Dropout on the features that each layer reads.")
    readout: Readout = Field(
        "mean",
        description="How the vector of a whole graph is made of those of its nodes: their mean, or by attention.",
    )
    laplacian: int = Field(
        0, ge=0, description="Laplacian eigenvectors that are added to the features of each node; 0: none."
    )

    @property
    def longest(self) -> int | None:
        return None


class GATConfig(GraphNetConfig):
    """A graph attention network (Velickovic et al. 2018)."""

    kind: Literal["gat"] = "gat"
    width: int = Field(64, ge=1, description="Width D of a node's vector between layers: H heads side by side.")
    heads: int = Field(8, ge=1, description="Heads H; they divide the width.")
    last_heads: int = Field(1, ge=1, description="Heads of the last layer, of which the mean is taken.")
    attention_dropout: float = Field(0.6, ge=0, lt=1, description="Dropout on the weights of edges.")
    slope: float = Field(0.2, ge=0, description="Slope of the leaky ReLU below zero.")
    residual: bool = Field(False, description="Add what a layer read to what it gives.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> GATConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self


class GATv2Config(GATConfig):
    """A graph attention network whose ranking of neighbours depends on who looks (Brody et al. 2022)."""

    kind: Literal["gatv2"] = "gatv2"  # type: ignore[assignment]
    shared: bool = Field(False, description="One matrix for who looks and who is looked at, as in Brody's section 3.3.")


class GCNConfig(GraphNetConfig):
    """A graph convolution (Kipf & Welling 2017): fixed weights in the place of attention."""

    kind: Literal["gcn"] = "gcn"
    width: int = Field(16, ge=1, description="Width D of a node's vector between layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on the features that each layer reads.")


class GraphTransformerConfig(GraphNetConfig):
    """A Transformer encoder whose mask is the graph (Dwivedi & Bresson 2021)."""

    kind: Literal["graph-transformer"] = "graph-transformer"
    width: int = Field(64, ge=1, description="Width D of a node's vector.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(128, ge=1, description="Inner width F of the feed-forward layers.")
    dropout: float = Field(0.3, ge=0, lt=1, description="Dropout on features and of each sub-layer.")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights.")
    mask: Literal["edges", "dense"] = Field(
        "edges", description="Attend edge by edge, or with a mask of all pairs: the same, at the cost of N²."
    )
    laplacian: int = Field(8, ge=0, description="Laplacian eigenvectors that are added to each node's features.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> GraphTransformerConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self
