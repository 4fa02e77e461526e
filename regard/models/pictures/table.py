"""Which class sees, writes captions or answers, by the `kind` of its configuration: explicit tables."""

from __future__ import annotations

from typing import Any

from regard.data.pictures.config import PictureFormat
from regard.models.config import EncoderConfig
from regard.models.pictures.convolutional import ConvNet, EfficientNetLite0, ResNet
from regard.models.pictures.encoder import PictureEncoder
from regard.models.pictures.mixer import ConvMixer, Mixer
from regard.models.pictures.vit import ViT

ENCODERS: dict[str, Any] = {
    "convnet": ConvNet,
    "resnet": ResNet,
    "vit": ViT,
    "mixer": Mixer,
    "convmixer": ConvMixer,
    "efficientnet-lite0": EfficientNetLite0,
}


def make_encoder(config: EncoderConfig, format: PictureFormat) -> PictureEncoder:
    """A network that sees pictures of this format, with fresh weights (seed torch first for repeatable ones)."""
    encoder: PictureEncoder = ENCODERS[config.kind](config, format)
    return encoder
