"""Configurations of models that hear. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig


class HearingConfig(StrictConfig):
    """What all Conformers share."""

    layers: int = Field(4, ge=1, description="Blocks.")
    width: int = Field(96, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=1, description="Inner width F of the feed-forward layers.")
    kernel: int = Field(15, ge=1, description="Frames that the convolution of a block spans.")
    channels: int = Field(32, ge=1, description="Channels of the convolutions that make fewer frames.")
    subsampling: Literal[1, 2, 4, 8] = Field(4, description="Frames of sound for each frame that the blocks see.")
    causal: bool = Field(False, description="Whether no frame sees later ones.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on the input and on sub-layers.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> HearingConfig:
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose an even multiple")
        return self

    @property
    def longest(self) -> int | None:
        return None


class ConformerConfig(HearingConfig):
    """A Conformer (Gulati et al. 2020): attention and convolution between two halves of a feed-forward layer.

    To transcribe, each frame tells its token (CTC); to classify, the mean of all frames tells the label.
    """

    kind: Literal["conformer"] = "conformer"


class ConformerTransformerConfig(HearingConfig):
    """A Conformer whose frames a Transformer decoder reads by cross-attention, with CTC beside it (Watanabe et al. 2017)."""

    kind: Literal["conformer-transformer"] = "conformer-transformer"
    decoder_layers: int = Field(2, ge=1, description="Blocks of the decoder.")
    ctc_weight: float = Field(
        0.3, ge=0, lt=1, description="λ: share of CTC in the loss and in the score of a hypothesis; 0: attention alone."
    )
    tied: Literal["target", "none"] = Field("target", description="Whether embeddings and output layer are one table.")
