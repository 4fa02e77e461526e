"""Sounds as pictures: how loud each frequency is at each time, one sound beside another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from regard.look.shown import Shown

WINDOW = 0.025  # seconds of sound in a column
HOP = 0.005  # seconds from one column to the next
FLOOR = 70.0  # decibels below the loudest place under which all is one colour


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Spectrogram:
    """Decibels below the loudest place, over frequencies and times."""

    title: str
    decibels: np.ndarray  # (F, T), from -FLOOR to 0; the lowest frequency first
    seconds: float
    hertz: float  # of the highest frequency
    samples: np.ndarray  # (N,)


def spectrogram(samples: np.ndarray, rate: int, title: str = "") -> Spectrogram:
    """Magnitudes of the Fourier transform under a Hann window: 20 log10 |X|, relative to the loudest place."""
    size, hop = max(2, int(rate * WINDOW)), max(1, int(rate * HOP))
    padded = np.pad(np.asarray(samples, dtype=np.float64), (size // 2, size))
    starts = np.arange(0, max(1, len(samples)), hop)
    frames = padded[starts[:, None] + np.arange(size)] * np.hanning(size)  # (T, size)
    loud = np.abs(np.fft.rfft(frames, n=4 * size, axis=1)).T  # (F, T)
    decibels = 20 * np.log10(np.maximum(loud, 1e-10) / max(float(loud.max()), 1e-10))
    return Spectrogram(title, np.maximum(decibels, -FLOOR), len(samples) / rate, rate / 2, np.asarray(samples))


@dataclass(frozen=True, eq=False)
class Spectrograms(Shown):
    """Spectrograms side by side, with the waves above them."""

    called = "a spectrogram"

    sounds: tuple[Spectrogram, ...]
    title: str = ""
    across: int = 4  # sounds side by side

    def _alternative(self) -> str:
        return "spectrograms: " + ", ".join(f"{each.title} ({each.seconds:.2f} s)" for each in self.sounds)

    def data(self) -> Mapping[str, object]:
        return {
            "title": self.title,
            "sounds": [
                {
                    "title": each.title,
                    "seconds": each.seconds,
                    "hertz": each.hertz,
                    "decibels": each.decibels.round(1).tolist(),
                }
                for each in self.sounds
            ],
        }

    def html(self) -> str:
        """A whole page with the picture; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".json": self.json, ".html": self.html}
