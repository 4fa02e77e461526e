"""Pictures changed at random, a pure function of a key such as (seed, epoch, index), each in its own way.

What is drawn (`draw`) and what is done with it (`change`, `mix`) are apart, so that a picture can be changed by hand in the
same way. Draws of one kind do not depend on which others are on. Everything is done where the bytes lie, in the order
(B, height, width, channels), and leaves as (B, channels, height, width) in torch's channels_last order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regard.data.pictures.config import AugmentConfig, PictureFormat

AREAS = (0.02, 0.33)  # of a picture that is erased: s_l is the paper's, s_h a little below its 0.4
ASPECTS = (0.3, 1 / 0.3)  # height / width of the rectangle (r_1, r_2)
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # how bright red, green and blue are (ITU-R BT.601)
PIECE = 100_000  # bytes that are changed at once: what is computed on the way still fits the processor's cache

_STREAM = 1  # at the end of the key, so that augmentation and the order of an epoch have nothing in common


@dataclass(frozen=True)
class Draws:
    """The random draws for each of B pictures."""

    top: np.ndarray  # (B,): where the window begins in the padded picture, from 0 to 2 · crop
    left: np.ndarray  # (B,)
    flipped: np.ndarray  # (B,), bool
    brightness: np.ndarray  # (B,): factors near 1
    contrast: np.ndarray  # (B,)
    saturation: np.ndarray  # (B,)
    erased: (
        np.ndarray
    )  # (B, 4): top, left, height and width of the rectangle; height and width are 0 where there is none
    others: np.ndarray  # (B,): which picture of the batch is mixed in
    shares: np.ndarray  # (B,): from 0 to 1, how much of a picture is its own

    def of(self, first: int, end: int) -> Draws:
        """Those for some of the pictures."""
        return Draws(*(getattr(self, each.name)[first:end] for each in fields(self)))


@dataclass(frozen=True)
class Part:
    """Some of the pictures of a batch, of which the others are not here."""

    first: int
    end: int
    of: int


def draw(config: AugmentConfig, key: tuple[int, ...], rows: int, height: int, width: int) -> Draws:
    """The draws of a batch. They always come in the same order, and those that are not asked for change nothing."""
    random = _generator(key)
    window = random.random((2, rows))
    flips = random.random(rows)
    bright, contrast, saturation = (1 + config.colour * random.uniform(-1, 1, (3, rows))).astype(np.float32)
    erased = _rectangles(random, config.erase, rows, height, width)
    others = random.permutation(rows)
    shares = random.beta(config.mixup, config.mixup, rows) if config.mixup else np.ones(rows)
    top, left = (window * (2 * config.crop + 1)).astype(np.int64)
    flipped = flips < 0.5 if config.flip else np.zeros(rows, dtype=bool)
    return Draws(top, left, flipped, bright, contrast, saturation, erased, others, shares.astype(np.float32))


def augment(pixels: Tensor, config: AugmentConfig, key: tuple[int, ...], part: Part | None = None) -> Tensor:
    """Bytes (B, C, H, W), cropped, flipped, coloured and erased as the configuration and the key say.

    `part`: these are some of the pictures that the key is of.
    """
    rows, channels, height, width = pixels.shape
    if part is None:
        return change(pixels, config, draw(config, key, rows, height, width), key)
    draws = draw(config, key, part.of, height, width)
    before = channels * int(draws.erased[: part.first, 2:].prod(axis=1).sum())
    return change(pixels, config, draws.of(part.first, part.end), key, before)


def change(pixels: Tensor, config: AugmentConfig, draws: Draws, key: tuple[int, ...], before_noise: int = 0) -> Tensor:
    """Bytes (B, C, H, W), changed as drawn; the noise in erased rectangles comes from the key, behind so many bytes of it."""
    before = np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())  # (B, H, W, C)
    after = np.empty_like(before)
    step = max(1, PIECE // max(1, before[:1].size))
    for piece in (slice(start, start + step) for start in range(0, len(before), step)):
        moved = _windows(before[piece], config.crop, draws, piece) if config.crop or config.flip else before[piece]
        after[piece] = _coloured(moved, draws, piece) if config.colour else moved
    if config.erase:
        _erase(after, draws.erased, key, before_noise)
    return torch.from_numpy(after).permute(0, 3, 1, 2)  # (B, C, H, W), channels_last


@dataclass(frozen=True)
class Mixed:
    """Pictures mixed in pairs."""

    pixels: Tensor  # (B, C, H, W)
    others: Tensor  # (B,): which picture of the batch was mixed in
    shares: Tensor  # (B,): how much of a picture is its own


def mixup(pixels: Tensor, config: AugmentConfig, key: tuple[int, ...]) -> Mixed:
    """Normalised pixels (B, C, H, W), each mixed with another of the batch: λ x_i + (1 - λ) x_j (Zhang et al. 2018, eq. 1)."""
    draws = draw(config, key, len(pixels), *pixels.shape[2:])
    others, shares = torch.from_numpy(draws.others), torch.from_numpy(draws.shares)
    return Mixed(torch.lerp(pixels[others], pixels, shares[:, None, None, None]), others, shares)


def normalise(pixels: Tensor, picture_format: PictureFormat) -> Tensor:
    """Normalise bytes (B, C, H, W): (byte / 255 - mean) / deviation, float32, channels_last."""
    rows, channels, height, width = pixels.shape
    mean, deviation = (torch.tensor(each).expand(channels) for each in (picture_format.mean, picture_format.deviation))
    scale, shift = 1 / (255 * deviation), -mean / deviation  # (C,)
    lines = pixels.permute(0, 2, 3, 1).reshape(rows * height, width * channels).float()
    torch.addcmul(shift.repeat(width), lines, scale.repeat(width), out=lines)  # whole lines are faster than (C,)
    return lines.view(rows, height, width, channels).permute(0, 3, 1, 2)  # (B, C, H, W)


def _generator(key: tuple[int, ...], *more: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence((*key, _STREAM, *more))))


def _rectangles(random: np.random.Generator, share: float, rows: int, height: int, width: int) -> np.ndarray:
    """Random erasing (Zhong et al. 2020, algorithm 1): an area, then an aspect with which it fits, then a place.

    The paper draws anew until a rectangle fits; here the aspect comes from the range in which it does, tall and wide alike.
    """
    hit, place = random.random(rows) < share, random.random((2, rows))
    area = random.uniform(*AREAS, rows)
    lowest = np.maximum(ASPECTS[0], area * height / width)
    highest = np.maximum(lowest, np.minimum(ASPECTS[1], height / width / area))
    aspect = np.exp(random.uniform(np.log(lowest), np.log(highest)))
    tall = np.clip(np.rint(np.sqrt(area * height * width * aspect)), 1, height).astype(np.int64)
    wide = np.clip(np.rint(np.sqrt(area * height * width / aspect)), 1, width).astype(np.int64)
    top = (place[0] * (height - tall + 1)).astype(np.int64)
    left = (place[1] * (width - wide + 1)).astype(np.int64)
    return np.stack([top, left, tall, wide], axis=1) * hit[:, None]  # (B, 4)


def _windows(pixels: np.ndarray, crop: int, draws: Draws, piece: slice) -> np.ndarray:
    """The window of each padded picture, perhaps mirrored, gathered pixel by pixel: nothing is padded in memory."""
    rows, height, width, channels = pixels.shape
    down = _reflected(height, crop)[draws.top[piece, None] + np.arange(height)]  # (B, H)
    across = _reflected(width, crop)[draws.left[piece, None] + np.arange(width)]  # (B, W)
    across = np.where(draws.flipped[piece, None], across[:, ::-1], across)
    starts = (np.arange(rows)[:, None] * height + down) * width  # (B, H)
    places = starts[:, :, None] + across[:, None, :]  # (B, H, W)
    whole = pixels.reshape(-1).view(f"V{channels}")  # a pixel is one item, whatever its channels
    return whole.take(places).view(np.uint8).reshape(pixels.shape)


@lru_cache(maxsize=16)
def _reflected(size: int, crop: int) -> np.ndarray:
    """Which pixel of a line stands at each place of the padded line: with crop 2, 2 1 0 1 2 ... ."""
    return np.pad(np.arange(size), crop, mode="reflect")


def _coloured(pixels: np.ndarray, draws: Draws, piece: slice) -> np.ndarray:
    """Brightness b, then contrast k around the mean m of the grey picture g, then saturation s around grey.

    All three are linear, and rounded and cut to bytes once, at the end: s k b x + (1 - s) k b g + (1 - k) b m.
    """
    rows, channels = len(pixels), pixels.shape[-1]
    b, k, s = draws.brightness[piece, None], draws.contrast[piece, None], draws.saturation[piece, None]  # (B, 1)
    values = pixels.reshape(rows, -1).astype(np.float32)  # (B, H · W · C)
    grey = (values.reshape(-1, channels) @ GREY if channels == 3 else values).reshape(rows, -1)  # (B, H · W)
    added = (1 - s) * k * b * grey + (1 - k) * b * grey.mean(axis=1, keepdims=True)
    values *= s * k * b
    values += np.repeat(added, channels, axis=1)
    values += 0.5  # to the nearest
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8).reshape(pixels.shape)


def _erase(pixels: np.ndarray, rectangles: np.ndarray, key: tuple[int, ...], before: int) -> None:
    """Fills the rectangles with noise: a random byte for each channel of each pixel, picture after picture."""
    channels = pixels.shape[-1]
    ends = before + np.cumsum(rectangles[:, 2] * rectangles[:, 3] * channels)
    noise = np.frombuffer(_generator(key, 1).bytes(int(ends[-1])), dtype=np.uint8) if len(ends) else ends
    for row in np.flatnonzero(rectangles[:, 2]):
        top, left, tall, wide = rectangles[row].tolist()
        filled = noise[ends[row] - tall * wide * channels : ends[row]].reshape(tall, wide, channels)
        pixels[row, top : top + tall, left : left + wide] = filled
