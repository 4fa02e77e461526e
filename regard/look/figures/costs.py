"""Costs of attention by length on log-log paper, where a power of T is straight, and sparse patterns as small grids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from regard.errors import RegardError
from regard.look.colors import INK, hexadecimal
from regard.look.comparison import Costs
from regard.look.figures.map import hatched
from regard.look.figures.sheet import COLORS, DPI, FRAME, GRID, QUIET, TEXT, legend, shown_name, style, tidy
from regard.look.patterns import Pattern

MIB = 2**20
POWERS = ((1, "∝ T"), (2, "∝ T²"))  # straight lines to compare with


def draw_growth(kinds: Sequence[Costs], what: str = "") -> Figure:
    """Two panels, time and memory; a ring is where a kind begins to pay. `what` says what was timed."""
    if not any(kind.seconds for kind in kinds):
        raise RegardError("nothing to draw: nothing was measured")
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(10.0, 4.6), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for number, kind in enumerate(kinds):
        _draw_line(left, kind.seconds, 1e3, number, _label(kind))
        _draw_line(right, kind.bytes, 1 / MIB, number, _label(kind))
    crossed = _draw_crossovers(left, kinds)
    lengths = sorted({length for kind in kinds for length in kind.seconds})
    for axes, name in ((left, "milliseconds"), (right, "MiB at the peak, beside inputs")):
        _finish(axes, lengths)
        axes.set_ylabel(name)
    legend(figure, left)
    ring = "a ring: from there on it beats exact attention" if crossed else ""
    if what or ring:
        figure.supxlabel("; ".join(filter(None, (what, ring))), fontsize=8.5, color=QUIET, x=0.01, ha="left")
    return figure


def _label(kind: Costs) -> str:
    name = shown_name(kind.name)
    if kind.pays_from is None:
        return name
    return (
        f"{name}, pays throughout"
        if kind.pays_from <= min(kind.seconds)
        else f"{name}, pays from {kind.pays_from:,.0f}"
    )


def _draw_line(axes: Axes, costs: Mapping[int, float], factor: float, number: int, label: str) -> None:
    lengths = sorted(length for length, cost in costs.items() if cost > 0)
    axes.plot(
        lengths, [costs[length] * factor for length in lengths], label=label, linewidth=1.6, markersize=5.5,
        markeredgecolor="white", markeredgewidth=0.6, linestyle="-" if number < len(COLORS) else "--", **style(number),
    )  # fmt: skip


def _draw_crossovers(axes: Axes, kinds: Sequence[Costs]) -> bool:
    """A ring on the line of exact attention, in the colour of who crosses it; whether there is any."""
    crossed = False
    exact = next((kind.seconds for kind in kinds if kind.name == "exact"), {})
    for number, kind in enumerate(kinds):
        if kind.pays_from is None or kind.pays_from <= min(exact):
            continue  # it pays at every length: there is no crossing to see
        crossed, lengths = True, np.log(sorted(exact))
        height = math.exp(np.interp(math.log(kind.pays_from), lengths, np.log([exact[n] for n in sorted(exact)])))
        axes.plot(
            kind.pays_from, 1e3 * height, marker="o", markersize=11, markerfacecolor="none", markeredgewidth=1.6,
            markeredgecolor=style(number)["color"], linestyle="none", zorder=4,
        )  # fmt: skip
    return crossed


def _finish(axes: Axes, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _draw_powers(axes, lengths)
    tidy(axes)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.xaxis.set_major_locator(FixedLocator(list(lengths)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("T, positions of the sequence")
    crowded = len(lengths) > 6
    axes.tick_params(axis="x", rotation=35 if crowded else 0, labelcolor=TEXT)


def _draw_powers(axes: Axes, lengths: Sequence[int]) -> None:
    """Faint straight lines of T and T² from the lower left corner of what is drawn, named where they leave it."""
    if len(lengths) < 2:
        return
    low, high = axes.get_ylim()
    first, shortest, longest = low * 1.2, lengths[0], lengths[-1]
    for power, name in POWERS:
        last = min(longest, shortest * (high / first) ** (1 / power))
        end = first * (last / shortest) ** power
        axes.plot([shortest, last], [first, end], color=QUIET, linewidth=0.8, linestyle=(0, (4, 4)), zorder=1)
        place: dict[str, Any] = (
            {"xytext": (9, -3), "ha": "left"} if last == longest else {"xytext": (0, 4), "ha": "center"}
        )
        axes.annotate(name, (last, end), textcoords="offset points", fontsize=8.5, color=QUIET, **place)
    axes.set_ylim(low, high)


SEEN, UNSEEN = hexadecimal(INK[6]), hexadecimal(INK[0])


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
