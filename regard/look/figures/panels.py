"""Panels on a page: heat maps, charts, pictures and tables, side by side while there is room, then below each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from regard.look.colors import DIVERGING, INK, hexadecimal, ink_on, shades
from regard.look.figures.sheet import (
    COLORS,
    FRAME,
    MARGIN,
    POINTS,
    QUIET,
    RAMP,
    TEXT,
    Pen,
    cut,
    families_of,
    heading,
    heading_height,
    lines_of,
    sheet,
    show,
    style,
    tidy,
    write_heading,
)
from regard.look.labels import visible_title
from regard.look.panels import Chart, Contours, Curves, Facts, Gallery, HeatMap, OnePanel, Panels, Photo, short

ROOM = 10.6  # inches across
GAP, BELOW = 0.42, 0.22  # inches between panels
CELL, SMALLEST_CELL = 0.2, 0.075  # inches of a cell with a label; where there are many rows, or columns
WORDS = (0.86, 0.25)  # inches of a cell with words in it
LONGEST = 1.1  # inches of a label
SMALL, BETWEEN = 1.14, 0.16  # inches of a picture in a gallery, and between two
CHART = (4.3, 2.4)  # inches of the lines; their labels come to it
PHOTO = 2.5  # inches
SURFACE, LOWEST = (3.4, 3.4), 50  # inches of a surface; its lowest line is so many times below the highest
BAR, THICK = 1.1, 0.1  # inches of the scale of colours
DASHES = ("-", "--", ":")  # of lines that have a colour again
BOX_COLORS = ("#d55e00", "#009e73", "#cc79a7")


@dataclass(frozen=True)
class Pens:
    """What panels are written with."""

    title: Pen
    note: Pen
    label: Pen

    @classmethod
    def of(cls, families: list[str]) -> Pens:
        return cls(Pen(9.5, families, weight="bold"), Pen(8.0, families, color=QUIET), Pen(7.5, families))


Draw = Callable[[Figure, Axes, float, float], None]


@dataclass(frozen=True)
class Placed:
    """A panel that knows how large it is, in inches, and how it is drawn at a place."""

    width: float
    height: float
    draw: Draw
    begins_line: bool = False


def draw_panels(view: Panels) -> Figure:
    """Title, notes, and all panels."""
    return panels_figure(view.panels(), view.title, view.notes)


def panels_figure(panels: Sequence[OnePanel], title: str = "", notes: Sequence[str] = ()) -> Figure:
    """Panels under a heading, in lines that fit the page."""
    families = families_of(title, *notes, *(text for panel in panels for text in _texts(panel)))
    pens = Pens.of(families)
    placed = [part for panel in panels for part in _placed(panel, pens)]
    lines = list(_lines(placed))
    width = max([sum(each.width for each in line) + GAP * (len(line) - 1) for line in lines] + [4.5 if title else 0.0])
    above = heading(title, "", families, width)
    told = [line for note in notes for line in lines_of(note, pens.note, width)]
    height = heading_height(above) + sum(max(each.height for each in line) + BELOW for line in lines)
    figure, axes = sheet(width, height + len(told) * pens.note.pitch - (0 if told else BELOW))
    y = write_heading(axes, above)
    for line in lines:
        x = 0.0
        for each in line:
            each.draw(figure, axes, x, y)
            x += each.width + GAP
        y += max(each.height for each in line) + BELOW
    for number, note in enumerate(told):
        pens.note.write(axes, 0.0, y + number * pens.note.pitch, note)
    return figure


def _lines(placed: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Panels side by side while they fit; those of one height stay together."""
    line: list[Placed] = []
    for each in placed:
        if line and (each.begins_line or sum(one.width + GAP for one in line) + each.width > ROOM):
            yield line
            line = []
        line.append(each)
    if line:
        yield line


def _texts(panel: OnePanel) -> Iterator[str]:
    yield from (panel.title, panel.note)
    if isinstance(panel, HeatMap):
        yield from (*panel.row_names, *panel.column_names, *(each for row in panel.texts for each in row))
        yield panel.meaning
    elif isinstance(panel, Gallery):
        yield from (each.title for each in panel.maps)
    elif isinstance(panel, Chart):
        yield from (*panel.lines, panel.x_label, panel.y_label, *map(visible_title, panel.ticks))
    elif isinstance(panel, Curves):
        yield from (*panel.points, *panel.laws, panel.x_label, panel.y_label)
    elif isinstance(panel, Facts):
        yield from (*panel.columns, *(each for line in panel.lines for each in line))
    else:
        yield from panel.boxes


def _placed(panel: OnePanel, pens: Pens) -> Iterator[Placed]:
    """The panel in a page's measures; a heat map that is too wide in several parts."""
    if isinstance(panel, Contours):
        yield replace(_contours(panel, pens), begins_line=panel.begins_line)
    elif isinstance(panel, HeatMap):
        yield from _heat_maps(panel, pens)
    elif isinstance(panel, Gallery):
        yield _gallery(panel, pens)
    elif isinstance(panel, Chart):
        yield replace(_chart(panel, pens), begins_line=panel.begins_line)
    elif isinstance(panel, Curves):
        yield replace(_curves(panel, pens), begins_line=panel.begins_line)
    elif isinstance(panel, Photo):
        yield _photo(panel, pens)
    else:
        yield _facts(panel, pens)


def _headed(panel: OnePanel, pens: Pens, width: float, height: float, draw: Draw) -> Placed:
    """A panel under its title and its note, which are as wide as it is."""
    title, note = lines_of(panel.title, pens.title, width), lines_of(panel.note, pens.note, width)
    above = len(title) * pens.title.pitch + len(note) * pens.note.pitch + 0.05

    def draw_all(figure: Figure, axes: Axes, x: float, y: float) -> None:
        for number, line in enumerate(title):
            pens.title.write(axes, x, y + number * pens.title.pitch, line)
        for number, line in enumerate(note):
            pens.note.write(axes, x, y + len(title) * pens.title.pitch + number * pens.note.pitch, line)
        draw(figure, axes, x, y + above)

    return Placed(width, above + height, draw_all)


# --- Heat maps


def _heat_maps(panel: HeatMap, pens: Pens) -> Iterator[Placed]:
    wide, high = WORDS if panel.texts else (CELL, CELL)
    left = 0.06 + max(pens.label.ruler(cut(row, pens.label, LONGEST)) for row in panel.row_names)
    if not panel.texts:
        wide = max(SMALLEST_CELL, min(CELL, (ROOM - left) / len(panel.columns)))
        high = max(SMALLEST_CELL, min(CELL, 5.0 / len(panel.rows)))
    fitting = max(1, int((ROOM - left) / wide))
    parts = -(-len(panel.columns) // fitting)
    for number, columns in enumerate(np.array_split(np.arange(len(panel.columns)), parts)):
        part = panel.part(slice(int(columns[0]), int(columns[-1]) + 1)) if parts > 1 else panel
        part = replace(part, title=f"{panel.title} ({number + 1} of {parts})") if parts > 1 else part
        yield _labelled(part, pens, left, (wide, high))


def _labelled(panel: HeatMap, pens: Pens, left: float, cell: tuple[float, float]) -> Placed:
    rows, columns = panel.values.shape
    names = [cut(each, pens.label, LONGEST) for each in panel.column_names]
    flat = bool(panel.texts) or all(pens.label.ruler(name) <= cell[0] for name in names)
    below = pens.label.pitch if flat else 0.06 + max(map(pens.label.ruler, names))
    grid = columns * cell[0], rows * cell[1]
    height = grid[1] + below + 0.04 + pens.label.pitch
    thin = max(1, round(pens.label.size / POINTS / cell[1])), max(1, round(pens.label.size / POINTS / cell[0]))

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        for number, row in enumerate(panel.row_names[:: thin[0]]):
            shown = cut(row, pens.label, LONGEST)
            middle = y + (number * thin[0] + 0.5) * cell[1] - pens.label.pitch / 2
            pens.label.write(axes, x + left - 0.05 - pens.label.ruler(shown), middle, shown)
        _draw_cells(axes, panel, (x + left, y), grid)
        for number, name in enumerate(names[:: thin[1]]):
            centre = x + left + (number * thin[1] + 0.5) * cell[0]
            _write_below(axes, pens.label, (centre, y + grid[1]), name, flat)
        if panel.texts:
            _write_cells(axes, panel, pens.label, (x + left, y), cell)
        _draw_scale(axes, panel, pens.label, (x + left, y + grid[1] + below + 0.04))

    return _headed(panel, pens, max(left + grid[0], left + _scale_width(panel, pens.label)), height, draw)


def _gallery(panel: Gallery, pens: Pens) -> Placed:
    """Small pictures in lines that fit the page, each under its name, with its scale below."""
    tall = max(SMALL * each.values.shape[0] / each.values.shape[1] for each in panel.maps)
    across = min(len(panel.maps), int((ROOM + BETWEEN) / (SMALL + BETWEEN)))
    line = pens.label.pitch * 2 + tall + BETWEEN

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        for number, each in enumerate(panel.maps):
            left, top = x + number % across * (SMALL + BETWEEN), y + number // across * line
            rows, columns = each.values.shape
            pens.label.write(axes, left, top, cut(each.title, pens.label, SMALL))
            _draw_cells(axes, each, (left, top + pens.label.pitch), (SMALL, SMALL * rows / columns))
            said = cut("{:g} to {:g}".format(*each.ends), pens.label, SMALL)
            pens.label.write(axes, left, top + pens.label.pitch + SMALL * rows / columns, said, ink=QUIET)

    width = across * (SMALL + BETWEEN) - BETWEEN
    return _headed(panel, pens, width, -(-len(panel.maps) // across) * line - BETWEEN, draw)


def _draw_cells(axes: Axes, panel: HeatMap, corner: tuple[float, float], size: tuple[float, float]) -> None:
    show(axes, shades(panel.shares(), _ramp(panel)), *corner, *size)
    frame = Rectangle(corner, *size, fill=False, edgecolor=FRAME, linewidth=0.6, zorder=3)
    axes.add_patch(frame).set_clip_on(False)


def _ramp(panel: HeatMap) -> tuple[tuple[int, int, int], ...]:
    return DIVERGING if panel.signed else INK


def _write_below(axes: Axes, pen: Pen, at: tuple[float, float], name: str, flat: bool) -> None:
    """The label of a column: as it is where it fits, else from the bottom upwards."""
    if flat:
        pen.write(axes, at[0] - pen.ruler(name) / 2, at[1], name)
        return
    written = axes.text(
        at[0], at[1] + 0.05, name, fontsize=pen.size, color=pen.color, rotation=90, va="top", ha="center"
    )
    written.set(family=pen.families, fontweight=pen.strength, parse_math=False)


def _write_cells(axes: Axes, panel: HeatMap, pen: Pen, corner: tuple[float, float], cell: tuple[float, float]) -> None:
    grounds = shades(panel.shares(), _ramp(panel))
    for (row, column), _ in np.ndenumerate(panel.values):
        red, green, blue = map(int, grounds[row, column])
        text = cut(panel.texts[row][column], pen, cell[0] - 0.06)
        x = corner[0] + column * cell[0] + (cell[0] - pen.ruler(text)) / 2
        y = corner[1] + row * cell[1] + (cell[1] - pen.pitch) / 2
        pen.write(axes, x, y, text, ink=hexadecimal(ink_on((red, green, blue))))


def _scale_width(panel: HeatMap, pen: Pen) -> float:
    low, high = panel.ends
    return pen.ruler(f"{low:g}") + BAR + pen.ruler(f"{high:g} {panel.meaning}") + 0.14


def _draw_scale(axes: Axes, panel: HeatMap, pen: Pen, corner: tuple[float, float]) -> None:
    """The scale of colours, with its two ends and what a number is."""
    (x, y), (low, high) = corner, panel.ends
    start = pen.ruler(f"{low:g}") + 0.05
    pen.write(axes, x, y, f"{low:g}", ink=QUIET)
    show(axes, shades(np.linspace(0, 1, 256)[None], _ramp(panel)), x + start, y + pen.pitch / 2 - THICK / 2, BAR, THICK)
    pen.write(axes, x + start + BAR + 0.05, y, f"{high:g} {panel.meaning}".rstrip(), ink=QUIET)


# --- Contours


def _contours(panel: Contours, pens: Pens) -> Placed:
    """A surface in colours, with lines of equal height that tell it, each so many times the one before."""
    left, below, width, height = 0.62, 0.5, *SURFACE

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        page = figure.get_size_inches()
        corner = (MARGIN + x + left) / page[0], 1 - (MARGIN + y + height) / page[1]
        chart = figure.add_axes((*corner, width / page[0], height / page[1]))
        values, high = panel.values[::-1], panel.ends[1]
        low = min(float(np.nanmin(values)), 0.99 * high)
        levels = np.geomspace(max(low, high / LOWEST), high, 11)
        places = panel.places
        chart.contourf(places, places, np.clip(values, levels[0], high), np.geomspace(levels[0], high, 65), cmap=RAMP)
        lines = chart.contour(places, places, np.minimum(values, high), levels[1:-1], colors=QUIET, linewidths=0.6)
        chart.clabel(lines, fontsize=6.5, fmt=lambda value: f"{value:.2g}", colors=TEXT)
        chart.plot([0], [0], "+", color=COLORS[1], markersize=7)
        tidy(chart)
        chart.grid(visible=False)

    return _headed(panel, pens, left + width + 0.1, height + below, draw)


# --- Charts, pictures, tables


def _chart(panel: Chart, pens: Pens) -> Placed:
    left, below = 0.62, 0.5 + (0.45 if _turned(panel) else 0.0)
    legend = 0.22 * -(-len(panel.lines) // _across(panel.lines)) if len(panel.lines) > 1 else 0.0
    width, height = CHART

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        page = figure.get_size_inches()
        corner = (MARGIN + x + left) / page[0], 1 - (MARGIN + y + legend + height) / page[1]
        chart = figure.add_axes((*corner, width / page[0], height / page[1]))
        _draw_lines(chart, panel, pens)

    return _headed(panel, pens, left + width + 0.1, legend + height + below, draw)


def _draw_lines(chart: Axes, panel: Chart, pens: Pens) -> None:
    few = len(panel.across) <= 24
    for number, (name, values) in enumerate(panel.lines.items()):
        look = (
            style(number)
            if few
            else {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[number // len(COLORS) % 3]}
        )
        chart.plot(panel.across, values, label=name, linewidth=1.5, markersize=3.5, **look)
    tidy(chart)
    if panel.logarithmic:
        chart.set_yscale("log")
        chart.tick_params(axis="y", which="minor", labelsize=7, labelcolor=TEXT, color=FRAME)
    elif all(np.nanmin(values, initial=0.0) >= 0 for values in panel.lines.values()):
        most = max(float(np.nanmax(values, initial=0.0)) for values in panel.lines.values())
        chart.set_ylim(0, 1.08 * most or 1.0)
    chart.set_xlabel(panel.x_label, family=pens.label.families)
    chart.set_ylabel(panel.y_label, family=pens.label.families)
    if panel.ticks:
        names = [cut(each, pens.label, 0.75) for each in panel.ticks]
        chart.set_xticks(panel.across, names, rotation=90 if _turned(panel) else 0, family=pens.label.families,
                         fontsize=7.5 if len(names) <= 32 else 6, parse_math=False)  # fmt: skip
    if len(panel.lines) > 1:
        _name_lines(chart, panel.lines, pens)


def _name_lines(chart: Axes, names: Iterable[str], pens: Pens) -> None:
    chart.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=_across(names), frameon=False, fontsize=8,
                 borderaxespad=0.2, handlelength=1.6, columnspacing=1.2,
                 prop={"family": pens.label.families, "size": 8})  # fmt: skip


def _curves(panel: Curves, pens: Pens) -> Placed:
    left, below, (width, height) = 0.62, 0.5, CHART
    names = dict.fromkeys((*panel.points, *panel.laws))
    legend = 0.22 * -(-len(names) // _across(names))

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        page = figure.get_size_inches()
        corner = (MARGIN + x + left) / page[0], 1 - (MARGIN + y + legend + height) / page[1]
        chart = figure.add_axes((*corner, width / page[0], height / page[1]))
        looks = {name: style(number) for number, name in enumerate(names)}
        for name, curve in panel.points.items():
            chart.plot(curve.across, curve.up, label=name, linestyle="none", markersize=4.5, **looks[name])
        for name, curve in panel.laws.items():
            label = "_" if name in panel.points else name  # named once
            chart.plot(
                curve.across, curve.up, label=label, linestyle="--", linewidth=1.1, color=looks[name]["color"], zorder=1
            )
        tidy(chart)
        chart.set_xscale("log")
        chart.set_yscale("log")
        _logarithmic(chart.xaxis, *chart.get_xlim())
        _logarithmic(chart.yaxis, *chart.get_ylim())
        chart.set_xlabel(panel.x_label, family=pens.label.families)
        chart.set_ylabel(panel.y_label, family=pens.label.families)
        _name_lines(chart, names, pens)

    return _headed(panel, pens, left + width + 0.1, legend + height + below, draw)


def _logarithmic(axis: Axis, low: float, high: float) -> None:
    """Short numbers along a logarithmic axis: a few within a power of ten, else 1, 2 and 5 or the powers alone."""
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_locator(NullLocator())


def _across(names: Iterable[str]) -> int:
    """Names of lines that stand beside each other above a chart."""
    return max(1, min(4, 60 // (4 + max(map(len, names)))))


def _turned(panel: Chart) -> bool:
    """Whether the labels below a chart are written upwards: words are, short numbers not."""
    return any(len(each) > 3 for each in panel.ticks) or len(panel.ticks) > 12


def _photo(panel: Photo, pens: Pens) -> Placed:
    rows, columns = panel.pixels.shape[:2]
    width, height = PHOTO, PHOTO * rows / columns
    names = [f"▭ {name}" for name in panel.boxes]

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        show(axes, panel.pixels, x, y, width, height)
        scale = width / columns
        for number, (left, top, right, bottom) in enumerate(panel.boxes.values()):
            at, line = (x + left * scale, y + top * scale), ("-", (0, (4, 3)), ":")[number % 3]
            ink = BOX_COLORS[number % len(BOX_COLORS)]
            axes.add_patch(Rectangle(at, (right - left) * scale, (bottom - top) * scale, fill=False, edgecolor=ink,
                                     linewidth=2.2 - 0.6 * number, linestyle=line, zorder=4)).set_clip_on(False)  # fmt: skip
        for number, name in enumerate(names):
            ink = BOX_COLORS[number % len(BOX_COLORS)]
            pens.label.write(axes, x, y + height + number * pens.label.pitch, cut(name, pens.label, width), ink=ink)

    return _headed(panel, pens, width, height + len(names) * pens.label.pitch, draw)


def _facts(panel: Facts, pens: Pens) -> Placed:
    columns = list(zip(panel.columns, *panel.lines, strict=True))
    widths = [max(pens.label.ruler(cut(cell, pens.label, 3.0)) for cell in column) + 0.2 for column in columns]

    def draw(figure: Figure, axes: Axes, x: float, y: float) -> None:
        for number, (column, width) in enumerate(zip(columns, widths, strict=True)):
            start = x + sum(widths[:number])
            for line, cell in enumerate(column):
                shown = cut(cell, pens.label, 3.0)
                shift = 0.0 if number == 0 else width - 0.2 - pens.label.ruler(shown)
                ink = TEXT if line else QUIET
                pens.label.write(axes, start + shift, y + line * pens.label.pitch, shown, ink=ink)

    return _headed(panel, pens, sum(widths), len(columns[0]) * pens.label.pitch, draw)
