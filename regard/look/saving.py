"""Something to see, written as the suffix of its file says: a picture, or one of the texts that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import UsageError
from regard.files import write_bytes, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg")
SUFFIXES = (*PICTURES, ".json", ".csv", ".html")  # of a map, a weighed text, lines


def save_as(path: str | Path, what: str, figure: Callable[[], Figure], texts: Mapping[str, Callable[[], str]]) -> Path:
    """Whole or not at all. `what` is it called; `texts` has what makes each kind of text, by suffix."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        from regard.look.figures.sheet import render

        return write_bytes(path, render(figure(), suffix[1:]))
    if suffix in texts:
        return write_text(path, texts[suffix]())
    found = f"ends in {suffix}" if suffix else "has no suffix"
    ways = ", ".join((*PICTURES, *texts))
    raise UsageError(f"cannot tell how to write {what} to {path.name}, which {found}; use {ways}")
