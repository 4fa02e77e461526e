"""MLP-Mixer (Tolstikhin et al. 2021, eq. 1): networks of two layers mix places, then channels; no attention.

U = X + W2 GELU(W1 norm(X))          over places: every channel is a vector of P numbers, all channels share the weights
Y = U + (W4 GELU(W3 norm(U)ᵀ))ᵀ      over channels: every place is a vector of D numbers, all places share the weights
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.blocks import Around, FeedForward, initialise
from regard.data.pictures.format import PictureFormat
from regard.embed.patches import PatchEmbedding
from regard.models.config import MixerConfig
from regard.models.pictures.encoder import PictureEncoder, View

EPSILON = 1e-6  # of the norms, as in the authors' code


class MixerBlock(nn.Module):
    """(B, P, D) -> (B, P, D)."""

    def __init__(self, config: MixerConfig, places: int) -> None:
        super().__init__()
        width = config.width
        self.places = FeedForward(places, config.places, activation="gelu")
        self.channels = FeedForward(width, config.feed_forward, activation="gelu")
        self.around_places = Around(nn.LayerNorm(width, eps=EPSILON), config.dropout, order="pre")
        self.around_channels = Around(nn.LayerNorm(width, eps=EPSILON), config.dropout, order="pre")

    def forward(self, x: Tensor) -> Tensor:
        x = self.around_places(x, lambda y: self.places(y.mT).mT)  # over (B, D, P)
        return self.around_channels(x, self.channels)


class Mixer(PictureEncoder):
    """Pictures -> patches, as many at the end as at the beginning; their mean is the picture's vector."""

    def __init__(self, config: MixerConfig, format: PictureFormat) -> None:
        super().__init__()
        self.config, self.format, self.width = config, format, config.width
        self.patches = PatchEmbedding(format, config.patch, config.width)
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
        """Of each block the matrix W2 W1 (P, P): row i tells how much of each place goes into place i.

        The block has a GELU between the two, so this is what its weights say, not what it does to one picture: the
        linear part of it.
        """
        blocks = [block for block in self.blocks if isinstance(block, MixerBlock)]
        return [block.places.down.weight @ block.places.up.weight for block in blocks]
