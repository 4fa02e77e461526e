"""What attention costs over the length: time and memory of several kinds on log-log paper, where a power of T is straight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from regard.errors import RegardError
from regard.look.series import COLORS, GRID, legend, shown_name, style, tidy
from regard.look.sheet import DPI, QUIET, TEXT

MIB = 2**20
POWERS = ((1, "∝ T"), (2, "∝ T²"))  # straight lines to compare with


@dataclass(frozen=True)
class Costs:
    """One kind of attention: seconds and bytes at each length, and the length from which on it beats exact attention."""

    name: str
    seconds: Mapping[int, float]
    bytes: Mapping[int, float]
    pays_from: float | None = None


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
