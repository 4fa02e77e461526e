"""Sets of sounds as a configuration names them: rows of audio and text or label, folders of classes, or built-in ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from regard.config import find_file
from regard.data.builtin import tones
from regard.data.named_files import FilesBeside, LeftOut, cell_of, named_rows
from regard.data.rows import as_label, as_text
from regard.data.sound.config import LABELLED_SETS, SPOKEN_SETS, is_sound
from regard.data.sound.waves import as_int16
from regard.errors import RegardError, UsageError, nearest

Told = Literal["text", "label"]  # what is told of a sound
BUILT_IN: dict[Told, tuple[str, ...]] = {"text": SPOKEN_SETS, "label": LABELLED_SETS}
SEEDS = {"train": 1, "valid": 2, "test": 3}  # of built-in sounds


@dataclass(frozen=True, eq=False)
class SoundSet:
    """Sounds in files, or made now, each with its words or its label, and what was left out."""

    paths: tuple[Path, ...]
    told: tuple[str, ...]
    made: tuple[np.ndarray, ...] = ()  # samples of 16 bits at `rate`, where there are no files
    rate: int = 0
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __len__(self) -> int:
        return len(self.told)

    def name(self, place: int) -> str:
        """The file of a sound, or its number, from 0, where sounds have no files."""
        return str(self.paths[place]) if self.paths else f"sound {place}"


def read_sounds(names: Sequence[str], told: Told, data_root: Path | None = None, size: int = 2000) -> SoundSet:
    """The sounds of one or more sets, with the words or the label of each; `size` is that of built-in sets."""
    built_in = [name for name in names if name.startswith("builtin/")]
    if built_in and len(names) > 1:
        raise UsageError(f"{built_in[0]} cannot be mixed with other sounds", "name one or the other")
    if built_in:
        return made_sounds(built_in[0], told, size)
    parts = [_named(find_file(name, data_root), told) for name in names]
    return SoundSet(
        tuple(path for part in parts for path in part.paths),
        tuple(each for part in parts for each in part.told),
        notes=tuple(note for part in parts for note in part.notes),
        left_out=tuple(each for part in parts for each in part.left_out),
    )


def made_sounds(name: str, told: Told, size: int) -> SoundSet:
    """A built-in set, such as builtin/keys or builtin/keys/test."""
    parts = name.split("/")
    split = parts[2] if len(parts) == 3 else "train"
    if len(parts) > 3 or "/".join(parts[:2]) not in BUILT_IN[told] or split not in SEEDS:
        known = [f"{each}{part}" for each in BUILT_IN[told] for part in ("", "/valid", "/test")]
        raise UsageError(f"{name} names no built-in sounds with a {told}", nearest(name, known))
    make, seed = tones.SETS[parts[1]], SEEDS[split]
    found = [make(seed, number) for number in range(size)]
    samples, words = zip(*found, strict=True)
    return SoundSet((), tuple(words), tuple(map(as_int16, samples)), tones.RATE)


def _named(path: Path, told: Told) -> SoundSet:
    if path.is_dir() and told == "label":
        return read_sound_folder(path)
    return read_manifest(path, told)


def read_sound_folder(folder: Path) -> SoundSet:
    """A folder for each class, named like it, with its sounds; those in folders below belong to it too."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    rows = [(file, file.relative_to(folder).parts) for file in files]
    sounds = [(file, parts[0]) for file, parts in rows if is_sound(file) and len(parts) > 1]
    if len({label for _, label in sounds}) < 2:
        raise RegardError(f"{folder} should hold a folder for each of at least two classes, with their sounds in it")
    other = [file for file, parts in rows if not is_sound(file) or len(parts) == 1]
    why = "no sound by its name, or in no class"
    notes = (f"{folder}: left out {len(other):,} files: {other[0]}: {why}",) if other else ()
    paths, labels = zip(*sounds, strict=True)
    return SoundSet(tuple(paths), tuple(labels), notes=notes, left_out=tuple((str(file), why) for file in other))


def read_manifest(path: Path, told: Told) -> SoundSet:
    """Rows of a sound and its words or label: JSON Lines, CSV or TSV. Sounds are looked for beside the file."""
    files = FilesBeside(path, "audio")
    paths, values = list[Path](), list[str]()
    for line, row in named_rows(path, ("audio", told)):
        value = cell_of(path, line, row, told, as_text if told == "text" else as_label)
        if not value:
            files.leave_out(f"rows without a {told}", line)
            continue
        found = files.find(line, row)
        if found is not None:
            paths.append(found)
            values.append(" ".join(value.split()))
    notes = files.notes()
    if not paths:
        raise RegardError(f"there are no sounds in {path}" + ("; " + "; ".join(notes) if notes else ""))
    return SoundSet(tuple(paths), tuple(values), notes=notes, left_out=tuple(files.every))
