"""A piece of music as a piano roll: time across, pitch up, and from each note a line to the one that was looked at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from regard.look.shown import Shown
from regard.tokens.notes import Note

LEAST = 0.1  # weight of a line that is drawn


@dataclass(frozen=True)
class Link:
    """A look from one note at an earlier one, by their numbers, with its weight."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class PianoRoll(Shown):
    """The notes of a piece in the order in which they are told.

    `weights[i, j]` is how much the model looked at note j when it named note i; None for a model without attention.
    """

    called = "a piano roll"

    notes: tuple[Note, ...]
    bars: tuple[int, ...]  # the step at which each begins
    weights: np.ndarray | None = None  # (N, N)
    chosen: int | None = None  # the note whose look is shown; None: that of each, at what it looked at most
    given: int = 0  # notes that were there before the model wrote
    title: str = ""
    told: tuple[str, ...] = ()

    @property
    def voices(self) -> tuple[int, ...]:
        return tuple(sorted({note.voice for note in self.notes}))

    @property
    def end(self) -> int:
        """The step at which all is silent."""
        return max((note.end for note in self.notes), default=1)

    def links(self) -> list[Link]:
        """The lines to draw: of the chosen note to all, or of each note to what it looked at most; faint ones are left out."""
        if self.weights is None:
            return []
        rows = range(len(self.notes)) if self.chosen is None else (self.chosen,)
        found = list[Link]()
        for row in rows:
            weights = self.weights[row]
            columns = np.flatnonzero(weights >= LEAST) if self.chosen is not None else [int(weights.argmax())]
            found += [Link(row, int(at), float(weights[at])) for at in columns if weights[at] >= LEAST]
        return found

    def _alternative(self) -> str:
        return f"{self.title}: {len(self.notes)} notes in {len(self.bars)} bars"

    def data(self) -> Mapping[str, object]:
        notes = [
            {
                "start": note.start,
                "length": note.length,
                "pitch": note.pitch,
                "voice": note.voice,
                "loudness": note.loudness,
            }
            for note in self.notes
        ]
        weights = None if self.weights is None else self.weights.tolist()
        return {
            "title": self.title,
            "notes": notes,
            "bars": list(self.bars),
            "weights": weights,
            "chosen": self.chosen,
            "given": self.given,
            "told": list(self.told),
        }

    def text(self, width: int = 80, color: bool = False) -> str:
        """The roll for a terminal of that width."""
        return self._terminal(width, color)

    def html(self) -> str:
        """A whole page with the picture; nothing is loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".json": self.json, ".html": self.html}
