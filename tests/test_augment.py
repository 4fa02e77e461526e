"""Augmentation: against plain loops over pixels that read the same draws, and against what is known of the distributions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from regard.data.pictures import augment as module
from regard.data.pictures.augment import augment, change, draw, mixup, normalise
from regard.data.pictures.config import AugmentConfig, PictureFormat

EVERYTHING = AugmentConfig(crop=3, flip=True, colour=0.4, erase=0.7, mixup=0.3)


def bytes_of(rows: int, channels: int = 3, height: int = 11, width: int = 7, seed: int = 5) -> Tensor:
    values = np.random.default_rng(seed).integers(0, 256, (rows, height, width, channels), dtype=np.uint8)
    return torch.from_numpy(values).permute(0, 3, 1, 2)


def mirror(place: int, size: int) -> int:
    """Where a walk that turns back at both ends of a line is."""
    period = max(1, 2 * (size - 1))
    place %= period
    return min(place, period - place) if size > 1 else 0


# --- Configuration


def test_what_cannot_be_is_refused() -> None:
    for wrong in ({"crop": -1}, {"colour": 1.5}, {"colour": -0.1}, {"erase": 1.01}, {"mixup": -1}, {"cutmix": 1}):
        with pytest.raises(ValidationError):
            AugmentConfig.model_validate(wrong)


def test_the_configuration_needs_no_torch() -> None:
    code = "import sys, regard.data.pictures.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- What stays


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("contiguous", [True, False])
def test_nothing_changes_when_everything_is_off(channels: int, contiguous: bool) -> None:
    pixels = bytes_of(13, channels)
    pixels = pixels.contiguous() if contiguous else pixels
    found = augment(pixels, AugmentConfig(), (1, 2, 3))
    assert found.dtype == torch.uint8 and torch.equal(found, pixels)


def test_what_goes_in_is_not_written_to() -> None:
    pixels = bytes_of(13)
    before = pixels.clone()
    augment(pixels, EVERYTHING, (1, 2, 3))
    augment(pixels, AugmentConfig(erase=1.0), (1, 2, 3))
    assert torch.equal(pixels, before)


def test_no_picture_at_all() -> None:
    assert augment(bytes_of(0), EVERYTHING, (1,)).shape == (0, 3, 11, 7)


# --- Windows


@pytest.mark.parametrize("crop", [0, 1, 3, 19])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_windows_and_flips_pixel_by_pixel(crop: int, flip: bool, channels: int) -> None:
    config, pixels, key = AugmentConfig(crop=crop, flip=flip), bytes_of(17, channels), (3, 1, 4)
    draws = draw(config, key, 17, 11, 7)
    before, found = pixels.numpy(), augment(pixels, config, key).numpy()
    for b in range(17):
        for y in range(11):
            for x in range(7):
                across = 6 - x if draws.flipped[b] else x
                row, column = mirror(y + draws.top[b] - crop, 11), mirror(across + draws.left[b] - crop, 7)
                assert (found[b, :, y, x] == before[b, :, row, column]).all()


def test_a_line_by_hand() -> None:
    """0 1 2 3 padded by two is 2 1 | 0 1 2 3 | 2 1."""
    pixels = torch.arange(4, dtype=torch.uint8).view(1, 1, 1, 4)
    config, wanted = AugmentConfig(crop=2, flip=True), [2, 1, 0, 1, 2, 3, 2, 1]
    for key in range(20):
        draws = draw(config, (key,), 1, 1, 4)
        window = wanted[draws.left[0] : draws.left[0] + 4]
        assert augment(pixels, config, (key,)).flatten().tolist() == (window[::-1] if draws.flipped[0] else window)


def test_every_window_is_as_likely_as_the_others_and_half_are_flipped() -> None:
    draws = draw(AugmentConfig(crop=2, flip=True), (7,), 20_000, 11, 7)
    for offsets in (draws.top, draws.left):
        assert (abs(np.bincount(offsets, minlength=5) / 20_000 - 1 / 5) < 0.015).all()
    assert abs(draws.flipped.mean() - 0.5) < 0.015
    assert abs(np.corrcoef(draws.top, draws.left)[0, 1]) < 0.03
    assert not draw(AugmentConfig(crop=2), (7,), 100, 11, 7).flipped.any()


# --- Colours


@pytest.mark.parametrize("channels", [1, 3])
def test_colours_pixel_by_pixel(channels: int) -> None:
    """Brightness, then contrast around the mean grey, then saturation around each pixel's grey."""
    config, pixels, key = AugmentConfig(colour=0.5), bytes_of(13, channels), (2, 7)
    draws = draw(config, key, 13, 11, 7)
    found = augment(pixels, config, key).double().numpy()
    weights = np.array([0.299, 0.587, 0.114]) if channels == 3 else np.ones(1)
    for b in range(13):
        picture = pixels[b].double().numpy() * float(draws.brightness[b])
        mean = np.mean([weights @ picture[:, y, x] for y in range(11) for x in range(7)])
        picture = mean + float(draws.contrast[b]) * (picture - mean)
        if channels == 3:
            for y in range(11):
                for x in range(7):
                    grey = weights @ picture[:, y, x]
                    picture[:, y, x] = grey + float(draws.saturation[b]) * (picture[:, y, x] - grey)
        wanted = np.clip(picture, 0, 255)
        assert (abs(found[b] - wanted) <= 0.51).all()  # rounded to the nearest


def test_factors_fill_their_range() -> None:
    draws = draw(AugmentConfig(colour=0.3), (5,), 5000, 11, 7)
    for factors in (draws.brightness, draws.contrast, draws.saturation):
        assert 0.7 <= factors.min() < 0.71 and 1.29 < factors.max() <= 1.3 + 1e-6
        assert abs(factors.mean() - 1) < 0.01


def test_pictures_are_changed_in_pieces_and_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = bytes_of(29)
    whole = augment(pixels, EVERYTHING, (4, 5, 6))
    for piece in (1, 500, 2000):
        monkeypatch.setattr(module, "PIECE", piece)
        assert torch.equal(augment(pixels, EVERYTHING, (4, 5, 6)), whole)


# --- Erasing


def test_noise_inside_the_rectangles_and_nothing_outside() -> None:
    config, key = AugmentConfig(erase=0.6), (8, 1, 2)
    pixels = torch.full((200, 3, 32, 32), 77, dtype=torch.uint8)
    draws = draw(config, key, 200, 32, 32)
    found, noise = augment(pixels, config, key), []
    for b, (top, left, tall, wide) in enumerate(draws.erased.tolist()):
        inside = np.zeros((32, 32), dtype=bool)
        inside[top : top + tall, left : left + wide] = True
        assert inside.sum() == tall * wide  # it lies in the picture
        assert (found[b].numpy()[:, ~inside] == 77).all()
        noise.append(found[b].numpy()[:, inside].ravel())
    values = np.concatenate(noise)
    shares = np.bincount(values, minlength=256) / len(values)
    assert len(values) > 30_000 and abs(shares - 1 / 256).max() < 0.002  # each byte as likely as the others
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02  # also between channels


def test_rectangles_are_as_the_paper_has_them() -> None:
    """Zhong et al. 2020: with probability p, 2% to 33% of the picture, height / width from 0.3 to 1 / 0.3."""
    draws = draw(AugmentConfig(erase=0.25), (9,), 20_000, 97, 97)
    hit = draws.erased[:, 2] > 0
    assert abs(hit.mean() - 0.25) < 0.01 and not draws.erased[~hit].any()
    top, left, tall, wide = draws.erased[hit].T
    area, aspect = tall * wide / 97**2, tall / wide
    assert 0.018 < area.min() < 0.025 and 0.32 < area.max() < 0.34  # a side is rounded to a pixel
    assert abs(area.mean() - 0.175) < 0.005
    assert 0.28 < aspect.min() < 0.33 and 3.0 < aspect.max() < 3.55
    assert abs(np.log(aspect).mean()) < 0.03  # tall ones and wide ones alike
    assert top.min() == left.min() == 0 and (top + tall).max() == (left + wide).max() == 97
    assert abs((top + tall / 2).mean() - 48.5) < 1 and abs((left + wide / 2).mean() - 48.5) < 1


def test_rectangles_fit_pictures_that_are_no_squares() -> None:
    for height, width in ((5, 40), (40, 5), (1, 1), (2, 3)):
        top, left, tall, wide = draw(AugmentConfig(erase=1.0), (3,), 500, height, width).erased.T
        assert (tall >= 1).all() and (wide >= 1).all() and (top >= 0).all() and (left >= 0).all()
        assert (top + tall <= height).all() and (left + wide <= width).all()


# --- Mixing


def test_mixed_pictures_are_sums_of_two() -> None:
    pixels = torch.randn(19, 3, 11, 7, generator=torch.Generator().manual_seed(1))
    mixed = mixup(pixels, AugmentConfig(mixup=0.5), (1, 5))
    assert sorted(mixed.others.tolist()) == list(range(19))
    assert mixed.shares.min() < 0.5 < mixed.shares.max() and mixed.shares.dtype == torch.float32
    for b in range(19):
        share = float(mixed.shares[b])
        wanted = share * pixels[b].double() + (1 - share) * pixels[mixed.others[b]].double()
        assert torch.allclose(mixed.pixels[b].double(), wanted, atol=1e-6)


def test_shares_come_from_beta() -> None:
    """Beta(α, α) has mean 1/2 and variance 1 / (4 (2 α + 1))."""
    for alpha in (0.2, 1.0, 4.0):
        shares = draw(AugmentConfig(mixup=alpha), (3,), 20_000, 2, 2).shares
        assert abs(shares.mean() - 0.5) < 0.012
        assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


# --- Keys


def test_the_key_is_all_that_counts() -> None:
    pixels = bytes_of(23)
    first = augment(pixels, EVERYTHING, (1, 2, 3))
    np.random.default_rng(0).random(10)
    np.random.seed(3)
    torch.manual_seed(99)
    augment(bytes_of(5), EVERYTHING, (9, 9, 9))
    assert torch.equal(augment(pixels, EVERYTHING, (1, 2, 3)), first)
    assert np.random.randint(1 << 30) == np.random.RandomState(3).randint(1 << 30)  # nor is anything else disturbed
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(99)))
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0), (1, 2, 4)):
        assert not torch.equal(augment(pixels, EVERYTHING, other), first)


def test_pictures_of_a_batch_are_changed_each_in_its_own_way() -> None:
    same = bytes_of(1, height=32, width=32).expand(8, -1, -1, -1)
    for config in (AugmentConfig(crop=4), AugmentConfig(colour=0.5), AugmentConfig(erase=1.0)):
        found = augment(same, config, (1,)).flatten(1)
        assert len(found.unique(dim=0)) == 8


def test_draws_of_a_kind_do_not_depend_on_the_others() -> None:
    alone = {"crop": 3, "flip": True, "colour": 0.4, "erase": 0.7, "mixup": 0.3}
    fields = {
        "crop": ("top", "left"),
        "flip": ("flipped",),
        "colour": ("brightness", "contrast", "saturation"),
        "erase": ("erased",),
        "mixup": ("others", "shares"),
    }
    together = draw(EVERYTHING, (6, 1, 8), 31, 11, 7)
    for name, value in alone.items():
        found = draw(AugmentConfig.model_validate({name: value}), (6, 1, 8), 31, 11, 7)
        for field in fields[name]:
            assert np.array_equal(getattr(found, field), getattr(together, field))


def test_the_steps_come_in_order() -> None:
    """All at once is one after the other: windows, then colours, then erasing."""
    pixels, key = bytes_of(13), (2, 2, 2)
    draws = draw(EVERYTHING, key, 13, 11, 7)
    step = pixels
    for config in (AugmentConfig(crop=3, flip=True), AugmentConfig(colour=0.4), AugmentConfig(erase=0.7)):
        step = change(step, config, draws, key)
    assert torch.equal(step, augment(pixels, EVERYTHING, key))


# --- What a model sees


@pytest.mark.parametrize("channels", [1, 3])
def test_normalised_by_the_formula(channels: int) -> None:
    pixels = bytes_of(5, channels)
    mean, deviation = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)) if channels == 3 else ((0.13,), (0.31,))
    for given in (pixels, pixels.contiguous()):
        found = normalise(given, PictureFormat(channels=channels, mean=mean, deviation=deviation))
        for c in range(channels):
            wanted = (pixels[:, c].double() / 255 - mean[c]) / deviation[c]
            assert torch.allclose(found[:, c].double(), wanted, atol=1e-5)
        assert found.dtype == torch.float32 and found.is_contiguous(memory_format=torch.channels_last)


def test_one_mean_for_all_channels() -> None:
    found = normalise(torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1), PictureFormat())
    assert torch.allclose(found.flatten(), torch.tensor([-2.0, -1.2, 2.0]))  # (byte / 255 - 0.5) / 0.25
