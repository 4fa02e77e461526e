"""Residual networks (He et al. 2016), in the form for small pictures (section 4.2):

    block(x) = ReLU(shortcut(x) + attention(norm(convolution(ReLU(norm(convolution(x)))))))

The first block of every stage but the first has stride 2. The shortcut is x itself, or where the shape changes a 1 x 1
convolution with its norm (section 3.3, option B). Attention, if any, comes before the sum (Hu et al. 2018, figure 3; Woo
et al. 2018, figure 3).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from regard.attention.spatial import make_picture_attention
from regard.blocks.picture_convolution import ConvolutionNorm
from regard.data.pictures.format import PictureFormat
from regard.models.config import ResNetConfig
from regard.models.pictures.convolutional import Convolutional

KERNEL = 3


class ResidualBlock(nn.Module):
    """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int, attention: str) -> None:
        super().__init__()
        self.first = ConvolutionNorm(inputs, outputs, KERNEL, stride=stride)
        self.second = ConvolutionNorm(outputs, outputs, KERNEL)
        self.attention = make_picture_attention(attention, outputs)
        changes = stride > 1 or inputs != outputs
        self.shortcut = ConvolutionNorm(inputs, outputs, 1, stride=stride) if changes else None
        # A block begins as its shortcut, so that a deep network begins as a shallow one (Goyal et al. 2017, section 5.1).
        nn.init.zeros_(self.second.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu_())  # the norm's gradient does not need its output
        if self.attention is not None:
            y = self.attention(y)
        return relu(y + (x if self.shortcut is None else self.shortcut(x)))

    def size_after(self, size: int) -> int:
        return self.second.size_after(self.first.size_after(size))


class ResNet(Convolutional):
    """Pictures -> a grid of the last stage's channels."""

    def __init__(self, config: ResNetConfig, format: PictureFormat) -> None:
        super().__init__(format)
        self.config, self.width = config, config.width
        self.stem = ConvolutionNorm(format.channels, config.channels[0], KERNEL)
        self.stages = nn.ModuleList()
        size, inputs = self.stem.size_after(format.size), config.channels[0]
        for number, outputs in enumerate(config.channels):
            stage = nn.ModuleList()
            for index in range(config.blocks):
                block = ResidualBlock(inputs, outputs, 2 if number > 0 and index == 0 else 1, config.attention)
                size, inputs = block.size_after(size), outputs
                stage.append(block)
            self.stages.append(stage)
        self.grid = (size, size)

    def features(self, pixels: Tensor) -> Tensor:
        x = self.stem(pixels).relu_()
        for stage in self.stages:
            assert isinstance(stage, nn.ModuleList)
            for block in stage:
                x = block(x)
        return x  # (B, D, rows, columns)
