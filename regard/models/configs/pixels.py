"""Configurations of the families that write a picture pixel by pixel, in the order of reading. No torch here.

A picture is a sequence of tokens: begin, a label, and then its pixels, row by row.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig

BEFORE = 2  # tokens before the first pixel: begin, and a label


class PixelsConfig(StrictConfig):
    """What these families share: the grid of a picture."""

    rows: int = Field(28, ge=1, description="Rows of a picture; the data say it (data.side).")
    columns: int = Field(28, ge=1, description="Pixels of a row; the data say it (data.side).")
    labels_from: int | None = Field(
        None, ge=1, description="Ids from here on are labels of pictures; the tokens say it. None: there are none."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout before the output.")

    @property
    def longest(self) -> int:
        """Most tokens of a picture, begin and label included."""
        return BEFORE + self.rows * self.columns


class PixelCNNConfig(PixelsConfig):
    """Gated PixelCNN (van den Oord et al. 2016): a stack that sees the rows above, and one that sees the row to the left."""

    kind: Literal["pixelcnn"] = "pixelcnn"
    layers: int = Field(7, ge=1, description="Gated layers.")
    channels: int = Field(32, ge=1, description="Channels of each stack.")
    inputs: int = Field(8, ge=1, description="Channels of the embedded pixels that the first layer reads.")
    width: int = Field(64, ge=1, description="Width D of the vectors that predict a pixel.")
    first: int = Field(7, ge=1, description="Width of the first layer's kernel, odd.")
    kernel: int = Field(3, ge=1, description="Width of the other layers' kernels, odd.")

    @model_validator(mode="after")
    def _kernels_have_a_middle(self) -> PixelCNNConfig:
        for name, size in (("first", self.first), ("kernel", self.kernel)):
            if size % 2 == 0:
                raise ValueError(f"{name} {size} has no middle; choose an odd number")
        return self


class PixelRNNConfig(PixelsConfig):
    """PixelRNN (van den Oord et al. 2016): LSTMs that go down a picture, a row at a time."""

    kind: Literal["pixelrnn"] = "pixelrnn"
    layers: int = Field(3, ge=1, description="Row LSTMs.")
    width: int = Field(64, ge=1, description="Width D of the vectors between layers.")
    hidden: int = Field(32, ge=1, description="Width of a recurrent state.")
    inputs: int = Field(8, ge=1, description="Channels of the embedded pixels that the first convolution reads.")
    first: int = Field(7, ge=3, description="Width of the first convolution's kernel, odd.")
    kernel: int = Field(3, ge=1, description="Width of the convolutions along a row, odd.")

    @model_validator(mode="after")
    def _kernels_have_a_middle(self) -> PixelRNNConfig:
        for name, size in (("first", self.first), ("kernel", self.kernel)):
            if size % 2 == 0:
                raise ValueError(f"{name} {size} has no middle; choose an odd number")
        return self


class ImageTransformerConfig(PixelsConfig):
    """Image Transformer (Parmar et al. 2018): attention over the pixels before each one, as far back as a memory reaches."""

    kind: Literal["image-transformer"] = "image-transformer"
    layers: int = Field(4, ge=1, description="Blocks.")
    width: int = Field(64, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=0, description="Inner width F of the feed-forward layers; 0: there are none.")
    memory: int = Field(113, ge=1, description="Tokens that a pixel attends to, itself included: four rows of 28.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ImageTransformerConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self
