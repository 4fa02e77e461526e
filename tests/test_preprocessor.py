"""How pictures are made to fit a model, in and out of preprocessor_config.json: against transformers' own processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import transformers
from PIL import Image

from regard.data.pictures.config import PictureFormat
from regard.data.pictures.decode import fit_picture
from regard.errors import RegardError
from regard.interop.family import Settings
from regard.interop.vit import RESAMPLE, read_format, write_format

FORMAT = PictureFormat(size=20, fit="squash", mean=(0.3, 0.4, 0.5), deviation=(0.2, 0.25, 0.3))


def photo() -> np.ndarray:
    """Smooth, and wider than high; its middle begins at a whole pixel, whether it is cut out before resizing or after."""
    y, x = np.mgrid[0:40, 0:80] / 80
    waves = [np.sin(5 * x + 3 * y + phase) for phase in range(3)]
    return (127 + 100 * np.stack(waves, axis=-1)).astype(np.uint8)


@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_their_preprocessor_shows_the_same_picture(fit: Any, tmp_path: Path) -> None:
    format = FORMAT.model_copy(update={"fit": fit})
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(write_format(format)))
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    pixels = processor(Image.fromarray(photo()), return_tensors="pt")["pixel_values"][0]  # (3, 20, 20)
    mean, deviation = np.array(format.mean), np.array(format.deviation)
    wanted = (fit_picture(photo(), format) / 255 - mean) / deviation
    difference = np.abs(pixels.permute(1, 2, 0).numpy() - wanted) * deviation * 255  # in bytes
    assert difference.max() < 4 and difference.mean() < 1
    assert read_format(Settings(write_format(format), "x"), size=20, channels=3) == format


@pytest.mark.parametrize("code", range(6))
def test_a_photo_is_resized_as_their_preprocessor_does(code: int, tmp_path: Path) -> None:
    """`resample` once went unread: whatever it said, photos were resized by bicubic curves."""
    values = {**write_format(FORMAT), "resample": code}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
    format = read_format(Settings(values, "x"), size=20, channels=3)
    assert format.resample.upper() == Image.Resampling(code).name and write_format(format) == values
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    noise = np.random.default_rng(3).integers(0, 256, (47, 59, 3), dtype=np.uint8)
    pixels = processor(Image.fromarray(noise), return_tensors="pt")["pixel_values"][0].permute(1, 2, 0).numpy()
    theirs = (pixels * np.array(format.deviation) + np.array(format.mean)) * 255
    assert np.abs(theirs - fit_picture(noise, format)).max() < 0.01
    others = [name for name in RESAMPLE if name != format.resample]
    apart = [np.abs(fit_picture(noise, format.model_copy(update={"resample": name})) - theirs).max() for name in others]
    assert min(apart) > 5  # each way shows


@pytest.mark.parametrize("kind", ["ViTImageProcessor", "CLIPImageProcessor", "DeiTImageProcessor"])
def test_a_way_that_is_not_written_is_that_of_the_processors_class(kind: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": kind}))
    theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil").resample
    found = read_format(Settings({"image_processor_type": kind}, "x"), size=20, channels=3).resample
    assert found.upper() == Image.Resampling(theirs).name
    assert read_format(None, size=20, channels=3).resample == "bilinear"  # a ViT without the file


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"size": {"height": 24, "width": 24}}, "size is .*24.* 20 x 20 pixels"),
        ({"size": {"shortest_edge": 24}, "crop_size": 20, "do_center_crop": True}, "shortest_edge"),
        ({"size": 20, "crop_size": {"height": 16, "width": 16}, "do_center_crop": True}, "crop_size is"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor"),
        ({"do_rescale": False}, "do_rescale is False"),
        ({"do_resize": False}, "do_resize is False"),
        ({"image_mean": [0.5, 0.5]}, "image_mean"),
        ({"resample": 6}, r"resample is 6; Regard has 0 \(nearest\), 1 \(lanczos\)"),
        ({"resample": "bicubic"}, "resample is 'bicubic'; Regard has"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std"),
    ],
)
def test_preprocessors_that_do_not_fit(values: dict[str, Any], words: str) -> None:
    with pytest.raises(RegardError, match=words):
        read_format(Settings(values, "preprocessor_config.json"), size=20, channels=3)


def test_preprocessors_of_other_years() -> None:
    old = read_format(Settings({"size": 20, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}, "x"), size=20, channels=3)
    assert (old.fit, old.deviation) == ("squash", (0.2, 0.2, 0.2))
    clip = {"size": {"shortest_edge": 20}, "crop_size": 20, "do_center_crop": True, "do_normalize": False}
    cut = read_format(Settings(clip, "x"), size=20, channels=3)
    assert (cut.fit, cut.mean, cut.deviation) == ("crop", (0.0,), (1.0,))
