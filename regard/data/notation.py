"""Files that are no text, read as documents of text: music in words, sound in letters, pictures in digits.

A file says by its suffix how it is written down; a folder, by most of its files. What it is written in has tokens of its own
(`tokens.kind`), and a model that learned them writes files of the same kind again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.config import find_file
from regard.data.form import Form, in_sets, is_packed
from regard.data.pictures.config import SUFFIXES as PICTURES
from regard.data.sound.config import SUFFIXES as SOUNDS
from regard.data.sound.config import WAV
from regard.errors import RegardError, UsageError
from regard.plugins import imported

LOOKED_AT = 50  # files of a folder that are looked at to tell what it holds
SPLITS = ("train", "valid", "test")
PLAIN = Form()
FIGURE_SIDE = 16  # of built-in pictures


@dataclass(frozen=True)
class Notation:
    """How files of a kind become texts; functions are named as "module:name", and imported when something is read."""

    tokens: str  # the kind of tokens that such texts are made of
    called: str  # the files, for a person
    suffixes: tuple[str, ...]  # of files that are read; the first is that of files that are written
    builtin: tuple[str, ...]
    reader: str  # (file, its label or "", form) -> its text
    maker: str  # (built-in set, split, characters, form) -> texts
    example: str  # what to type to use the model in {model}
    test: str = "folder"  # data to score it on, of a person's own
    unpacker: str = ""  # (files of a set, form) -> its texts; empty: there are no such sets

    def read(self, path: Path, label: str = "", form: Form = PLAIN) -> str:
        """The text of a file."""
        text: str = imported(self.reader)(path, label, form)
        return text

    def unpack(self, paths: Sequence[Path], form: Form = PLAIN) -> Iterable[str]:
        """The texts of a set that is packed in a file, or in several that belong together."""
        texts: Iterable[str] = imported(self.unpacker)(paths, form)
        return texts

    def fits(self, path: Path) -> bool:
        """Whether a file is of this kind, by its name."""
        return path.suffix.lower() in self.suffixes or (bool(self.unpacker) and is_packed(path))

    def documents(self, name: str, size: int, form: Form = PLAIN) -> Iterable[str]:
        """The texts of a built-in set, as builtin/canon or builtin/canon/test, with about so many characters."""
        base = _set_of(name)
        split = name.removeprefix(base).strip("/") or "train"
        if split not in SPLITS:
            raise UsageError(f"there is no {name}", f"write {base}, {base}/valid or {base}/test")
        made: Iterable[str] = imported(self.maker)(base, split, size if split == "train" else size // 20, form)
        return made


NOTATIONS = {
    "notes": Notation(
        "notes",
        "MIDI files",
        (".mid", ".midi"),
        ("builtin/canon", "builtin/scales", "builtin/cadences"),
        "regard.data.midi:midi_text",
        "regard.data.builtin.music:music_documents",
        "regard generate -m {model} -o piece.mid -o roll.png",
    ),
    "samples": Notation(
        "samples",
        "sounds",
        (*WAV, *sorted(SOUNDS - set(WAV))),
        ("builtin/tones", "builtin/chords"),
        "regard.data.wave_texts:sound_text",
        "regard.data.wave_texts:tone_documents",
        "regard generate -m {model} -o sound.wav -o sound.png",
    ),
    "pixels": Notation(
        "pixels",
        "pictures",
        (".png", *sorted(PICTURES - {".png"})),
        ("builtin/figures",),
        "regard.data.pixel_texts:pixel_text",
        "regard.data.pixel_texts:figure_texts",
        "regard generate -m {model} --samples 64 -o sheet.png",
        unpacker="regard.data.pixel_texts:set_texts",
    ),
}
BUILTIN = tuple(name for notation in NOTATIONS.values() for name in notation.builtin)


def notation_of(name: str, data_root: Path | None = None) -> Notation | None:
    """How a built-in set, a file or a folder is written down; None: it is text, or not there."""
    if name.startswith("builtin/"):
        return next((each for each in NOTATIONS.values() if _set_of(name) in each.builtin), None)
    try:
        path = find_file(name, data_root)
    except RegardError:  # who reads it says that it is not there
        path = Path(name)
    return notation_of_path(path)


def notation_of_path(path: Path) -> Notation | None:
    """How a file is written down, by its suffix; a folder, by most of its files."""
    if not path.is_dir():
        return next((each for each in NOTATIONS.values() if each.fits(path)), None)
    files = islice((file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")), LOOKED_AT)
    counted = Counter(each.tokens if (each := notation_of_path(file)) else "" for file in files)
    return NOTATIONS.get(counted.most_common(1)[0][0]) if counted else None


def tokens_for(names: Sequence[str], data_root: Path | None = None) -> str | None:
    """The kind of tokens that these data are written in; None for text. Several kinds at once are refused."""
    kinds = {name: each.tokens if (each := notation_of(name, data_root)) else None for name, *_ in in_sets(names)}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name} ({kind or 'text'})" for name, kind in kinds.items())
        raise UsageError(f"these are written in different ways: {told}", "learn from one of them")
    return next(iter(kinds.values()), None)


def side_of(names: Sequence[str], data_root: Path | None = None) -> int | None:
    """Height and width of the first pictures that are named, for models of their pixels; None if nobody can tell yet."""
    first = next(in_sets(names))
    if first[0].startswith("builtin/"):
        return FIGURE_SIDE
    try:
        found: int = imported("regard.data.pixel_texts:side_of")([find_file(name, data_root) for name in first])
    except RegardError:  # who reads them says what is wrong
        return None
    return found


def _set_of(name: str) -> str:
    return "/".join(name.split("/")[:2])
