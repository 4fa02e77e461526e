"""The table of a model's layers: shapes, parameters and multiply-adds, counted by hand."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from regard.data.batch import PairBatch
from regard.data.pictures.batch import PictureBatch
from regard.data.pictures.config import PictureFormat
from regard.models.config import ConvNetConfig, MixerConfig, TransformerConfig
from regard.models.pictures.classifier import PictureClassifier
from regard.models.pictures.mixer import Mixer
from regard.models.summary import Layer, summary
from regard.models.transformer import Transformer

FORMAT = PictureFormat(size=14)
LABELS = 7


def classifier() -> PictureClassifier:
    return PictureClassifier(ConvNetConfig(channels=(5, 11), layers=1, attention="se"), FORMAT, LABELS)


def test_every_layer_in_the_order_in_which_it_runs() -> None:
    found = summary(classifier(), torch.randn(3, 3, 14, 14))
    pool = "encoder.stages.{}.attention.network"
    assert list(found.layers) == [
        Layer("encoder.stages.0.layers.0.convolution", "Convolution", (3, 5, 14, 14), 5 * 3 * 9, 14 * 14 * 5 * 3 * 9,
              detail="3 x 3, padding 1"),
        Layer("encoder.stages.0.layers.0.norm", "BatchNorm", (3, 5, 14, 14), 2 * 5, 0),
        Layer(f"{pool.format(0)}.down", "Linear", (3, 4), 5 * 4, 5 * 4),
        Layer(f"{pool.format(0)}.up", "Linear", (3, 5), 4 * 5, 4 * 5),
        Layer("encoder.stages.1.pooling", "MaxPool2d", (3, 5, 7, 7), 0, 0, detail="2 x 2, stride 2"),
        Layer("encoder.stages.1.layers.0.convolution", "Convolution", (3, 11, 7, 7), 11 * 5 * 9, 7 * 7 * 11 * 5 * 9,
              detail="3 x 3, padding 1"),
        Layer("encoder.stages.1.layers.0.norm", "BatchNorm", (3, 11, 7, 7), 2 * 11, 0),
        Layer(f"{pool.format(1)}.down", "Linear", (3, 4), 11 * 4, 11 * 4),
        Layer(f"{pool.format(1)}.up", "Linear", (3, 11), 4 * 11, 4 * 11),
        Layer("head", "Linear", (3, LABELS), 11 * LABELS + LABELS, 11 * LABELS),
    ]  # fmt: skip
    assert found.parameters == sum(layer.parameters for layer in found.layers)
    assert found.multiply_adds == 26_460 + 40 + 24_255 + 88 + 77


def test_a_batch_and_its_pixels_are_the_same() -> None:
    model, pixels = classifier(), torch.randn(3, 3, 14, 14)
    assert summary(model, PictureBatch(pixels, torch.tensor([1, 2, 3]))) == summary(model, pixels)
    alone = summary(model, pixels[:1])
    assert alone.multiply_adds == summary(model, pixels).multiply_adds


def test_depthwise_and_strided_convolutions() -> None:
    model = nn.Sequential(nn.Conv2d(6, 6, 5, groups=6, padding=2), nn.Conv2d(6, 4, 3, stride=2, groups=2, bias=False))
    first, second = summary(model, torch.randn(2, 6, 11, 11)).layers
    assert (first.multiply_adds, first.parameters) == (11 * 11 * 6 * 25, 6 * 25 + 6)
    assert (second.multiply_adds, second.parameters) == (5 * 5 * 4 * 3 * 9, 4 * 3 * 9)


def test_places_and_channels_of_a_mixer() -> None:
    model = Mixer(MixerConfig(patch=2, layers=1, width=11, places=17, feed_forward=23), FORMAT)
    found = {layer.path: layer for layer in summary(model, torch.randn(2, 3, 14, 14)).layers}
    assert found["patches"].multiply_adds == 49 * 11 * 12
    assert found["patches"].parameters == 11 * 12 + 11
    assert found["blocks.0.places.up"].multiply_adds == 11 * 49 * 17
    assert found["blocks.0.channels.down"].multiply_adds == 49 * 23 * 11
    assert found["blocks.0.channels.down"].shape == (2, 49, 11)


class Shared(nn.Module):
    """One layer that runs twice, one that shares its weights, one whose weights are used without it, one never used."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(13))
        self.twice, self.tied, self.inside = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.tied.weight = self.twice.weight
        self.idle = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.tied(self.twice(self.twice(x))) @ self.inside.weight


def test_what_is_shared_counts_once_and_what_runs_twice_is_computed_twice() -> None:
    model = Shared()
    found = summary(model, torch.randn(5, 3))
    assert list(found.layers) == [
        Layer("", "Shared", (5, 3), 13 + 9 + 6, 9),  # what its parts do not do by themselves
        Layer("twice", "Linear", (5, 3), 12, 2 * 9, calls=2),
        Layer("tied", "Linear", (5, 3), 3, 9),
    ]
    assert found.parameters == 13 + 12 + 3 + 9 + 6 == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("width", [12, 64])
def test_a_transformer_with_its_attention(width: int) -> None:
    """Sources of 7 tokens, targets of 5: projections, and the products of queries, keys and values."""
    config = TransformerConfig(encoder_layers=1, decoder_layers=1, width=width, heads=4, feed_forward=19, tied="none")
    model = Transformer(config, 23, 29)
    source, target = torch.randint(4, 23, (2, 7)), torch.randint(4, 29, (2, 6))
    found = summary(model, PairBatch(source, torch.tensor([7, 7]), target, torch.tensor([5, 5]), 10))
    by_path: dict[str, int] = {}
    for layer in found.layers:
        owner = (
            layer.path.rsplit(".", 1)[0]
            if layer.path.rsplit(".", 1)[-1] in ("query", "key_value", "out")
            else layer.path
        )
        by_path[owner] = by_path.get(owner, 0) + layer.multiply_adds
    square = width * width
    assert by_path["encoder.0.attention"] == 4 * 7 * square + 2 * 7 * 7 * width
    assert by_path["decoder.0.cross"] == 2 * 5 * square + 2 * 7 * square + 2 * 5 * 7 * width
    assert by_path["encoder.0.feed_forward.up"] == 7 * width * 19
    assert sum(layer.parameters for layer in found.layers) == found.parameters


def test_nothing_of_the_model_changes() -> None:
    model = classifier().train()
    model.head.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    summary(model, torch.randn(3, 3, 14, 14))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.training
    assert model.encoder.training
    assert not model.head.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_fails_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(7, 2)).train()
    with pytest.raises(RuntimeError):
        summary(model, torch.zeros(2, 3))
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_as_data_and_as_text() -> None:
    found = summary(classifier(), torch.randn(3, 3, 14, 14))
    data = json.loads(json.dumps(found.data()))
    assert data["parameters"] == found.parameters
    assert data["multiply_adds"] == found.multiply_adds
    assert data["layers"][0] == {
        "path": "encoder.stages.0.layers.0.convolution", "kind": "Convolution", "shape": [3, 5, 14, 14],
        "parameters": 135, "multiply_adds": 26_460, "calls": 1, "detail": "3 x 3, padding 1",
    }  # fmt: skip
    console = Console(width=100)
    with console.capture() as capture:
        console.print(found)
    for text in (str(found), capture.get()):
        assert "PictureClassifier" in text
        assert "3 x 5 x 14 x 14" in text
        assert "26,460" in text
        assert f"{found.multiply_adds:,}" in text.splitlines()[-1] + text.splitlines()[-2]
