"""Configurations of the families that see: networks that classify pictures, write captions, answer questions. No torch here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig
from regard.models.configs.attention import AttentionConfig, ExactConfig

Attention = Literal["none", "se", "cbam"]


class NetworkConfig(StrictConfig):
    """What all networks that see share."""

    @property
    def longest(self) -> int | None:
        """Most tokens of a text: they read none."""
        return None


class ConvNetConfig(NetworkConfig):
    """Stages of 3 x 3 convolutions; each stage but the first begins by halving the picture with max-pooling.

    What comes out of w rows has ⌊(w + 2 padding - dilation (kernel - 1) - 1) / stride⌋ + 1.
    """

    kind: Literal["convnet"] = "convnet"
    channels: tuple[int, ...] = Field((32, 64, 128), min_length=1, description="Channels of each stage.")
    layers: int = Field(2, ge=1, description="Convolutions in a stage.")
    kernel: int = Field(3, ge=1, description="Size of the kernels.")
    stride: int = Field(1, ge=1, description="Stride of the first convolution of each stage.")
    padding: Literal["same"] | Annotated[int, Field(ge=0)] = Field(
        "same", description="Zeros on each side; same: as many as keep the size at stride 1."
    )
    dilation: int = Field(1, ge=1, description="From one tap of a kernel to the next, in places.")
    pooling: Literal["max", "average", "none"] = Field(
        "max", description="What halves the picture before each stage but the first."
    )
    attention: Attention = Field("none", description="After each stage: se (channels), cbam (channels, then places).")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout before the last layer.")

    @property
    def width(self) -> int:
        return self.channels[-1]


class ResNetConfig(NetworkConfig):
    """Residual blocks of two convolutions (He et al. 2016, section 4.2), the first of a stage with stride 2."""

    kind: Literal["resnet"] = "resnet"
    channels: tuple[int, ...] = Field((32, 64, 128), min_length=1, description="Channels of each stage.")
    blocks: int = Field(2, ge=1, description="Residual blocks in a stage.")
    residual: bool = Field(True, description="Add the input of each block to its output; off: plain convolutions.")
    attention: Attention = Field("none", description="Inside each block: se (channels), cbam (channels, then places).")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout before the last layer.")

    @property
    def width(self) -> int:
        return self.channels[-1]


class ViTConfig(NetworkConfig):
    """Patches as tokens (Dosovitskiy et al. 2021)."""

    kind: Literal["vit"] = "vit"
    patch: int = Field(4, ge=1, description="Height and width of a patch, in pixels; it divides the picture's.")
    layers: int = Field(6, ge=1, description="Blocks.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=0, description="Inner width F of the feed-forward layers; 0: there are none.")
    pool: Literal["class", "mean"] = Field("class", description="A picture's vector: a class token's, or the mean.")
    positions: Literal["learned", "sinusoidal", "none"] = Field(
        "learned", description="How places are told: learned, or 2-D sinusoidal."
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings and on the output of each sub-layer.")
    epsilon: float = Field(1e-6, gt=0, description="Added to the variance in norms.")
    attention: AttentionConfig = Field(ExactConfig(), description="What attends: all pairs, or a kernel for length.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ViTConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self


class MixerConfig(NetworkConfig):
    """MLP-Mixer (Tolstikhin et al. 2021): one network mixes places, another channels; no attention."""

    kind: Literal["mixer"] = "mixer"
    patch: int = Field(4, ge=1, description="Height and width of a patch, in pixels; it divides the picture's.")
    layers: int = Field(6, ge=1, description="Blocks.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    places: int = Field(64, ge=1, description="Inner width of the network that mixes places.")
    feed_forward: int = Field(256, ge=1, description="Inner width of the network that mixes channels.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on the output of each network.")


class ConvMixerConfig(NetworkConfig):
    """ConvMixer (Trockman & Kolter 2022): depth-wise convolutions mix places, point-wise ones channels."""

    kind: Literal["convmixer"] = "convmixer"
    patch: int = Field(2, ge=1, description="Height and width of a patch, in pixels; it divides the picture's.")
    layers: int = Field(6, ge=1, description="Blocks.")
    width: int = Field(128, ge=1, description="Channels D.")
    kernel: int = Field(5, ge=1, description="Size of the depth-wise kernels.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout before the last layer.")


class EfficientNetConfig(NetworkConfig):
    """EfficientNet-Lite0 (Tan & Le 2019) with its batch norms folded in: features of a network that knows ImageNet."""

    kind: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    weights: str = Field("", description="Its weights as safetensors; empty: fresh ones (or those of the bundle).")
    depth: Literal["block-5", "block-7", "head"] = Field(
        "head", description="Which features: 112 channels at 1/16 of the size, 320 at 1/32, or 1,280 at 1/32."
    )

    @property
    def width(self) -> int:
        return {"block-5": 112, "block-7": 320, "head": 1280}[self.depth]


EncoderConfig = Annotated[
    ConvNetConfig | ResNetConfig | ViTConfig | MixerConfig | ConvMixerConfig | EfficientNetConfig,
    Field(discriminator="kind"),
]


SMALL = ConvNetConfig(channels=(16, 32, 64, 128), layers=1)  # what sees where nothing else is asked for


class CaptionerConfig(StrictConfig):
    """What all writers of captions share: what sees the picture, and the output side."""

    encoder: EncoderConfig = Field(SMALL, description="What sees the picture.")
    width: int = Field(128, ge=1, description="Width D of embeddings and of the vectors that predict a token.")
    dropout: float = Field(0.3, ge=0, lt=1, description="Dropout on embeddings and before the output.")
    tied: Literal["target", "none"] = Field("target", description="Whether embeddings and output layer are one table.")

    @property
    def longest(self) -> int | None:
        return None


class ShowAndTellConfig(CaptionerConfig):
    """No attention: the picture's vector is the first state of an LSTM (Vinyals et al. 2015)."""

    kind: Literal["show-and-tell"] = "show-and-tell"
    hidden: int = Field(256, ge=1, description="Width of the state.")


class ShowAttendTellConfig(CaptionerConfig):
    """At every word an LSTM looks at another part of the picture (Xu et al. 2015)."""

    kind: Literal["show-attend-tell"] = "show-attend-tell"
    hidden: int = Field(256, ge=1, description="Width of the state.")
    attention: int = Field(128, ge=1, description="Inner width of the additive score.")
    hard: bool = Field(False, description="Look at one sampled place at each word; learned by REINFORCE.")
    spread: float = Field(1.0, ge=0, description="λ: weight of the doubly stochastic regularisation.")
    entropy: float = Field(0.002, ge=0, description="Hard attention: weight of the entropy of where it looks.")


class CaptionTransformerConfig(CaptionerConfig):
    """A Transformer decoder whose words look at the picture's places by cross-attention."""

    kind: Literal["caption-transformer"] = "caption-transformer"
    layers: int = Field(2, ge=1, description="Blocks of the decoder.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=1, description="Inner width F of the feed-forward layers.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> CaptionTransformerConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self


class AnswererConfig(StrictConfig):
    """Questions about pictures: the question's tokens look at each other and at the picture's places."""

    kind: Literal["answerer"] = "answerer"
    encoder: EncoderConfig = Field(SMALL, description="What sees the picture.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    layers: int = Field(2, ge=1, description="Blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=1, description="Inner width F of the feed-forward layers.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings, sub-layers and before the last layer.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> AnswererConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self

    @property
    def longest(self) -> int | None:
        return None
