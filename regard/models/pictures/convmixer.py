"""ConvMixer (Trockman & Kolter 2022, "Patches are all you need?", eq. 1 to 3):

z_0  = norm(GELU(patches(x)))                        a convolution whose stride is its kernel
z'_l = norm(GELU(depthwise(z_{l-1}))) + z_{l-1}      mixes places, each channel by itself
z_l  = norm(GELU(pointwise(z'_l)))                   mixes channels, each place by itself
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.blocks.batch_norm import BatchNorm
from regard.blocks.picture_convolution import Convolution
from regard.data.pictures.format import PictureFormat
from regard.embed.patches import PatchEmbedding
from regard.models.config import ConvMixerConfig
from regard.models.pictures.convolutional import Convolutional


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

    def __init__(self, config: ConvMixerConfig, format: PictureFormat) -> None:
        super().__init__(format)
        self.config, self.width = config, config.width
        self.patches, self.norm = PatchEmbedding(format, config.patch, config.width), BatchNorm(config.width)
        self.grid = self.patches.grid
        self.blocks = nn.ModuleList(ConvMixerBlock(config.width, config.kernel) for _ in range(config.layers))

    def features(self, pixels: Tensor) -> Tensor:
        patches = gelu(self.patches(pixels))  # (B, P, D)
        x = self.norm(patches.mT.unflatten(-1, self.grid))  # (B, D, rows, columns), with channels last
        for block in self.blocks:
            x = block(x)
        return x  # (B, D, rows, columns)
