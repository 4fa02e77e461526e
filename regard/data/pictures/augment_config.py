"""How pictures are changed at random in training, so that a model learns what does not matter. No torch here."""

from __future__ import annotations

from pydantic import Field

from regard.config import StrictConfig


class AugmentConfig(StrictConfig):
    """Every picture of a batch is changed in its own way, in this order; with the defaults it stays as it is."""

    crop: int = Field(
        0, ge=0, le=256, description="Pixels added on every side by reflection, of which a random window is cut."
    )
    flip: bool = Field(
        False, description="Left and right are swapped, half of the time; not for letters, nor where words tell sides."
    )
    colour: float = Field(
        0.0, ge=0, le=1, description="Brightness, contrast and saturation change by factors of 1 - c to 1 + c."
    )
    erase: float = Field(
        0.0, ge=0, le=1, description="Probability that a rectangle is filled with noise (Zhong et al. 2020)."
    )
    mixup: float = Field(
        0.0, ge=0, le=16, description="α: pictures and labels are mixed, by shares from Beta(α, α) (Zhang et al. 2018)."
    )
