"""All heads of a model at a glance: a line of small maps for each layer, a column for each head, one scale for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.brief import brief, quoted
from regard.errors import RegardError
from regard.files import finite
from regard.look.formats import layers_as_csv
from regard.look.map import AttentionMap
from regard.look.saving import save_as

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True, eq=False)
class AllHeads:
    """Every layer and head on one text. Shows itself in a notebook and on a rich console."""

    layers: dict[str, np.ndarray]  # module path -> (H, T, S), NaN where masked
    columns: tuple[str, ...]  # S labels: what is looked at
    rows: tuple[str, ...]  # T labels: who looks
    title: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shape = f"{len(self.rows)} x {len(self.columns)}"
        return brief(self, quoted(self.title) if self.title else "", f"{len(self.layers)} layers", shape)

    def __post_init__(self) -> None:
        if not self.layers:
            raise RegardError("a grid of heads without layers: there is nothing to show")
        for name, weights in self.layers.items():
            if weights.ndim != 3 or weights.shape[1:] != (len(self.rows), len(self.columns)):
                raise RegardError(
                    f"{name} has weights of shape {weights.shape}, but there are {len(self.rows)} rows and "
                    f"{len(self.columns)} columns; give (heads, rows, columns)"
                )

    @property
    def heads(self) -> int:
        """Of the layer that has most."""
        return max(len(each) for each in self.layers.values())

    def words(self) -> AllHeads:
        """As `AttentionMap.words`."""
        return self._split(self._whole().words())

    def hide(self, specials: bool = True, labels: Sequence[str] = ()) -> AllHeads:
        """As `AttentionMap.hide`; what the hidden tokens had is told of all heads together."""
        return self._split(self._whole().hide(specials, labels))

    def _whole(self) -> AttentionMap:
        weights = np.concatenate(list(self.layers.values()))  # (L H, T, S)
        return AttentionMap(weights, self.columns, self.rows, self.title, self.notes)

    def _split(self, map: AttentionMap) -> AllHeads:
        ends = np.cumsum([len(each) for each in self.layers.values()])[:-1]
        layers = dict(zip(self.layers, np.split(map.weights, ends), strict=True))
        return AllHeads(layers, map.columns, map.rows, map.title, map.notes)

    def save(self, path: str | Path) -> Path:
        """Write the heads in the format that the suffix names, whole or not at all."""
        return save_as(path, "heads", self.figure, {".html": self.html, ".json": self.json, ".csv": self.csv})

    def data(self) -> dict[str, Any]:
        """Everything as strict JSON holds it; a masked cell is null."""
        layers = {name: weights.tolist() for name, weights in self.layers.items()}
        return finite(
            {"title": self.title, "notes": self.notes, "columns": self.columns, "rows": self.rows, "layers": layers}
        )

    def json(self) -> str:
        return json.dumps(self.data(), ensure_ascii=False, allow_nan=False) + "\n"

    def csv(self) -> str:
        return layers_as_csv(list(self.layers.values()), self.columns, self.rows)

    def html(self) -> str:
        """A whole page: all heads small, and the one that is clicked large, with every number under the pointer."""
        from regard.look.page import page

        lines = [
            [(f"layer {layer}, head {head}", weights) for head, weights in enumerate(each)]
            for layer, each in enumerate(self.layers.values())
        ]
        return page(lines, self.columns, self.rows, self.title, self.notes)

    def figure(self) -> Figure:
        from regard.look.all_heads_figure import draw

        return draw(self)

    def text(self, width: int = 80, color: bool = False) -> str:
        """The heads for a terminal of that width: with ANSI colours, or with the shades ░▒▓█."""
        from regard.look.all_heads_terminal import draw
        from regard.look.terminal import ansi

        return ansi(draw(self, width, color)) if color else draw(self, width, color).plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from regard.look.all_heads_terminal import draw

        yield draw(self, options.max_width, console.color_system in ("256", "truecolor") and not console.no_color)

    def _repr_png_(self) -> bytes:
        from regard.look.sheet import render

        return render(self.figure(), "png")

    def _repr_html_(self) -> str:
        from regard.look.html import picture

        return picture(self._repr_png_(), self.title or "all heads", self.notes)
