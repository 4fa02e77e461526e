"""A person's picture as a model sees it: read, fitted, normalised, and layer by layer; where its places lie on the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.pictures.augment import normalise
from regard.data.pictures.config import PictureFormat
from regard.data.pictures.decode import Fitted, fit_picture, fitted, read_picture
from regard.errors import UsageError
from regard.inspect.features import feature_maps
from regard.look.features import FeatureMaps
from regard.models.protocols import HasFeatureMaps
from regard.predictor import Predictor

Picture = str | Path | np.ndarray  # a file, or bytes (height, width, channels)
Pictures = list[str] | list[Path] | list[np.ndarray] | list[Picture] | tuple[Picture, ...]


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """A picture, and what a model is shown of it."""

    name: str
    original: np.ndarray  # (height, width, 3)
    shown: np.ndarray  # (size, size, channels)
    place: Fitted  # of what is shown on the original


def as_list(pictures: Picture | Pictures) -> tuple[list[Picture], bool]:
    """Pictures as a list, and whether a person gave several: a list or a tuple, not one name or one array."""
    if isinstance(pictures, (list, tuple)):
        return list(pictures), True
    return [pictures], False


def see(picture: Picture, picture_format: PictureFormat) -> SeenPicture:
    """Read a picture and make it fit."""
    if isinstance(picture, np.ndarray):
        name, pixels = "picture", picture if picture.ndim == 3 else picture[..., None]
    else:
        name, pixels = str(picture), read_picture(Path(picture))
    if picture_format.channels == 1 and pixels.shape[-1] == 3:
        grey = pixels @ np.array([0.299, 0.587, 0.114])  # ITU-R 601-2, as Pillow has it
        pixels = np.clip(np.rint(grey), 0, 255).astype(np.uint8)[..., None]
    elif picture_format.channels == 3 and pixels.shape[-1] == 1:
        pixels = pixels.repeat(3, axis=-1)
    original = pixels.repeat(3, axis=-1) if pixels.shape[-1] == 1 else pixels
    return SeenPicture(name, original, fit_picture(pixels, picture_format), fitted(pixels.shape[:2], picture_format))


def as_pixels(pictures: Sequence[SeenPicture], picture_format: PictureFormat, device: torch.device) -> Tensor:
    """Fitted pictures, normalised as the model was trained: (B, channels, size, size)."""
    shown = np.stack([picture.shown for picture in pictures])
    return normalise(torch.from_numpy(shown).permute(0, 3, 1, 2), picture_format).to(device)


def has_features(predictor: Predictor) -> bool:
    """Whether a model sees with convolutions that tell their feature maps."""
    return predictor.config.pictures is not None and isinstance(
        getattr(predictor.model, "encoder", None), HasFeatureMaps
    )


def features_of(
    predictor: Predictor, picture: Picture, *, layer: int | None = None, place: tuple[int, int] | None = None
) -> FeatureMaps:
    """Feature maps of a picture in whatever convolutional network a model sees with, and what a place of a layer sees."""
    encoder, picture_format = getattr(predictor.model, "encoder", None), predictor.config.pictures
    if picture_format is None or not isinstance(encoder, HasFeatureMaps):  # as `has_features`
        raise UsageError(f"this {predictor.config.model.kind} does not see with convolutions: it has no feature maps")
    seen = see(picture, picture_format)
    shown = seen.shown.repeat(3, axis=-1) if seen.shown.shape[-1] == 1 else seen.shown
    pixels = as_pixels([seen], picture_format, predictor.device)
    kind = getattr(encoder, "config", predictor.config.model).kind
    return feature_maps(encoder, pixels, shown, f"{kind}: {Path(seen.name).name}", layer=layer, place=place)
