"""What the convolutional networks share: the last layer's channels at each place of its grid are what they see there."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from regard.blocks.picture_convolution import channels_last
from regard.data.pictures.format import PictureFormat
from regard.errors import RegardError
from regard.models.pictures.encoder import PictureEncoder, View


class Convolutional(PictureEncoder):
    """A family adds `features`; a picture's vector is the mean over its places."""

    def __init__(self, format: PictureFormat) -> None:
        super().__init__()
        self.format = format

    @abstractmethod
    def features(self, pixels: Tensor) -> Tensor:
        """(B, channels, height, width) -> (B, D, rows, columns)."""

    def forward(self, pixels: Tensor) -> View:
        self._check(pixels)
        places = self.features(channels_last(pixels)).flatten(2).mT  # (B, P, D)
        return View(places.mean(dim=1), places)

    def _check(self, pixels: Tensor) -> None:
        wanted = (self.format.channels, self.format.size, self.format.size)
        if tuple(pixels.shape[1:]) != wanted:
            raise RegardError(
                f"pictures of {' x '.join(map(str, pixels.shape[1:]))} (channels, height, width) do not fit a model of "
                f"{' x '.join(map(str, wanted))}; fit them to its format first"
            )
