"""Sparse attention patterns drawn as small grids: which pairs of query and key each kernel computes.

Only kernels whose pattern is fixed have one: window (Beltagy et al. 2020), strided and fixed (Child et al. 2019), BigBird
(Zaheer et al. 2020). Reformer's depends on the text, and the others see every pair, each in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from regard.attention.kernels import KERNELS, Setting
from regard.errors import UsageError
from regard.look.colors import INK, hexadecimal
from regard.look.figure import hatched
from regard.look.sheet import DPI, FRAME, QUIET, TEXT

NONE = "reformer's pattern depends on the text; linformer, performer and linear see every pair: they have no pattern"
SEEN, UNSEEN = hexadecimal(INK[6]), hexadecimal(INK[0])


@dataclass(frozen=True, eq=False)
class Pattern:
    """Which pairs one kernel sees; `pairs` is None where it refuses, and `settings` then says why."""

    name: str
    causal: bool
    settings: str
    pairs: np.ndarray | None  # (T, T) booleans, a row for each query

    @property
    def share(self) -> float:
        """Of the pairs that are there to see: all, or those with what came before."""
        assert self.pairs is not None
        length = len(self.pairs)
        return float(self.pairs.sum()) / (length * (length + 1) / 2 if self.causal else length**2)

    def data(self) -> dict[str, Any]:
        seen = {} if self.pairs is None else {"share": self.share, "pairs": self.pairs.astype(int).tolist()}
        return {"name": self.name, "causal": self.causal, "settings": self.settings, **seen}


def patterns(length: int) -> list[Pattern]:
    """Every pattern at a length, to both sides and causal, with sizes that fit so small a picture."""
    if length < 2:
        raise UsageError(f"a pattern needs two positions or more, not {length}; choose --length 64")
    root, block = max(2, round(math.sqrt(length))), max(1, length // 16)
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("window", "window", {"reach": root // 2, "globals": 2}),
        ("strided", "strided", {"pattern": "strided", "stride": root}),
        ("fixed", "strided", {"pattern": "fixed", "stride": root, "summary": max(1, root // 4)}),
        ("bigbird", "bigbird", {"block": block, "window": 3, "globals": 1, "random": 2}),
    ]
    return [_pattern(*each, causal=causal, length=length) for causal in (False, True) for each in kinds]


def _pattern(name: str, kind: str, options: dict[str, Any], *, causal: bool, length: int) -> Pattern:
    if kind == "window" and causal:
        options = {"reach": options["reach"]}  # causal windows have no global tokens
    told = ", ".join(f"{key} {value}" for key, value in options.items() if key != "pattern")
    try:
        kernel: Any = KERNELS[kind](Setting(1, 8, causal=causal, longest=length), **options)
    except UsageError as refusal:
        return Pattern(name, causal, str(refusal).partition(";")[0], None)
    pairs = np.asarray(kernel.pattern(length, length).cpu().numpy(), dtype=bool)
    return Pattern(name, causal, told, pairs)


def draw_patterns(found: Sequence[Pattern]) -> Figure:
    """A line of grids to both sides, and a causal one below."""
    lines = [[each for each in found if each.causal is causal] for causal in (False, True)]
    lines = [line for line in lines if line]
    across = max(map(len, lines))
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(2.75 * across, 3.3 * len(lines) + 0.4), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(lines), across, squeeze=False)
    for row, line in zip(grid, lines, strict=True):
        for axes, each in zip(row, line, strict=True):
            _draw(axes, each)
        row[0].set_ylabel("causal" if line[0].causal else "to both sides", fontsize=10, color=TEXT)
    figure.supxlabel("a row for each query, a column for each key; causal shares are of pairs with what came before",
                     fontsize=8.5, color=QUIET, x=0.01, ha="left")  # fmt: skip
    return figure


def _draw(axes: Axes, each: Pattern) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=FRAME, linewidth=0.6)
    axes.set_box_aspect(1)
    axes.set_title(each.name, fontsize=10, color=TEXT, fontweight="bold")
    if each.pairs is None:
        axes.text(0.5, 0.5, each.settings, transform=axes.transAxes, ha="center", va="center", fontsize=8.5, color=QUIET,
                  wrap=True)  # fmt: skip
        return
    length = len(each.pairs)
    if each.causal:
        axes.add_patch(hatched(axes))
    hidden = np.triu(np.ones((length, length), dtype=bool), 1) if each.causal else np.zeros_like(each.pairs)
    colors = np.zeros((length, length, 4))
    colors[~hidden] = _rgba(UNSEEN)
    colors[each.pairs] = _rgba(SEEN)  # a pair that causality forbids would show here
    axes.imshow(colors, interpolation="nearest", extent=(0, length, length, 0), aspect="auto", zorder=1)
    axes.set_xlabel(f"{each.share:.1%} of pairs\n{each.settings}", fontsize=8.5, color=TEXT)


def _rgba(color: str) -> tuple[float, float, float, float]:
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue, 1.0
