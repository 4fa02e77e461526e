"""Files of sound, and sounds that the package makes, as texts in letters (`regard/tokens/samples.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.data.builtin import tones
from regard.data.form import Form
from regard.data.sound.features import at_rate, resample
from regard.data.sound.sets import SEEDS
from regard.data.sound.waves import read_sound
from regard.errors import RegardError
from regard.tokens.samples import write_letters

LONGEST = 600.0  # seconds of a sound to learn from


def sound_text(path: Path, label: str, form: Form) -> str:
    """A file of sound in letters, behind its label if it has one."""
    sound = read_sound(path, 0.0, LONGEST)
    if sound.silent:
        raise RegardError(f"{path} is silent", "leave it out")
    return write_letters(at_rate(sound, form.rate).samples, label)


def tone_documents(name: str, split: str, size: int, form: Form) -> Iterator[str]:
    """The sounds of builtin/tones or builtin/chords, each with its label, with about so many samples in all."""
    make, total, number = tones.SETS[name.removeprefix("builtin/")], 0, 0
    while total < size:
        samples, label = make(SEEDS[split], number)
        text = write_letters(resample(samples, tones.RATE, form.rate), label)
        yield text
        total, number = total + len(text), number + 1
