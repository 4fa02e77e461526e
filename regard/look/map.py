"""An attention map: who looks where, how much, with a label on every row and column.

It only holds numbers and names; the pictures are drawn by the neighbours, imported when they are asked for, so that
importing this file costs nothing but numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError, UsageError
from regard.files import write_bytes
from regard.look import formats
from regard.look.colors import only_key, scale_top
from regard.look.saving import save_as

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, ConsoleOptions, RenderResult

    from regard.look.lines import Lines

BEYOND = "a row that may see one key only gives it all its weight, which is beyond the scale"


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class AttentionMap:
    """Weights of one attention, or of its heads. Shows itself in a notebook and on a rich console."""

    weights: np.ndarray  # (T, S) or (H, T, S): every row a query, summing to one; NaN where masked
    columns: tuple[str, ...]  # S labels: what is looked at
    rows: tuple[str, ...]  # T labels: who looks
    title: str = ""
    notes: tuple[str, ...] = ()  # what was done to the weights since the model computed them

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        for name in ("columns", "rows", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check()
        told = tuple(note for note in self.notes if note != BEYOND)
        object.__setattr__(self, "notes", (*told, BEYOND) if self._beyond() else told)

    def __repr__(self) -> str:
        return brief(self, quoted(self.title) if self.title else "", " x ".join(map(str, self.weights.shape)))

    def _beyond(self) -> bool:
        """Whether a row that sees one key only has more weight there than the scale of colours reaches."""
        alone = only_key(self.weights)
        return bool(alone.any() and self.weights[alone].max() > scale_top(self.weights) * (1 + 1e-6))

    def _check(self) -> None:
        if self.weights.ndim not in (2, 3):
            raise RegardError(f"an attention map is (T, S) or (H, T, S), not {self.weights.shape}; choose one of each")
        if self.weights.shape[-2:] != (len(self.rows), len(self.columns)):
            raise RegardError(
                f"weights for {self.weights.shape[-2]} rows and {self.weights.shape[-1]} columns, "
                f"but {len(self.rows)} row labels and {len(self.columns)} column labels"
            )
        if 0 in self.weights.shape:
            raise RegardError(f"an attention map of shape {self.weights.shape} is empty: there is nothing to show")
        if np.isinf(self.weights).any():
            raise RegardError("an attention map holds weights, not scores: found infinity; NaN marks a masked cell")

    @property
    def heads(self) -> int:
        """How many heads there are; a map without heads counts as one."""
        return 1 if self.weights.ndim == 2 else len(self.weights)

    def mean(self) -> AttentionMap:
        """The average over heads. A cell is masked in it where every head masks it; elsewhere masked counts as zero."""
        if self.weights.ndim == 2:
            return self
        masked = np.isnan(self.weights)  # (H, T, S)
        average = np.where(masked, 0.0, self.weights).mean(axis=0)  # (T, S)
        return replace(self, weights=np.where(masked.all(axis=0), np.nan, average))

    def head(self, index: int) -> AttentionMap:
        """One head, counted from 0."""
        if not 0 <= index < self.heads:
            raise UsageError(f"no head {index}; this map has {self.heads}, numbered from 0 to {self.heads - 1}")
        if self.weights.ndim == 2:
            return self
        name = f"head {index}"
        title = f"{self.title} · {name}" if self.title else name
        return replace(self, weights=self.weights[index], title=title)

    def words(self) -> AttentionMap:
        """Pieces joined into words, on both axes: columns add up, rows are averaged, so a row's sum stays."""
        from regard.look.merging import into_words

        return into_words(self)

    def hide(self, specials: bool = True, labels: Sequence[str] = ()) -> AttentionMap:
        """Without special tokens (<s>, </s>, [CLS]) and those with the given labels; a note says what they had."""
        from regard.look.hiding import without

        return without(self, specials, labels)

    def lines(self) -> Lines:
        """The same weights as lines between two sentences."""
        from regard.look.lines import Lines

        return Lines(self)

    def save(self, path: str | Path) -> Path:
        """Write the map in the format that the suffix names, whole or not at all."""
        return save_as(path, "a map", self.figure, {".json": self.json, ".csv": self.csv, ".html": self.html})

    def png(self, path: str | Path) -> Path:
        """Write the figure as PNG, whatever the file is called."""
        return write_bytes(path, self._repr_png_())

    def json(self) -> str:
        return formats.as_json(self.weights, self.columns, self.rows, self.title, self.notes)

    def csv(self) -> str:
        return formats.as_csv(self.weights, self.columns, self.rows)

    def html(self) -> str:
        """A whole page: the map, and every number under the pointer; nothing is loaded from elsewhere."""
        from regard.look.page import page_of

        return page_of(self)

    def text(self, width: int = 80, color: bool = False) -> str:
        """The map for a terminal of that width: with ANSI colours, or with the shades ░▒▓█."""
        from regard.look.terminal import ansi, draw

        return ansi(draw(self, width, color)) if color else draw(self, width, color).plain

    def figure(self) -> Figure:
        """A matplotlib figure: a heat map, or one for each head."""
        from regard.look.figure import draw

        return draw(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from regard.look.terminal import draw

        yield draw(self, options.max_width, console.color_system in ("256", "truecolor") and not console.no_color)

    def _repr_png_(self) -> bytes:
        from regard.look.sheet import render

        return render(self.figure(), "png")

    def _repr_html_(self) -> str:
        from regard.look.html import table

        return table(self)
