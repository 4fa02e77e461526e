"""Feature maps and receptive fields against plain convolutions and gradients, and the ConvNet's windows against torch's."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_verify_pictures import make as make_seeing
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d, pad

from regard.blocks.convolution import Convolution, ReceptiveField, Window, output_size
from regard.blocks.norm import BatchNorm
from regard.data.pictures.config import PictureFormat
from regard.errors import RegardError, UsageError
from regard.inspect.features import by_formula, feature_maps, pixel_gradient, reached
from regard.models.config import ConvNetConfig, ResNetConfig
from regard.models.configs.pictures import SMALL
from regard.models.pictures.classifier import PictureClassifier
from regard.models.pictures.convolutional import ConvNet, ResNet
from regard.models.summary import summary
from regard.tasks.classify_pictures.predictor import PictureLabeller
from regard.tasks.see import features_of

SIZE = 17
FORMAT = PictureFormat(size=SIZE)
CONVNETS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "average": {"pooling": "average"},
    "stride": {"stride": 2, "pooling": "none"},
    "no padding": {"padding": 0, "layers": 1},
    "more padding": {"padding": 2},
    "dilation": {"dilation": 2},
    "even kernel": {"kernel": 4},
    "even kernel, dilation": {"kernel": 2, "dilation": 3},
    "one by one": {"kernel": 1, "stride": 2, "padding": 1, "pooling": "average"},
    "all": {"kernel": 2, "stride": 2, "padding": 3, "dilation": 3, "pooling": "average", "layers": 1},
}


def convnet(**more: Any) -> ConvNet:
    torch.manual_seed(5)
    model = ConvNet(ConvNetConfig(**{"channels": (5, 7), "layers": 2, **more}), FORMAT).eval()
    for module in model.modules():
        if isinstance(module, BatchNorm):
            nn.init.normal_(module.weight, mean=1.0, std=0.3)
            nn.init.normal_(module.bias, std=0.3)
            module.mean.normal_(std=0.2)
            module.variance.uniform_(0.5, 1.5)
    return model


def plain(model: ConvNet, x: Tensor) -> list[Tensor]:
    """Each layer by torch's own functions, written out from the configuration."""
    config, found = model.config, []
    reach = config.dilation * (config.kernel - 1)
    for number, stage in enumerate(model.stages):
        if number and config.pooling != "none":
            x = max_pool2d(x, 2) if config.pooling == "max" else avg_pool2d(x, 2)
        for place, layer in enumerate(stage.layers):  # type: ignore[arg-type]
            zeros = (reach // 2, reach - reach // 2) if config.padding == "same" else (config.padding,) * 2
            y = pad(x, (*zeros, *zeros))
            y = conv2d(y, layer.convolution.weight, stride=1 if place else config.stride, dilation=config.dilation)
            norm = layer.norm
            y = (y - norm.mean[:, None, None]) / (norm.variance[:, None, None] + norm.epsilon).sqrt()
            x = (y * norm.weight[:, None, None] + norm.bias[:, None, None]).clamp(min=0)
            found.append(x)
    return found


@pytest.mark.parametrize("name", CONVNETS)
def test_a_convnet_is_its_windows_one_after_another(name: str) -> None:
    model, x = convnet(**CONVNETS[name]), torch.randn(3, 3, SIZE, SIZE)
    with torch.no_grad():
        ours, expected = [each.values for each in model.feature_maps(x)], plain(model, x)
        assert len(ours) == len(expected)
        for mine, theirs in zip(ours, expected, strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)
        assert torch.allclose(model.features(x), expected[-1], atol=1e-5)
    assert model.grid == tuple(expected[-1].shape[-2:])
    assert model(x).places.shape == (3, model.grid[0] * model.grid[1], 7)


def test_one_layer_is_torchs_convolution() -> None:
    for kernel, stride, padding, dilation in ((3, 2, 1, 1), (2, 1, 0, 3), (5, 3, 2, 2), (1, 2, 0, 1), (1, 3, 2, 1)):
        torch.manual_seed(kernel)
        ours = Convolution(3, 5, kernel, stride=stride, padding=padding, dilation=dilation, bias=True)
        theirs = nn.Conv2d(3, 5, kernel, stride, padding, dilation)
        theirs.load_state_dict(ours.state_dict())
        x = torch.randn(2, 3, 13, 13)
        assert torch.allclose(ours(x), theirs(x), atol=1e-6)
        assert ours.size_after(13) == theirs(x).size(-1)


def test_the_default_is_as_it_was() -> None:
    """Old configurations name none of the new keys."""
    old = ConvNetConfig.model_validate({"kind": "convnet", "channels": (5, 7), "layers": 2, "kernel": 3})
    assert (old.stride, old.padding, old.dilation, old.pooling) == (1, "same", 1, "max")
    assert SMALL.padding == "same"
    assert not any("pool" in name for name in convnet().state_dict())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"padding": 0, "kernel": 9},
            "stage 0, convolution 1: ⌊(9 + 2·0 − 9)/1⌋ + 1 = 1",
        ),
        (
            {"padding": 0, "kernel": 11},
            "stage 0, convolution 1: ⌊(7 + 2·0 − 11)/1⌋ + 1 = −3: a 11 x 11 kernel does not fit a picture of 7 x 7; use a "
            "smaller kernel, padding of 2 or more, or a larger picture",
        ),
        (
            {"padding": 0, "kernel": 5, "dilation": 4},
            "stage 0, convolution 1: ⌊(1 + 2·0 − 4·(5 − 1) − 1)/1⌋ + 1 = −15: a 5 x 5 kernel with dilation 4 reaches over "
            "17 x 17 and does not fit a picture of 1 x 1",
        ),
    ],
)
def test_a_kernel_that_does_not_fit_is_told_with_both_numbers(settings: dict[str, Any], message: str) -> None:
    if message.endswith("= 1"):
        with pytest.raises(RegardError, match=r"stage 1, convolution 0: .* does not fit a picture of 1 x 1"):
            convnet(**settings)
        assert output_size(9, 9) == 1
        return
    with pytest.raises(RegardError) as error:
        convnet(**settings)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "settings", [{"stride": 0}, {"padding": -1}, {"padding": "valid"}, {"dilation": 0}, {"pooling": "min"}]
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        ConvNetConfig(**settings)


def test_the_summary_tells_each_window() -> None:
    config = ConvNetConfig(channels=(5, 7), layers=1, kernel=2, stride=2, padding=3, dilation=3, pooling="average")
    rows = {
        layer.path: layer
        for layer in summary(PictureClassifier(config, FORMAT, 3), torch.randn(2, 3, SIZE, SIZE)).layers
    }
    first = rows["encoder.stages.0.layers.0.convolution"]
    assert first.does == "Convolution 2 x 2, stride 2, padding 3, dilation 3"
    assert first.shape == (2, 5, 10, 10)  # ⌊(17 + 6 - 3 - 1) / 2⌋ + 1
    assert rows["encoder.stages.1.pooling"].does == "AvgPool2d 2 x 2, stride 2"
    assert rows["encoder.stages.1.pooling"].shape == (2, 5, 5, 5)


# --- Receptive fields


def test_the_numbers_of_the_lectures() -> None:
    """Two 3 x 3 convolutions see 5 pixels, three see 7 (Simonyan & Zisserman 2015, section 2.3); VGG-16's last pool 212."""
    three = Window(3, 1, 1)
    assert ReceptiveField().after(three, three) == ReceptiveField(5, 1, -2)
    assert ReceptiveField().after(three, three, three).size == 7
    vgg = [part for count in (2, 2, 3, 3, 3) for part in (*[three] * count, Window(2, 2))]
    assert ReceptiveField().after(*vgg).size == 212
    assert ReceptiveField().after(*vgg).jump == 32


def looped(windows: list[Window], place: int, side: int) -> set[int]:
    """The pixels behind a place, tap by tap from the last window to the first."""
    sizes = [side]
    for each in windows:
        sizes.append(output_size(sizes[-1], each.kernel, each.stride, each.padding, each.dilation))
    places = {place}
    for each, size in zip(reversed(windows), reversed(sizes[:-1]), strict=True):
        taps = {each.stride * one - each.padding + each.dilation * tap for one in places for tap in range(each.kernel)}
        places = {one for one in taps if 0 <= one < size}
    return places


@pytest.mark.parametrize("seed", range(8))
def test_the_formula_is_the_hull_of_all_taps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows = [
        Window(*(int(rng.integers(low, high)) for low, high in ((1, 4), (1, 3), (0, 2), (1, 3)))) for _ in range(3)
    ]
    side = 29
    field, last = ReceptiveField().after(*windows), side
    for each in windows:
        last = output_size(last, each.kernel, each.stride, each.padding, each.dilation)
    for place in range(last):
        seen, box = looped(windows, place, side), field.pixels(place, side)
        if seen:
            assert set(box) >= seen
            inside = field.first + place * field.jump >= 0 and field.first + place * field.jump + field.size <= side
            if inside:  # else the outermost taps may lie on padding
                assert (box.start, box.stop) == (min(seen), max(seen) + 1)


@pytest.mark.parametrize("name", CONVNETS)
def test_what_is_measured_is_the_formula(name: str) -> None:
    model, pixels = convnet(**CONVNETS[name]), torch.randn(1, 3, SIZE, SIZE)
    maps = list(model.feature_maps(pixels))
    checked = 0
    for layer, each in enumerate(maps):
        rows, columns = each.values.shape[-2:]
        for place in ((each, columns - 1 - each) for each in range(rows)):
            assert each.field is not None
            box = by_formula(each.field, place, SIZE)
            if not _whole(each.field, place):  # holes of dilation, or taps on padding alone
                continue
            checked += 1
            assert reached(model, pixels, layer, place) == box
    assert checked >= 2


def _whole(field: ReceptiveField, place: tuple[int, int]) -> bool:
    return all(
        field.first + each * field.jump >= 0 and field.first + each * field.jump + field.size <= SIZE for each in place
    )


@pytest.mark.parametrize("kind", ["convnet", "resnet"])
def test_default_networks_see_what_the_formula_says_also_at_their_borders(kind: str) -> None:
    model: Any = (
        convnet(layers=1) if kind == "convnet" else ResNet(ResNetConfig(channels=(5, 7), blocks=1), FORMAT).eval()
    )
    pixels = torch.randn(1, 3, SIZE, SIZE)
    for layer, each in enumerate(model.feature_maps(pixels)):
        rows, columns = each.values.shape[-2:]
        for place in ((0, 0), (rows - 1, columns - 1), (rows // 2, 1)):
            assert reached(model, pixels, layer, place) == by_formula(each.field, place, SIZE)


def positive(model: ConvNet) -> ConvNet:
    """The same with weights above zero and norms that change nothing: every pixel that can move a place does."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data.abs_().add_(0.01)
        elif isinstance(module, BatchNorm):
            for tensor, value in (
                (module.weight.data, 1.0),
                (module.bias.data, 0.0),
                (module.mean, 0.0),
                (module.variance, 1.0),
            ):
                tensor.fill_(value)
    return model


@pytest.mark.parametrize("name", ["average", "stride", "no padding", "more padding", "even kernel"])
def test_the_gradient_of_a_place_is_not_zero_just_where_the_formula_says(name: str) -> None:
    """With average pooling and positive weights and pixels nothing is shut; torch's gradient by hand."""
    model = positive(convnet(**{"pooling": "average", **CONVNETS[name]})).double()
    pixels = torch.rand(1, 3, SIZE, SIZE, dtype=torch.float64) + 0.1
    maps = list(model.feature_maps(pixels))
    place = tuple(side // 2 for side in maps[-1].values.shape[-2:])
    asked = pixels.clone().requires_grad_()
    list(model.feature_maps(asked))[-1].values[0, :, place[0], place[1]].sum().backward()
    assert asked.grad is not None
    expected = asked.grad[0].abs().sum(dim=0)
    found = pixel_gradient(model, pixels, len(maps) - 1, (place[0], place[1]))
    assert found == pytest.approx(expected.numpy(), abs=1e-12)
    left, top, right, bottom = map(int, by_formula(maps[-1].field, (place[0], place[1]), SIZE))
    inside = np.zeros((SIZE, SIZE), dtype=bool)
    inside[top:bottom, left:right] = True
    assert ((found > 0) == inside).all()


def test_a_maximum_lets_one_pixel_through_and_the_gradient_stays_within() -> None:
    model, pixels = convnet(layers=1, kernel=1), torch.randn(1, 3, SIZE, SIZE)
    found = pixel_gradient(model, pixels, 1, (3, 4))
    left, top, right, bottom = map(int, reached(model, pixels, 1, (3, 4)))
    assert (left, top, right, bottom) == (8, 6, 10, 8)
    assert not np.delete(np.delete(found, [6, 7], 0), [8, 9], 1).any()


def test_attention_over_channels_sees_everything() -> None:
    model, pixels = convnet(attention="se"), torch.randn(1, 3, SIZE, SIZE)
    names = [each.name for each in model.feature_maps(pixels)]
    assert names[2] == "stage 0, attention"
    fields = [each.field for each in model.feature_maps(pixels)]
    assert fields[1] is not None and fields[2:] == [None] * 4
    assert reached(model, pixels, 2, (0, 0)) == (0, 0, SIZE, SIZE) == by_formula(None, (0, 0), SIZE)


# --- As a person sees them


@pytest.fixture(scope="module")
def labeller() -> PictureLabeller:
    return PictureLabeller(make_seeing("classify-pictures", "convnet", {"channels": (4, 9), "layers": 2}))


def test_the_strongest_channels_of_a_picture(labeller: PictureLabeller) -> None:
    picture = np.random.default_rng(3).integers(0, 255, (40, 31, 3)).astype(np.uint8)
    found = features_of(labeller, picture)
    assert [each.name for each in found.layers] == [f"stage {s}, convolution {c}" for s in (0, 1) for c in (0, 1)]
    last = found.layers[-1]
    from regard.tasks.see import as_pixels, see

    seen = see(picture, labeller.format)
    with torch.no_grad():
        pixels = as_pixels([seen], labeller.format, labeller.device)
        values = list(labeller.model.encoder.feature_maps(pixels))[-1].values[0].double().numpy()  # type: ignore[operator]
    means = [float(channel.mean()) for channel in values]
    assert list(last.chosen) == sorted(range(9), key=lambda channel: -means[channel])[:8]
    assert last.maps[0] == pytest.approx(values[last.chosen[0]])
    assert last.channels == 9
    assert (found.picture == seen.shown).all()
    assert all(a.field < b.field for a, b in pairwise(found.layers))  # type: ignore[operator]


def test_places_and_layers(labeller: PictureLabeller, tmp_path: Path) -> None:
    picture = np.zeros((20, 20, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "dark.png")
    found = features_of(labeller, tmp_path / "dark.png", layer=0, place=(2, 3))
    assert (found.field.layer, found.field.place, found.title) == (0, (2, 3), "convnet: dark.png")
    assert found.field.formula == (2, 1, 5, 4) == found.field.reached
    with pytest.raises(UsageError, match="no place 99,0 of stage 1, convolution 1, which has"):
        features_of(labeller, picture, place=(99, 0))
    with pytest.raises(UsageError, match="no layer 4; there are 4, numbered from 0 to 3"):
        features_of(labeller, picture, layer=4)


def test_every_medium_shows_features(labeller: PictureLabeller, tmp_path: Path) -> None:
    shown = features_of(labeller, np.random.default_rng(5).integers(0, 255, (32, 32, 3)).astype(np.uint8))
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!DOCTYPE")):
        assert shown.save(tmp_path / f"maps{suffix}").read_bytes().startswith(start)
    data = json.loads(shown.save(tmp_path / "maps.json").read_text())
    assert data["field"]["formula"] == list(shown.field.formula)
    assert np.array(data["layers"][0]["maps"]) == pytest.approx(shown.layers[0].maps, rel=1e-4)
    for color in (False, True):
        text = shown.text(80, color)
        assert "sees: pixels a side" in text and "by formula: rows" in text


def test_a_captioner_and_an_answerer_see_with_convolutions_too() -> None:
    eyes = {"kind": "convnet", "channels": (4, 6), "layers": 1}
    from regard.tasks.caption.predictor import Captioner

    found = features_of(
        Captioner(make_seeing("caption", "show-and-tell", {"width": 8, "hidden": 10, "encoder": eyes})),
        np.zeros((20, 20, 3), dtype=np.uint8),
    )
    assert len(found.layers) == 2


def test_a_vit_has_no_feature_maps() -> None:
    vit = PictureLabeller(
        make_seeing("classify-pictures", "vit", {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8})
    )
    with pytest.raises(UsageError, match="this vit does not see with convolutions"):
        features_of(vit, np.zeros((20, 20, 3), dtype=np.uint8))


def test_pixels_are_left_as_they_are() -> None:
    model, pixels = convnet(), torch.randn(1, 3, SIZE, SIZE)
    before = pixels.clone()
    feature_maps(model, pixels, np.zeros((SIZE, SIZE, 3), dtype=np.uint8), "t")
    assert torch.equal(pixels, before) and all(p.grad is None for p in model.parameters())
