"""The sounds of a run: training and validation, with their words or labels, in one format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.held_out import held_rows
from regard.data.sound.config import HeardConfig, SoundFormat
from regard.data.sound.sets import SoundSet, Told, read_sounds
from regard.data.sound.store import OnProgress, Rows, SoundStore, open_frames, open_sounds
from regard.data.sound.waves import SoundError, sound_info
from regard.errors import RegardError

HIGHEST = 16_000  # samples a second, where nobody asks for more


@dataclass(frozen=True, eq=False)
class SoundPart:
    """Sounds of a store that belong together, each with its words or its label."""

    store: SoundStore
    rows: np.ndarray  # (N,) places in the store
    told: tuple[str, ...]
    format: SoundFormat

    def __len__(self) -> int:
        return len(self.rows)

    def names(self) -> tuple[str, ...]:
        return tuple(self.store.names[row] for row in self.rows)

    def frames(self, progress: OnProgress | None = None) -> Rows:
        """The frames of all sounds of the store, kept."""
        return open_frames(self.store, self.format, progress=progress)


@dataclass(frozen=True, eq=False)
class HeardSets:
    """All that a model that hears learns from."""

    train: SoundPart
    valid: SoundPart
    notes: tuple[str, ...]

    @property
    def format(self) -> SoundFormat:
        return self.train.format

    def labels(self) -> tuple[str, ...]:
        """The labels of training; an error if validation has others."""
        found = tuple(sorted(set(self.train.told)))
        unknown = sorted(set(self.valid.told) - set(found))
        if unknown:
            raise RegardError(f"validation has classes that training has not: {', '.join(unknown[:5])}")
        return found


def load_sounds(
    config: HeardConfig, told: Told, data_root: Path | None = None, progress: OnProgress | None = None
) -> HeardSets:
    """Training and validation sounds as the configuration names them."""
    names: Sequence[str] = config.train  # type: ignore[attr-defined]
    held: Sequence[str] = config.valid  # type: ignore[attr-defined]
    found = read_sounds(names, told, data_root, config.builtin_size)
    sound = config.format_at(config.rate or usual_rate(found))
    train = as_part(found, sound, config.max_seconds, progress)
    notes = (*found.notes, *train.store.notes)
    if not held and found.made:
        held = (f"{names[0]}/valid",)
    if held:
        other = read_sounds(held, told, data_root, min(config.hold_out, config.builtin_size))
        valid = as_part(other, sound, config.max_seconds, progress)
        return HeardSets(train, valid, (*notes, *other.notes, *valid.store.notes))
    inside = held_rows(train.store.hashes(), config.hold_out, "sounds")
    notes = (*notes, f"no validation sounds: held out {int(inside.sum()):,} of {len(inside):,}")
    return HeardSets(_some(train, ~inside), _some(train, inside), notes)


def usual_rate(found: SoundSet) -> int:
    """The rate of the first sound that can be read, but no more than `HIGHEST`."""
    if found.made:
        return found.rate
    for path in found.paths:
        try:
            return min(HIGHEST, sound_info(path).rate)
        except SoundError:
            continue
    raise RegardError("none of the sounds can be read", f"the first is {found.name(0)}")


def as_part(found: SoundSet, sound: SoundFormat, most_seconds: float, progress: OnProgress | None = None) -> SoundPart:
    """All sounds of a set that can be used."""
    store = open_sounds(found, sound.rate, most_seconds, progress=progress)
    told = tuple(found.told[place] for place in store.kept)
    return SoundPart(store, np.arange(len(store)), told, sound)


def _some(part: SoundPart, which: np.ndarray) -> SoundPart:
    told = tuple(each for each, wanted in zip(part.told, which, strict=True) if wanted)
    return SoundPart(part.store, part.rows[which], told, part.format)
