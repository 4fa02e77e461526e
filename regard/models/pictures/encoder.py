"""The base of every picture encoder: one vector for the picture, and one for each place of a grid on it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from regard.blocks.convolution import ReceptiveField


@dataclass(frozen=True)
class View:
    """Pictures as an encoder sees them."""

    vector: Tensor  # (B, D)
    places: Tensor  # (B, P, D): the grid, row by row


@dataclass(frozen=True)
class FeatureMap:
    """What one layer of a convolutional network makes of pictures."""

    name: str
    values: Tensor  # (B, channels, rows, columns)
    field: ReceptiveField | None  # what a place of it sees along one side; None: all of the picture


class PictureEncoder(nn.Module):
    """The base of every network that sees. `grid` is (rows, columns), `width` is D, P = rows x columns."""

    width: int
    grid: tuple[int, int]
    normed = False  # whether a norm gives the picture's vector its length, √D

    @abstractmethod
    def forward(self, pixels: Tensor) -> View:
        """pixels (B, channels, height, width), normalised."""
