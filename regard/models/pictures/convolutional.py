"""Convolutional networks that see: a plain one, ResNet (He et al. 2016), EfficientNet (Tan & Le 2019)."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu, relu6

from regard.attention.spatial import make_picture_attention
from regard.blocks.convolution import ConvolutionNorm, ReceptiveField, Window, channels_last, output_size
from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError
from regard.models.config import ConvNetConfig, ResNetConfig
from regard.models.configs.pictures import EfficientNetConfig
from regard.models.pictures.encoder import FeatureMap, PictureEncoder, View
from regard.tensors import read_tensors


class Convolutional(PictureEncoder):
    """A family adds `features`; a picture's vector is the mean over its places."""

    def __init__(self, picture_format: PictureFormat) -> None:
        super().__init__()
        self.format = picture_format

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
                f"{' x '.join(map(str, wanted))}",
                "fit them to its format first",
            )


SMALLEST = 2  # rows; a picture that would get smaller is not halved
HALF = Window(2, 2)
POOLINGS: dict[str, type[nn.MaxPool2d] | type[nn.AvgPool2d]] = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}


class Stage(nn.Module):
    """(B, inputs, H, W) -> (B, outputs, H', W'), halved first if `halved`; the first convolution has the stride."""

    def __init__(self, inputs: int, outputs: int, config: ConvNetConfig, *, halved: bool) -> None:
        super().__init__()
        self.pooling = POOLINGS[config.pooling](HALF.kernel, HALF.stride) if halved else None
        padding = None if config.padding == "same" else config.padding
        widths = [inputs, *[outputs] * config.layers]
        self.layers = nn.ModuleList(
            ConvolutionNorm(
                before,
                after,
                config.kernel,
                stride=1 if number else config.stride,
                padding=padding,
                dilation=config.dilation,
            )
            for number, (before, after) in enumerate(pairwise(widths))
        )
        self.attention = make_picture_attention(config.attention, outputs)

    def maps(self, x: Tensor) -> Iterator[Tensor]:
        """The output of each convolution, and at last of the attention, if there is one."""
        if self.pooling is not None:
            x = self.pooling(x)
        for layer in self.layers:
            x = layer(x).relu_()  # the norm's gradient does not need its output
            yield x
        if self.attention is not None:
            yield self.attention(x)

    def forward(self, x: Tensor) -> Tensor:
        return deque(self.maps(x), maxlen=1).pop()  # the last; no other is kept

    def windows(self) -> list[Window]:
        """The window of each convolution over a row; pooling is the first one's, before it."""
        return [layer.window for layer in self.layers]  # type: ignore[misc]

    def size_after(self, size: int, name: str) -> int:
        """Rows of what comes out of pictures of `size` rows; an error says which convolution of `name` does not fit."""
        if self.pooling is not None:
            size = output_size(size, HALF.kernel, HALF.stride, what=f"{name}, pooling")
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, ConvolutionNorm)
            size = layer.size_after(size, f"{name}, convolution {number}")
        return size


class ConvNet(Convolutional):
    """Pictures -> a grid of the last stage's channels."""

    def __init__(self, config: ConvNetConfig, picture_format: PictureFormat) -> None:
        super().__init__(picture_format)
        self.config, self.width = config, config.width
        size, inputs = picture_format.size, int(picture_format.channels)
        self.stages = nn.ModuleList()
        for number, outputs in enumerate(config.channels):
            halved = config.pooling != "none" and number > 0 and size // 2 >= SMALLEST
            stage = Stage(inputs, outputs, config, halved=halved)
            size, inputs = stage.size_after(size, f"stage {number}"), outputs
            self.stages.append(stage)
        self.grid = (size, size)

    def features(self, pixels: Tensor) -> Tensor:
        for stage in self.stages:
            pixels = stage(pixels)
        return pixels  # (B, D, rows, columns)

    def feature_maps(self, pixels: Tensor) -> Iterator[FeatureMap]:
        """The output of each convolution and each attention, with its receptive field."""
        field: ReceptiveField | None = ReceptiveField()
        for number, stage in enumerate(self.stages):
            assert isinstance(stage, Stage)
            field = field if field is None or stage.pooling is None else field.after(HALF)
            windows = stage.windows()
            for place, out in enumerate(stage.maps(pixels)):
                attends, pixels = place == len(windows), out
                # Attention lets through by what it saw of the whole picture, so that nothing behind it is local.
                field = None if field is None or attends else field.after(windows[place])
                yield FeatureMap(f"stage {number}, {'attention' if attends else f'convolution {place}'}", out, field)


KERNEL = 3


class ResidualBlock(nn.Module):
    """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride); `residual` False leaves the shortcut out."""

    def __init__(self, inputs: int, outputs: int, stride: int, attention: str, *, residual: bool = True) -> None:
        super().__init__()
        self.first = ConvolutionNorm(inputs, outputs, KERNEL, stride=stride)
        self.second = ConvolutionNorm(outputs, outputs, KERNEL)
        self.attention = make_picture_attention(attention, outputs)
        changes = stride > 1 or inputs != outputs
        self.residual = residual
        self.shortcut = ConvolutionNorm(inputs, outputs, 1, stride=stride) if changes and residual else None
        if residual:
            # A block begins as its shortcut, so that a deep network begins as a shallow one (Goyal et al. 2017, section 5.1).
            nn.init.zeros_(self.second.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu_())  # the norm's gradient does not need its output
        if self.attention is not None:
            y = self.attention(y)
        if not self.residual:
            return relu(y)
        return relu(y + (x if self.shortcut is None else self.shortcut(x)))

    def size_after(self, size: int) -> int:
        return self.second.size_after(self.first.size_after(size))

    def field_after(self, field: ReceptiveField | None) -> ReceptiveField | None:
        """The receptive field behind the block: that of its two convolutions, for the shortcut around them sees less."""
        return (
            None if field is None or self.attention is not None else field.after(self.first.window, self.second.window)
        )


class ResNet(Convolutional):
    """Pictures -> a grid of the last stage's channels."""

    def __init__(self, config: ResNetConfig, picture_format: PictureFormat) -> None:
        super().__init__(picture_format)
        self.config, self.width = config, config.width
        self.stem = ConvolutionNorm(picture_format.channels, config.channels[0], KERNEL)
        self.stages = nn.ModuleList()
        size, inputs = self.stem.size_after(picture_format.size), config.channels[0]
        for number, outputs in enumerate(config.channels):
            stage = nn.ModuleList()
            for index in range(config.blocks):
                stride = 2 if number > 0 and index == 0 else 1
                block = ResidualBlock(inputs, outputs, stride, config.attention, residual=config.residual)
                size, inputs = block.size_after(size), outputs
                stage.append(block)
            self.stages.append(stage)
        self.grid = (size, size)

    def features(self, pixels: Tensor) -> Tensor:
        return deque(self.feature_maps(pixels), maxlen=1).pop().values  # (B, D, rows, columns)

    def feature_maps(self, pixels: Tensor) -> Iterator[FeatureMap]:
        """The output of the stem and of each block, with its receptive field."""
        x, field = self.stem(pixels).relu_(), cast("ReceptiveField | None", ReceptiveField().after(self.stem.window))
        yield FeatureMap("stem", x, field)
        for number, stage in enumerate(self.stages):
            assert isinstance(stage, nn.ModuleList)
            for index, block in enumerate(stage):
                assert isinstance(block, ResidualBlock)
                x, field = block(x), block.field_after(field)
                yield FeatureMap(f"stage {number}, block {index}", x, field)


# Of each stage: how many blocks, kernel, stride of the first, how many times wider inside, channels (table 1, stages 2 to 8).
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280
DEPTHS = {"block-5": 5, "block-7": 7, "head": 7}  # how many stages are computed
MEAN, DEVIATION = 127 / 255, 128 / 255  # its own pixels are (byte - 127) / 128


class EfficientNetLite0(PictureEncoder):
    """Frozen. It takes pictures of any format, or features (B, P, K) that it computed of them before."""

    scale: Tensor
    shift: Tensor

    def __init__(self, config: EfficientNetConfig, picture_format: PictureFormat) -> None:
        super().__init__()
        if picture_format.channels != 3:
            raise RegardError(
                "EfficientNet-Lite0 sees red, green and blue, not grey", "read pictures with channels = 3"
            )
        self.config, self.width = config, config.width
        self.stem = Convolution(3, STEM, kernel=3, stride=2)
        blocks, channels, stride = [], STEM, 2
        for number, kernel, first, wider, out in STAGES[: DEPTHS[config.depth]]:
            for step in [first] + [1] * (number - 1):
                blocks.append(Bottleneck(channels, out, wider=wider, kernel=kernel, stride=step))
                channels, stride = out, stride * step
        self.blocks = nn.ModuleList(blocks)
        self.head = Convolution(channels, HEAD, kernel=1) if config.depth == "head" else None
        self.grid = (-(-picture_format.size // stride), -(-picture_format.size // stride))
        mean, deviation = (
            torch.tensor(each, dtype=torch.float64) for each in (picture_format.mean, picture_format.deviation)
        )
        self.register_buffer("scale", (deviation / DEVIATION).view(-1, 1, 1), persistent=False)
        self.register_buffer("shift", ((mean - MEAN) / DEVIATION).view(-1, 1, 1), persistent=False)
        if config.weights:
            _load(self, Path(config.weights).expanduser())
        self.requires_grad_(False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # nearly twice as fast on a CPU

    def forward(self, pixels: Tensor) -> View:
        """pixels (B, 3, height, width), or features (B, P, K), which are given back as they are."""
        features = pixels if pixels.dim() == 3 else self.features(pixels)
        if features.size(-1) != self.width:
            raise RegardError(
                f"features {features.size(-1)} wide do not come from EfficientNet-Lite0 at depth {self.config.depth}, whose "
                f"are {self.width} wide",
                "compute them again",
            )
        return View(features.mean(dim=1), features)

    def features(self, pixels: Tensor) -> Tensor:
        """(B, 3, height, width) -> (B, P, K): a vector for each place of the grid, row by row."""
        scale, shift = self.scale.to(pixels.dtype), self.shift.to(pixels.dtype)
        x = torch.addcmul(shift, pixels, scale).contiguous(memory_format=torch.channels_last)
        x = relu6(self.stem(x), inplace=True)
        for block in self.blocks:
            x = block(x)
        if self.head is not None:
            x = relu6(self.head(x), inplace=True)
        return x.permute(0, 2, 3, 1).flatten(1, 2)  # (B, P, K)


class Bottleneck(nn.Module):
    """1 x 1 to more channels, k x k on each channel by itself, 1 x 1 to few; added to x where the shape is the same."""

    def __init__(self, channels: int, out: int, *, wider: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = channels * wider
        self.expand = Convolution(channels, inner, kernel=1) if wider > 1 else None
        self.depthwise = Convolution(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.project = Convolution(inner, out, kernel=1)
        self.residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else relu6(self.expand(x), inplace=True)
        y = self.project(relu6(self.depthwise(y), inplace=True))
        return y.add_(x) if self.residual else y


class Convolution(nn.Module):
    """A convolution with bias, padded as TensorFlow's "same": see `convolve`."""

    def __init__(self, channels: int, out: int, *, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.stride, self.groups = stride, groups
        self.weight = nn.Parameter(torch.empty(out, channels // groups, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return convolve(x, self.weight, self.bias, self.stride, self.groups)


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int, groups: int) -> Tensor:
    """A convolution with ⌈size / stride⌉ results a side, where an odd zero of the padding goes behind, not before.

    torch pads both sides alike. With one zero tap before the others and one more zero before the picture, results are
    the same, and the picture need not be copied.
    """
    size, kernel = x.size(-1), weight.size(-1)
    zeros = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    if zeros % 2:
        weight = pad(weight, (1, 0, 1, 0))
    return conv2d(x, weight, bias, stride, (zeros + 1) // 2, groups=groups)


def folded(
    weight: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Weight and bias of one convolution that does what a convolution without bias and the batch norm after it do.

    γ (W x - μ) / √(σ² + ε) + β  =  (γ W / √(σ² + ε)) x + (β - γ μ / √(σ² + ε))
    """
    gain = scale / (variance + epsilon).sqrt()  # (channels,)
    return weight * gain[:, None, None, None], shift - mean * gain


@torch.no_grad()
def _load(model: nn.Module, path: Path) -> None:
    """Put the weights of a file into a model, which may have fewer layers than the file."""
    if not path.is_file():
        raise RegardError(
            f"there is no {path} with the weights of EfficientNet-Lite0",
            f"make it once with python tools/convert_efficientnet.py {path}",
        )
    tensors = read_tensors(path)
    for name, parameter in model.named_parameters():
        if name not in tensors or tensors[name].shape != parameter.shape:
            found = f"has {name} as {tuple(tensors[name].shape)}" if name in tensors else f"has no {name}"
            raise RegardError(
                f"{path} {found}, and EfficientNet-Lite0 needs it as {tuple(parameter.shape)}",
                "make the file again with python tools/convert_efficientnet.py",
            )
        parameter.copy_(tensors[name])
