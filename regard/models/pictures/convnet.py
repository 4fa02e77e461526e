"""A plain convolutional network (after Simonyan & Zisserman 2015): stages of small convolutions, halved in between.

stage: (convolution -> batch norm -> ReLU) x layers -> attention, if any;    between stages: the maximum of each 2 x 2
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from regard.attention.spatial import make_picture_attention
from regard.blocks.picture_convolution import ConvolutionNorm
from regard.blocks.sizes import output_size
from regard.data.pictures.format import PictureFormat
from regard.models.config import ConvNetConfig
from regard.models.pictures.convolutional import Convolutional

SMALLEST = 2  # rows; a picture that would get smaller is not halved


class Stage(nn.Module):
    """(B, inputs, H, W) -> (B, outputs, H', W'), halved first if `pool` is 2."""

    def __init__(self, inputs: int, outputs: int, config: ConvNetConfig, pool: int) -> None:
        super().__init__()
        self.pool = pool
        widths = [inputs, *[outputs] * config.layers]
        self.layers = nn.ModuleList(ConvolutionNorm(before, after, config.kernel) for before, after in pairwise(widths))
        self.attention = make_picture_attention(config.attention, outputs)

    def forward(self, x: Tensor) -> Tensor:
        if self.pool > 1:
            x = max_pool2d(x, self.pool)
        for layer in self.layers:
            x = layer(x).relu_()  # the norm's gradient does not need its output
        return x if self.attention is None else self.attention(x)


class ConvNet(Convolutional):
    """Pictures -> a grid of the last stage's channels."""

    def __init__(self, config: ConvNetConfig, format: PictureFormat) -> None:
        super().__init__(format)
        self.config, self.width = config, config.width
        size, inputs = format.size, int(format.channels)
        self.stages = nn.ModuleList()
        for number, outputs in enumerate(config.channels):
            pool = 2 if number > 0 and size // 2 >= SMALLEST else 1
            stage = Stage(inputs, outputs, config, pool)
            size = output_size(size, pool, pool, what="max-pooling")
            for layer in stage.layers:
                assert isinstance(layer, ConvolutionNorm)
                size = layer.size_after(size)
            self.stages.append(stage)
            inputs = outputs
        self.grid = (size, size)

    def features(self, pixels: Tensor) -> Tensor:
        for stage in self.stages:
            pixels = stage(pixels)
        return pixels  # (B, D, rows, columns)
