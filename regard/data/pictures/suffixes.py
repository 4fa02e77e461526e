"""Which files are pictures, by their names. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

_COMMON = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff", ".avif")
SUFFIXES = frozenset((*_COMMON, ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"))
LOOKED_AT = 50  # files of a folder that are looked at to tell what it holds


def is_picture(path: Path | str) -> bool:
    return Path(path).suffix.lower() in SUFFIXES


def are_pictures(names: Sequence[str]) -> bool:
    """Whether these are sets of pictures with labels: built-in ones, idx files, or folders that hold pictures."""
    return any(name == "builtin/glyphs" or "-ubyte" in Path(name).name or _holds_pictures(Path(name)) for name in names)


def _holds_pictures(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    if any(folder.glob("*-idx3-ubyte*")):
        return True
    return any(is_picture(file) for file in islice(folder.glob("*/*"), LOOKED_AT))
