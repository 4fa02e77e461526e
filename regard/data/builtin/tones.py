"""Built-in sounds: keys of a telephone, tones and chords, with noise. Each is a pure function of a seed and its number.

A key of a telephone is two sines at once, one for its row and one for its column (ITU-T Q.23). A tone is one of eight
kinds, at any pitch; a chord is three notes, of which the label says how far they lie apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from regard.data.batches import generator

RATE = 8000
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477, 1633)  # Hz
KEYS = ("123A", "456B", "789C", "*0#D")
KINDS = ("sine", "square", "saw", "rising", "falling", "trembling", "bell", "hiss")
CHORDS = {"major": (0, 4, 7), "minor": (0, 3, 7), "diminished": (0, 3, 6), "augmented": (0, 4, 8)}  # semitones
FEWEST, MOST = 3, 7  # keys of a number
_KEY = {
    key: (row, column) for row, keys in zip(ROWS, KEYS, strict=True) for key, column in zip(keys, COLUMNS, strict=True)
}

Made = tuple[np.ndarray, str]  # samples from -1 to 1, and the label or the words


def dialled(seed: int, number: int) -> Made:
    """A few keys one after the other, with pauses; the words are the keys, with a space between."""
    dice = generator(seed, number, 0)
    keys = [str(key) for key in dice.choice(list(_KEY), dice.integers(FEWEST, MOST + 1))]
    parts = [_pause(dice)]
    for key in keys:
        parts += [_key(dice, *_KEY[key]), _pause(dice)]
    return _noisy(dice, np.concatenate(parts)), " ".join(keys)


def tone(seed: int, number: int) -> Made:
    """Half a second or so of a tone; the label is its kind."""
    dice = generator(seed, number, 1)
    kind = KINDS[int(dice.integers(len(KINDS)))]
    time = np.arange(int(dice.uniform(0.35, 0.7) * RATE)) / RATE
    return _noisy(dice, _faded(_OF_KIND[kind](dice, time, dice.uniform(200, 900)))), kind


def chord(seed: int, number: int) -> Made:
    """Three notes at once in any order of loudness; the label is how far apart they lie."""
    dice = generator(seed, number, 2)
    kind = list(CHORDS)[int(dice.integers(len(CHORDS)))]
    time = np.arange(int(dice.uniform(0.4, 0.8) * RATE)) / RATE
    root = 1046.5 * 2 ** (int(dice.integers(12)) / 12)
    notes = [
        dice.uniform(0.6, 1.0) * np.sin(2 * np.pi * root * 2 ** (semitones / 12) * time + dice.uniform(0, 6))
        for semitones in CHORDS[kind]
    ]
    return _noisy(dice, _faded(np.sum(notes, axis=0))), kind


SETS: dict[str, Callable[[int, int], Made]] = {"keys": dialled, "tones": tone, "chords": chord}


def _key(dice: np.random.Generator, row: int, column: int) -> np.ndarray:
    time = np.arange(int(dice.uniform(0.07, 0.16) * RATE)) / RATE
    return _faded(np.sin(2 * np.pi * row * time) + dice.uniform(0.7, 1.3) * np.sin(2 * np.pi * column * time))


def _pause(dice: np.random.Generator) -> np.ndarray:
    return np.zeros(int(dice.uniform(0.03, 0.12) * RATE))


def _faded(samples: np.ndarray) -> np.ndarray:
    """Samples that begin and end within five milliseconds."""
    edge = np.linspace(0, 1, RATE // 200)
    samples = samples.copy()
    samples[: len(edge)] *= edge
    samples[-len(edge) :] *= edge[::-1]
    return samples


def _noisy(dice: np.random.Generator, samples: np.ndarray) -> np.ndarray:
    """Samples of random loudness with white noise 6 to 30 dB below them."""
    loud = np.sqrt((samples**2).mean())
    hiss = dice.standard_normal(len(samples)) * loud * 10 ** (-dice.uniform(6, 30) / 20)
    mixed = samples + hiss
    return mixed / np.abs(mixed).max() * 10 ** (-dice.uniform(1, 20) / 20)


def _sine(time: np.ndarray, pitch: float) -> np.ndarray:
    return np.sin(2 * np.pi * pitch * time)


def _swept(time: np.ndarray, start: float, end: float) -> np.ndarray:
    return np.sin(2 * np.pi * (start * time + (end - start) * time**2 / (2 * time[-1])))


def _bell(dice: np.random.Generator, time: np.ndarray, pitch: float) -> np.ndarray:
    """Partials that are no multiples of the pitch, and die away, the high ones first."""
    return np.sum([np.exp(-time * 4 * n) * np.sin(2 * np.pi * pitch * n * time) for n in (1.0, 2.76, 3.4)], axis=0)


_OF_KIND: dict[str, Callable[[np.random.Generator, np.ndarray, float], np.ndarray]] = {
    "sine": lambda dice, time, pitch: _sine(time, pitch),
    "square": lambda dice, time, pitch: np.sign(_sine(time, pitch)),
    "saw": lambda dice, time, pitch: 2 * (pitch * time % 1) - 1,
    "rising": lambda dice, time, pitch: _swept(time, pitch, pitch * dice.uniform(1.4, 2.5)),
    "falling": lambda dice, time, pitch: _swept(time, pitch * dice.uniform(1.4, 2.5), pitch),
    "trembling": lambda dice, time, pitch: (
        (1 + np.sin(2 * np.pi * dice.uniform(6, 12) * time)) * np.sin(2 * np.pi * pitch * time)
    ),
    "bell": _bell,
    "hiss": lambda dice, time, pitch: dice.standard_normal(len(time)),
}
