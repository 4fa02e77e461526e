"""Rows of a map as colours behind the text that is looked at: one word's look, each word's in turn, or the mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import UsageError, nearest
from regard.look.labels import visible, visible_title
from regard.look.map import BEYOND, AttentionMap
from regard.look.running import running
from regard.look.words import WeighedText
from regard.tokens.words import word_label, words_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

MOST_NAMES = 30  # rows named in an error


@dataclass(frozen=True, eq=False)
class RowTexts:
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
        near = near if "did you mean" in near else ""
        raise UsageError(f"no row {which}{near}; there are {told}{' ...' if len(names) > MOST_NAMES else ''}")

    @property
    def _notes(self) -> tuple[str, ...]:
        """Of the map, but for what is true of its own scale alone."""
        return tuple(note for note in self.map.notes if note != BEYOND)

    def _weighed(self, weights: np.ndarray, caption: str) -> WeighedText:
        text, spans = running(self.map.columns)
        groups = words_of(self.map.columns) if self.words else [(n,) for n in range(len(spans))]
        places = tuple((spans[group[0]][0], spans[group[-1]][1]) for group in groups)
        totals = tuple(_total(weights[list(group)]) for group in groups)
        return WeighedText(text, places, totals, self.map.title, "; ".join([caption, *self._notes]))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._drawn(options.max_width, console.color_system in ("256", "truecolor") and not console.no_color)

    def _drawn(self, width: int, colored: bool) -> Text:
        """Every row with all its words, on one scale."""
        from rich.text import Text

        from regard.look.terminal import scale, told
        from regard.look.words_terminal import draw

        rows = [self.row(place) for place in range(len(self.map.rows))]
        top = max(row.top for row in rows)
        lines = [Text(visible_title(self.map.title), style="bold")]
        for row in rows:
            lines += [Text(), Text(row.caption.partition(";")[0], style="italic")]
            same = _OnScale(row.text, row.spans, row.weights, last=top)
            lines += draw(same, width, colored).split("\n")[:-2]  # one legend is enough
        lines += [Text(), scale(top, colored), *told(self._notes, width)]
        return Text("\n", no_wrap=True, overflow="ignore").join(lines)


@dataclass(frozen=True, eq=False)
class _OnScale(WeighedText):
    """A text among several that share a scale."""

    last: float = 1.0

    @property
    def top(self) -> float:
        return self.last


def _total(weights: np.ndarray) -> float:
    known = weights[~np.isnan(weights)]
    return float(np.abs(known).sum()) if known.size else float("nan")
