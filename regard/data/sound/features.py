"""From samples to frames: resampling, and the logarithm of the energy in bands of the mel scale.

A frame is a stretch of sound under a Hann window; its power spectrum is summed in triangular filters whose middles are
equally far apart in mels, 2595 log10(1 + Hz / 700) (O'Shaughnessy 1987; the form of HTK).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from regard.data.sound.config import SoundFormat
from regard.data.sound.waves import Sound

LEAST = 1e-10  # energy of a band that is silent
ZEROS = 16  # zero crossings of the resampling filter on each side
EDGE = 0.94  # of the lower of the two Nyquist frequencies: where the filter begins to cut
BETA = 8.6  # of its Kaiser window: what it cuts is 80 dB down
_PIECE = 1 << 20  # samples that are resampled at once


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Samples (N,) at another rate, by a polyphase filter: a sinc under a Kaiser window: (⌈N · wanted / rate⌉,) float32.

    With rate : wanted in lowest terms, output n lies at n · rate / wanted of the input, and so at one of `up` places between
    two samples: each of these has a filter of its own, and a convolution in steps of `down` samples gives all outputs.
    """
    if rate == wanted or not len(samples):
        return samples.astype(np.float32)
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    filters, reach = _phases(up, down)
    count = -(-len(samples) * up // down)
    blocks = -(-count // up)  # each of `up` outputs, `down` inputs further on
    behind = max(0, blocks * down + reach + down - len(samples))
    padded = pad(torch.from_numpy(samples.astype(np.float32)), (reach, behind))
    step, found = max(1, _PIECE // down), []
    for start in range(0, blocks, step):
        last = (min(start + step, blocks) - 1) * down + filters.size(-1)
        found.append(conv1d(padded[None, None, start * down : last], filters, stride=down))  # (1, up, blocks)
    return torch.cat(found, dim=-1)[0].T.reshape(-1)[:count].numpy()


@lru_cache(maxsize=64)
def _phases(up: int, down: int) -> tuple[Tensor, int]:
    """The filter of each of the `up` places between samples: (up, 1, 2 · reach + down), and how far it reaches back."""
    cut = EDGE * min(1.0, up / down)  # in units of the input's Nyquist frequency
    reach = math.ceil(ZEROS / cut)
    at = np.arange(-reach, reach + down)[None, :] - np.arange(up)[:, None] * down / up  # (up, taps): from the output
    inside = np.clip(at * cut / ZEROS, -1, 1)
    window = np.i0(BETA * np.sqrt(1 - inside**2)) / np.i0(BETA)
    filters = cut * np.sinc(at * cut) * np.where(np.abs(at * cut) < ZEROS, window, 0.0)
    return torch.from_numpy(filters.astype(np.float32))[:, None], reach


def at_rate(sound: Sound, rate: int) -> Sound:
    """The sound at this rate."""
    return sound if sound.rate == rate else Sound(resample(sound.samples, sound.rate, rate), rate)


def mel_of(hertz: np.ndarray | float) -> np.ndarray:
    """2595 log10(1 + Hz / 700)."""
    return 2595 * np.log10(1 + np.asarray(hertz) / 700)


def hertz_of(mel: np.ndarray | float) -> np.ndarray:
    """The inverse of `mel_of`."""
    return 700 * (10 ** (np.asarray(mel) / 2595) - 1)


@lru_cache(maxsize=16)
def mel_filters(rate: int, transform: int, mels: int) -> Tensor:
    """Triangles over the bins of a transform, each from the middle of the one below to that of the next: (bins, mels)."""
    bins = np.linspace(0, rate / 2, transform // 2 + 1)
    edges = hertz_of(np.linspace(0, mel_of(rate / 2), mels + 2))
    rising = (bins[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - bins[:, None]) / np.diff(edges)[1:]
    return torch.from_numpy(np.maximum(0, np.minimum(rising, falling)))


def log_mel(waves: Tensor, sound: SoundFormat) -> Tensor:
    """The natural logarithm of the energy of each frame in each mel band: (..., N) -> (..., frames, mels).

    Frame i has its middle at sample i · hop; beyond the ends there are zeros.
    """
    flat = waves.reshape(-1, waves.size(-1))
    size, window = sound.transform, torch.hann_window(sound.window_samples, dtype=waves.dtype)
    flat = pad(flat, (size // 2, size // 2))
    parts = torch.stft(flat, size, sound.hop_samples, sound.window_samples, window, center=False, return_complex=True)
    power = (parts.real**2 + parts.imag**2).transpose(1, 2)  # (B, frames, bins)
    energy = power @ mel_filters(sound.rate, size, sound.mels).to(power.dtype)  # (B, frames, mels)
    return energy.clamp(min=LEAST).log().reshape(*waves.shape[:-1], *energy.shape[1:])


def heard(waves: list[np.ndarray], sound: SoundFormat) -> tuple[Tensor, Tensor]:
    """Frames as a model hears them: floored, normalised, zero behind each end: (B, T, M), and how many each has: (B,)."""
    lengths = torch.tensor([sound.frames(len(each)) for each in waves])
    together = torch.zeros(len(waves), max((len(each) for each in waves), default=0))
    for row, each in zip(together, waves, strict=True):
        row[: len(each)] = torch.from_numpy(each)
    return normalised(log_mel(together, sound), lengths, sound), lengths


def normalised(frames: Tensor, lengths: Tensor, sound: SoundFormat) -> Tensor:
    """Log-mel frames (B, T, M) no lower than the floor under their loudest, less the mean that the format names."""
    real = (torch.arange(frames.size(1)) < lengths[:, None])[..., None]  # (B, T, 1)
    loudest = frames.masked_fill(~real, -math.inf).amax(dim=(1, 2), keepdim=True)
    frames = torch.maximum(frames, loudest - sound.floor * math.log(10) / 10)
    if sound.normalise != "none":
        mean = (frames * real).sum(dim=1, keepdim=True) / lengths[:, None, None]  # (B, 1, M)
        frames = frames - (mean if sound.normalise == "mean" else mean.mean(dim=-1, keepdim=True))
    return frames * real
