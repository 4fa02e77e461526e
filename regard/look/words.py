"""A text with a weight on each of its pieces, and the rows of a map as such texts: which words a model looked at."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError, UsageError, nearest
from regard.files import JSON, finite
from regard.look.colors import scale_top
from regard.look.labels import one_word, running, visible
from regard.look.map import BEYOND, AttentionMap
from regard.look.shown import Shown
from regard.tokens.words import word_label, words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)  # NaN equals nothing, so that == would have no use
class WeighedText(Shown):
    """A text whose pieces have weights. Its figure is as tall as the text needs.

    A piece without characters, such as a token that only marks the start, has no place in the pictures; what it weighs
    is told beside the scale.
    """

    called = "a text"

    text: str
    spans: tuple[tuple[int, int], ...]  # where each piece starts and ends in `text`; in order, none overlaps another
    weights: tuple[float, ...]  # one for each piece, 0 or more; NaN where it was not weighed
    title: str = ""
    caption: str = ""  # such as "positive 98%"

    def __repr__(self) -> str:
        return brief(self, quoted(self.text), f"{len(self.spans)} pieces")

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple((int(start), int(end)) for start, end in self.spans))
        object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))
        self._check()

    def _check(self) -> None:
        if len(self.spans) != len(self.weights):
            raise RegardError(
                f"{len(self.spans)} pieces but {len(self.weights)} weights; give one weight for each piece"
            )
        for weight in self.weights:
            if weight < 0 or math.isinf(weight):
                raise RegardError(f"a weight is {weight:g}; give 0 or more, or NaN for a piece that was not weighed")
        before = 0
        for start, end in self.spans:
            if not 0 <= start <= end <= len(self.text):
                raise RegardError(
                    f"a piece from {start} to {end} does not lie in a text of {len(self.text)} characters"
                )
            if start < end and start < before:
                raise RegardError(
                    f"a piece starts at {start}, before the last one ended at {before}; "
                    "give the pieces in order, and add up those that share a character"
                )
            before = end if start < end else before

    @property
    def top(self) -> float:
        """The weight that gets the last colour."""
        pieces = zip(self.spans, self.weights, strict=True)
        return scale_top(np.array([weight for (start, end), weight in pieces if start < end])) or 1.0

    @property
    def outside(self) -> float:
        """The weight that lies on pieces without characters."""
        pieces = zip(self.spans, self.weights, strict=True)
        return math.fsum(weight for (start, end), weight in pieces if start == end and not math.isnan(weight))

    @property
    def unweighed(self) -> bool:
        """Whether there is anything to read that has no weight."""
        weighed = zip(self.spans, self.weights, strict=True)
        covered = {place for (start, end), weight in weighed if not math.isnan(weight) for place in range(start, end)}
        return any(place not in covered and not each.isspace() for place, each in enumerate(self.text))

    def merged(self) -> WeighedText:
        """Whole words: pieces without white space between them add up. One that was not weighed adds nothing.

        Chinese and Japanese, which are written without spaces, keep their pieces. Pieces without characters come last.
        """
        words: list[list[int]] = []  # numbers of pieces
        end = 0
        for number, (start, stop) in enumerate(self.spans):
            if start == stop:
                continue
            if words and one_word(self.text, end, start):
                words[-1].append(number)
            else:
                words.append([number])
            end = stop
        spans = [self._word_span(word) for word in words]
        empty = [[number] for number, (start, stop) in enumerate(self.spans) if start == stop]
        weights = [_total([self.weights[number] for number in word]) for word in (*words, *empty)]
        spans += [self.spans[number] for (number,) in empty]
        return WeighedText(self.text, tuple(spans), tuple(weights), self.title, self.caption)

    def _word_span(self, word: list[int]) -> tuple[int, int]:
        """From the first piece to the last, without the spaces around; a word of spaces only keeps them."""
        start, end = self.spans[word[0]][0], self.spans[word[-1]][1]
        inside = self.text[start:end]
        if not inside.strip():
            return start, end
        return end - len(inside.lstrip()), start + len(inside.rstrip())

    def data(self) -> dict[str, JSON]:
        """Everything as strict JSON holds it; a piece that was not weighed has null."""
        pieces = [
            {"start": start, "end": end, "text": self.text[start:end], "weight": weight}
            for (start, end), weight in zip(self.spans, self.weights, strict=True)
        ]
        return finite({"title": self.title, "caption": self.caption, "text": self.text, "pieces": pieces})

    def csv(self) -> str:
        """A line for each piece; the weight of one that was not weighed is empty."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["start", "end", "text", "weight"])
        for (start, end), weight in zip(self.spans, self.weights, strict=True):
            writer.writerow([start, end, self.text[start:end], "" if math.isnan(weight) else repr(weight)])
        return file.getvalue()

    def html(self) -> str:
        """A whole page: no script, nothing loaded from elsewhere."""
        page: str = self._draw("page")
        return page

    def terminal(self, width: int = 80, color: bool = False) -> str:
        """The text for a terminal of that width: with ANSI colours, or with the shades ░▒▓█ under the words."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json, ".csv": self.csv}


def _total(weights: list[float]) -> float:
    known = [weight for weight in weights if not math.isnan(weight)]
    return math.fsum(known) if known else math.nan


MOST_NAMES = 30  # rows named in an error


@dataclass(frozen=True, eq=False)
class RowTexts(Shown):
    """A map (T, S) whose columns are pieces of a text. In a terminal every row in turn; in a file one, or the mean."""

    map: AttentionMap
    words: bool = True  # the pieces of a word share one colour

    def row(self, which: int | str) -> WeighedText:
        """One row: by number from 0, or by its word (the first that reads so)."""
        place = self._place(which)
        weights, caption = self.map.weights[place], f"'{visible(word_label(self.map.rows, [place]))}' looks at"
        return self._weighed(weights, caption)

    def mean(self) -> WeighedText:
        """The mean of all rows, masked cells counting as zero."""
        weights = np.nan_to_num(self.map.weights).mean(axis=0)
        caption = f"mean of {len(self.map.rows)} rows: how much each word is looked at"
        masked = bool(np.isnan(self.map.weights).any())
        return self._weighed(
            weights, f"{caption} (what is masked counts as 0, so early words get more)" if masked else caption
        )

    def save(self, path: str | Path) -> Path:
        return self.mean().save(path)

    def _place(self, which: int | str) -> int:
        names = [word_label([label], [0]) for label in self.map.rows]
        if isinstance(which, str) and which in names:
            return names.index(which)
        number = int(which) if isinstance(which, int) or which.lstrip("-").isdecimal() else None
        if number is not None and 0 <= number < len(names):
            return number
        told = ", ".join(f"{n} {visible(name)}" for n, name in enumerate(names[:MOST_NAMES]))
        near = nearest(which, names) if isinstance(which, str) and number is None else ""
        near = f"{near}; " if "did you mean" in near else ""
        raise UsageError(f"no row {which}", f"{near}there are {told}{' ...' if len(names) > MOST_NAMES else ''}")

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the map, without the one about its own scale."""
        return tuple(note for note in self.map.notes if note != BEYOND)

    def _weighed(self, weights: np.ndarray, caption: str) -> WeighedText:
        text, spans = running(self.map.columns)
        groups = words_of(self.map.columns) if self.words else [(n,) for n in range(len(spans))]
        places = tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups)
        totals = tuple(_weight_of(weights[list(group)]) for group in groups)
        return WeighedText(text, places, totals, self.map.title, "; ".join([caption, *self.notes]))

    def data(self) -> dict[str, JSON]:
        return self.mean().data()

    def figure(self) -> Figure:
        return self.mean().figure()

    def _repr_html_(self) -> str:
        return self.mean()._repr_html_()


@dataclass(frozen=True, eq=False)
class ScaledText(WeighedText):
    """A text among several that share a scale, which ends at `last`."""

    last: float = 1.0

    @property
    def top(self) -> float:
        return self.last


def _weight_of(weights: np.ndarray) -> float:
    known = weights[~np.isnan(weights)]
    return float(np.abs(known).sum()) if known.size else float("nan")
