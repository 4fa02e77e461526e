"""Changes of sounds that do not change their words: speed, noise, the voice's tract, tempo, colour, hidden stretches.

Speed and noise change samples, the rest frames. All is a pure function of a key, such as (seed, epoch, sound).
"""

from __future__ import annotations

import numpy as np
import torch

from regard.data.batches import generator
from regard.data.sound.config import SoundAugmentConfig
from regard.data.sound.features import resample

STEPS = 40  # a speed is a multiple of 1 / 40, so that few filters of resampling are needed
RANGE = 30.0  # decibels between the loudest noise and the faintest


def changed_wave(samples: np.ndarray, augment: SoundAugmentConfig, key: tuple[int, ...]) -> np.ndarray:
    """Samples (N,) at another speed, and with noise, as the key says: (N',) float32."""
    dice = generator(*key, 0)
    if augment.speed:
        widest = round(augment.speed * STEPS)
        samples = resample(samples, STEPS + int(dice.integers(-widest, widest + 1)), STEPS)
    if augment.noise is not None:
        samples = with_noise(samples, augment.noise + dice.uniform(0, RANGE), dice)
    return samples


def with_noise(samples: np.ndarray, below: float, dice: np.random.Generator) -> np.ndarray:
    """Samples with noise so many decibels below them; its power falls with the frequency f as f^-c, c from 0 to 2."""
    size = 1 << max(1, len(samples) - 1).bit_length()  # a power of two is transformed quickly
    spectrum = torch.fft.rfft(torch.from_numpy(dice.standard_normal(size, dtype=np.float32)))
    spectrum /= torch.arange(len(spectrum)).clamp(min=1) ** (dice.uniform(0, 2) / 2)
    noise = torch.fft.irfft(spectrum, size)[: len(samples)].numpy()
    scale = np.sqrt(np.square(samples).mean() / max(1e-20, float(np.square(noise).mean()))) * 10 ** (-below / 20)
    return (samples + np.float32(scale) * noise).astype(np.float32)


def changed_frames(frames: np.ndarray, augment: SoundAugmentConfig, key: tuple[int, ...]) -> np.ndarray:
    """Frames (T, M), warped in frequency and time, coloured, with stretches and bands set to zero, the mean: (T', M)."""
    dice = generator(*key, 1)
    if augment.tract:
        frames = _read_at(frames.T, _warped(frames.shape[1], dice.uniform(-1, 1) * augment.tract)).T
    if augment.tempo:
        count = max(1, round(len(frames) * (1 + dice.uniform(-1, 1) * augment.tempo)))
        frames = _read_at(frames, np.linspace(0, len(frames) - 1, count))
    if augment.colour:
        frames = frames + coloured(frames.shape[1], augment.colour, dice)
    return hidden(frames, augment, dice)


def coloured(mels: int, decibels: float, dice: np.random.Generator) -> np.ndarray:
    """A smooth curve over the bands, the sum of three slow cosines, whose standard deviation is so many decibels: (M,)."""
    waves = np.cos(np.pi * np.arange(1, 4)[:, None] * (np.arange(mels) + 0.5) / mels)  # (3, M), each of mean square 1/2
    curve = dice.standard_normal(3) @ waves * np.sqrt(2 / 3)
    return (decibels * np.log(10) / 10 * curve).astype(np.float32)


def hidden(frames: np.ndarray, augment: SoundAugmentConfig, dice: np.random.Generator) -> np.ndarray:
    """SpecAugment (Park et al. 2019): stretches of time and bands of frequency, each of a random width, set to zero."""
    frames = frames.copy()
    for _ in range(augment.time_masks):
        start, end = _stretch(len(frames), augment.time_share, dice)
        frames[start:end] = 0
    for _ in range(augment.mel_masks):
        start, end = _stretch(frames.shape[1], augment.mel_share, dice)
        frames[:, start:end] = 0
    return frames


def _stretch(size: int, share: float, dice: np.random.Generator) -> tuple[int, int]:
    width = int(dice.integers(0, int(share * size) + 1))
    start = int(dice.integers(0, size - width + 1))
    return start, start + width


def _warped(mels: int, share: float) -> np.ndarray:
    """Where each band is read from: higher or lower by a share, less and less above three quarters of all bands."""
    places = np.arange(mels, dtype=np.float64)
    knee = 0.75 * (mels - 1)
    moved = knee * (1 + share)
    low, high = (
        places * (1 + share),
        moved + (places - knee) * (mels - 1 - moved) / (mels - 1 - knee) if mels > 1 else places,
    )
    return np.clip(np.where(places <= knee, low, high), 0, mels - 1)


def _read_at(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rows (N, ...) at places between them, by straight lines: (len(places), ...)."""
    below = np.minimum(places.astype(np.int64), max(0, len(rows) - 2))
    share = (places - below).astype(rows.dtype)[:, None]
    above = np.minimum(below + 1, len(rows) - 1)
    return rows[below] * (1 - share) + rows[above] * share
