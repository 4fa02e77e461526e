"""Pictures that a model wrote pixel by pixel: a sheet of them, and a film of how one was written and what was looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from regard.errors import UsageError
from regard.files import write_bytes
from regard.look.shown import Written

ACROSS = 8  # pictures beside each other, where nothing else is told
SHEETS, FILMS = (".png", ".html", ".json"), (".gif", ".html", ".json")  # by `regard generate`
STRIP = 6  # frames of a film that stand in one picture


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class WrittenPicture:
    """A picture in grey levels; -1 where nothing is written yet. The first `given` pixels were there before the model wrote."""

    levels: np.ndarray  # (rows, columns)
    label: str = ""
    given: int = 0

    @property
    def beginning(self) -> np.ndarray:
        """What was there before the model wrote, and nothing else."""
        places = np.arange(self.levels.size).reshape(self.levels.shape)
        return np.where(places < self.given, self.levels, -1)


@dataclass(frozen=True, eq=False)
class PictureSheet(Written):
    """Pictures beside and below each other. One that went on from a true picture stands in the row of that.

    `true[i]` is the picture that row i went on from; each row then has as many written ones.
    """

    called = "a sheet of pictures"

    pictures: tuple[WrittenPicture, ...]
    count: int  # of grey levels
    true: tuple[np.ndarray, ...] = ()
    across: int = ACROSS
    heads: tuple[str, ...] = ()  # above each column
    title: str = ""

    def rows(self) -> list[list[np.ndarray]]:
        """The levels of each picture of each row: the true one and its beginning first, where there is one."""
        each = len(self.pictures) // len(self.true) if self.true else self.across
        rows = [self.pictures[at : at + each] for at in range(0, len(self.pictures), each)]
        written = [[picture.levels for picture in row] for row in rows]
        if not self.true:
            return written
        return [[whole, row[0].beginning, *levels] for whole, row, levels in zip(self.true, rows, written, strict=True)]

    def columns(self) -> tuple[str, ...]:
        """The words above the columns, if there are any."""
        if not self.true:
            return self.heads
        return "true", "given", *["written"] * (len(self.pictures) // len(self.true))

    def save(self, path: str | Path) -> Path:
        """By suffix: a picture (.png; one alone has its own size, pixel by pixel), a page (.html), or all numbers (.json)."""
        path = Path(path)
        if path.suffix.lower() == ".png":
            alone = len(self.pictures) == 1 and not self.true
            return write_bytes(path, self._draw("picture", alone))
        return self._save(path, {".html": self.html, ".json": self.json}, (".png",))

    def html(self) -> str:
        """A whole page with the sheet; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """The pictures for a terminal of that width."""
        return self._terminal(width, color)

    def _alternative(self) -> str:
        return f"{self.title or 'pictures'}: {len(self.pictures)} that a model wrote pixel by pixel"

    def _repr_png_(self) -> bytes:
        png: bytes = self._draw("picture", False)
        return png

    def data(self) -> Mapping[str, object]:
        written = [{"label": each.label, "given": each.given, "levels": each.levels.tolist()} for each in self.pictures]
        return {
            "title": self.title,
            "levels": self.count,
            "pictures": written,
            "true": [each.tolist() for each in self.true],
        }


@dataclass(frozen=True, eq=False)
class WritingFilm(Written):
    """How a picture was written, pixel after pixel, and where the model looked when it wrote some of them.

    `looks[k, j]` is how much pixel `frames[k]` looked at pixel j; all pixels behind it are not yet there.
    """

    called = "a film of the writing"

    picture: WrittenPicture
    count: int  # of grey levels
    frames: tuple[int, ...]  # the numbers of the pixels that are shown being written
    looks: np.ndarray  # (frames, pixels)
    how: str  # what `looks` are
    title: str = ""

    def so_far(self, pixel: int) -> np.ndarray:
        """The picture when this pixel is about to be written."""
        levels = self.picture.levels
        places = np.arange(levels.size).reshape(levels.shape)
        return np.where(places < max(pixel, self.picture.given), levels, -1)

    def save(self, path: str | Path) -> Path:
        """By suffix: a film (.gif, .html), some of its frames (.png), or all numbers (.json)."""
        path = Path(path)
        if path.suffix.lower() == ".gif":
            return write_bytes(path, self._draw("film"))
        if path.suffix.lower() == ".png":
            return write_bytes(path, self._draw("picture"))
        return self._save(path, self._texts(), (".gif", ".png"))

    def strip(self) -> list[int]:
        """Numbers of the frames that stand in one picture: one of each stretch, which writes a bright pixel if there is one."""
        levels, count = self.picture.levels.reshape(-1)[list(self.frames)], len(self.frames)
        ends = [number * count // STRIP for number in range(STRIP + 1)]
        stretches = [np.arange(*pair) for pair in pairwise(ends) if pair[0] < pair[1]]
        middle_first = [each[np.argsort(np.abs(each - each.mean()), kind="stable")] for each in stretches]
        return [int(each[levels[each].argmax()]) for each in middle_first]

    def html(self) -> str:
        """A whole page with the film; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json}

    def _alternative(self) -> str:
        return f"{self.title}: {len(self.frames)} of {self.picture.levels.size} pixels being written; {self.how}"

    def data(self) -> Mapping[str, object]:
        return {
            "title": self.title,
            "how": self.how,
            "label": self.picture.label,
            "given": self.picture.given,
            "levels": self.count,
            "picture": self.picture.levels.tolist(),
            "frames": [
                {"pixel": pixel, "looks": look.tolist()} for pixel, look in zip(self.frames, self.looks, strict=True)
            ],
        }


def check_picture_file(path: Path) -> None:
    """Refuse a file that neither a sheet nor a film can be written to."""
    fits = dict.fromkeys((*SHEETS, *FILMS))
    if path.suffix.lower() not in fits:
        raise UsageError(f"cannot tell how to write {path.name}", f"this model writes {', '.join(fits)}")


def as_picture(levels: Sequence[int] | np.ndarray, side: int, label: str = "", given: int = 0) -> WrittenPicture:
    """A picture of the levels in the order of reading; those that are not there are not written."""
    whole = np.full(side * side, -1, dtype=np.int64)
    whole[: len(levels)] = levels[: side * side]
    return WrittenPicture(whole.reshape(side, side), label, given)
