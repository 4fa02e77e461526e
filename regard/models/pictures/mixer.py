"""MLP-Mixer (Tolstikhin et al. 2021) and ConvMixer (Trockman & Kolter 2022): patches mixed without attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.blocks import FeedForward, Residual, initialise
from regard.blocks.convolution import Convolution
from regard.blocks.norm import BatchNorm
from regard.data.pictures.config import PictureFormat
from regard.embed.patches import PatchEmbedding
from regard.models.config import ConvMixerConfig, MixerConfig
from regard.models.pictures.convolutional import Convolutional
from regard.models.pictures.encoder import PictureEncoder, View

EPSILON = 1e-6  # of the norms, as in the authors' code


class MixerBlock(nn.Module):
    """(B, P, D) -> (B, P, D)."""

    def __init__(self, config: MixerConfig, places: int) -> None:
        super().__init__()
        width = config.width
        self.places = FeedForward(places, config.places, activation="gelu")
        self.channels = FeedForward(width, config.feed_forward, activation="gelu")
        self.around_places = Residual(nn.LayerNorm(width, eps=EPSILON), config.dropout, order="pre")
        self.around_channels = Residual(nn.LayerNorm(width, eps=EPSILON), config.dropout, order="pre")

    def forward(self, x: Tensor) -> Tensor:
        x = self.around_places(x, lambda y: self.places(y.mT).mT)  # over (B, D, P)
        return self.around_channels(x, self.channels)


class Mixer(PictureEncoder):
    """Pictures -> patches, as many at the end as at the beginning; their mean is the picture's vector."""

    def __init__(self, config: MixerConfig, picture_format: PictureFormat) -> None:
        super().__init__()
        self.config, self.format, self.width = config, picture_format, config.width
        self.patches = PatchEmbedding(picture_format, config.patch, config.width)
        self.grid = self.patches.grid
        places = self.grid[0] * self.grid[1]
        self.blocks = nn.ModuleList(MixerBlock(config, places) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=EPSILON)
        initialise(self)

    def forward(self, pixels: Tensor) -> View:
        x = self.patches(pixels)  # (B, P, D)
        for block in self.blocks:
            x = block(x)
        places = self.norm(x)
        return View(places.mean(dim=1), places)

    @torch.no_grad()
    def mixing(self) -> list[Tensor]:
        """The matrix W2 W1 (P, P) of each block: row i tells how much of each place goes into place i.

        The block has a GELU between the two, so this is what its weights say, not what it does to one picture: the
        linear part of it.
        """
        blocks = [block for block in self.blocks if isinstance(block, MixerBlock)]
        return [block.places.down.weight @ block.places.up.weight for block in blocks]


class Mixed(nn.Module):
    """norm(GELU(convolution(x))). The bias stands before the GELU, so the norm does not take it away."""

    def __init__(self, convolution: Convolution) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, BatchNorm(convolution.out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(gelu(self.convolution(x)))


class ConvMixerBlock(nn.Module):
    """(B, D, H, W) -> (B, D, H, W)."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = Mixed(Convolution(width, width, kernel, groups=width, bias=True))
        self.pointwise = Mixed(Convolution(width, width, 1, bias=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(x + self.depthwise(x))


class ConvMixer(Convolutional):
    """Pictures -> a grid of patches, as fine at the end as at the beginning."""

    def __init__(self, config: ConvMixerConfig, picture_format: PictureFormat) -> None:
        super().__init__(picture_format)
        self.config, self.width = config, config.width
        self.patches, self.norm = PatchEmbedding(picture_format, config.patch, config.width), BatchNorm(config.width)
        self.grid = self.patches.grid
        self.blocks = nn.ModuleList(ConvMixerBlock(config.width, config.kernel) for _ in range(config.layers))

    def features(self, pixels: Tensor) -> Tensor:
        patches = gelu(self.patches(pixels))  # (B, P, D)
        x = self.norm(patches.mT.unflatten(-1, self.grid))  # (B, D, rows, columns), with channels last
        for block in self.blocks:
            x = block(x)
        return x  # (B, D, rows, columns)
