"""What every picture that a model sees has in common: its size, its channels, and how a photo is made to fit. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from regard.config import StrictConfig


class PictureFormat(StrictConfig):
    """Pictures of `size` x `size` pixels as bytes 0 .. 255; a model sees (byte / 255 - mean) / deviation, by channel."""

    size: int = Field(32, ge=1, description="Height and width in pixels.")
    channels: Literal[1, 3] = Field(3, description="1: grey, 3: red, green and blue.")
    fit: Literal["crop", "pad", "squash"] = Field(
        "crop", description="A photo that is no square: its middle is cut out, borders are added, or it is squeezed."
    )
    resample: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = Field(
        "bicubic", description="How pixels are computed when a photo is made smaller or larger."
    )
    mean: tuple[float, ...] = Field((0.5,), description="Mean of each channel (or of all), from 0 to 1.")
    deviation: tuple[float, ...] = Field((0.25,), description="Standard deviation of each channel (or of all).")
