"""What the figures of experiments share: panels, lines and dots with the spread of their seeds, in the look of the others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from regard.look.figures.sheet import COLORS, DPI, GRID, QUIET, TEXT, style, tidy

Curve = Mapping[float, Sequence[float]]  # x -> the values of all seeds


def panels(rows: int, columns: int, width: float = 4.6, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of that size, in inches, row by row."""
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(width * columns, height * rows + 0.5), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    return figure, [axes for row in figure.subplots(rows, columns, squeeze=False) for axes in row]


def line(axes: Axes, curve: Curve, name: str, place: int, **look: Any) -> None:
    """The mean of the seeds as a line, and a band from the least of them to the greatest."""
    xs = [x for x in sorted(curve) if curve[x] and not any(map(math.isnan, curve[x]))]
    low, high = [min(curve[x]) for x in xs], [max(curve[x]) for x in xs]
    own = {"markersize": 5.5, **style(place), **look}
    axes.plot(
        xs, [statistics.fmean(curve[x]) for x in xs], label=name, linewidth=1.6, markeredgecolor="white",
        markeredgewidth=0.6, linestyle="-" if place < len(COLORS) else "--", **own,
    )  # fmt: skip
    axes.fill_between(xs, low, high, color=own["color"], alpha=0.18, linewidth=0)


def dots(
    axes: Axes,
    groups: Mapping[str, Sequence[float]],
    colors: Sequence[str],
    title: str = "",
    x: str = "",
    *,
    named: bool = True,
) -> None:
    """A row for each group, from the first above to the last below: a bar to the mean, and a dot for each seed.

    Not `named`: the panel beside it has the names.
    """
    for place, values in enumerate(groups.values()):
        _row(axes, place, [value for value in values if not math.isnan(value)], colors[place])
    axes.set_yticks(range(len(groups)), list(groups) if named else [""] * len(groups))
    axes.set_ylim(len(groups) - 0.4, -0.6)
    most = max((value for values in groups.values() for value in values if not math.isnan(value)), default=0.0)
    axes.set_xlim(0, 1.06 * most if most > 0 else 1.0)
    titled(axes, title, x)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=GRID, linewidth=0.7)


def _row(axes: Axes, place: int, values: Sequence[float], color: str) -> None:
    if not values:
        axes.text(0, place, " diverged", va="center", fontsize=8.5, color=QUIET)
        return
    axes.barh(place, statistics.fmean(values), height=0.62, color=color, alpha=0.28, linewidth=0)
    axes.plot([min(values), max(values)], [place, place], color=color, linewidth=1.4)
    axes.plot(
        values, [place] * len(values), "o", color=color, markersize=5, markeredgecolor="white", markeredgewidth=0.6
    )


def titled(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Title above to the left, names of the axes, and nothing that is not needed."""
    axes.set_title(title, loc="left", fontsize=10, color=TEXT)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    tidy(axes)


def powers(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic x axis with a tick at each of these values."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(value) for value in values]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1/{1 / value:g}" if value < 0.1 else f"{value:,g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(values) > 10:
        axes.tick_params(axis="x", rotation=35)


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers where they are short."""
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if high < 300 * low:  # else powers of ten alone are enough
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    if low > 1e-5 and high < 1e6:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def percent(axes: Axes) -> None:
    axes.set_ylim(-4, 104)
    axes.set_yticks(range(0, 101, 25))


def noted(figure: Figure, text: str) -> None:
    """A quiet line below everything: what is drawn, of how many seeds."""
    figure.supxlabel(text, fontsize=8.5, color=QUIET, x=0.01, ha="left")


def by(values: Sequence[tuple[float, float]]) -> dict[float, list[float]]:
    """Pairs (x, y) as a curve: all y of each x."""
    curve: dict[float, list[float]] = {}
    for x, y in values:
        curve.setdefault(x, []).append(y)
    return curve
