"""Panels as text in a terminal: heat maps as grids of cells, charts as bars, pictures as blocks, tables as tables.

With colour a cell is a background; without, it is a shade, and numbers below zero have signs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from PIL import Image
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.look.colors import DIVERGING, GLOW, color, hexadecimal, ink_on
from regard.look.labels import visible, visible_title
from regard.look.panels import Chart, Curves, Facts, Gallery, HeatMap, OnePanel, Panels, Photo
from regard.look.terminal.map import SHADES, grid_lines, told

SIGNED = "=-·+#"  # far below zero, below, about zero, above, far above
GAP = 2  # characters between pictures side by side
PICTURE = 16  # characters across of a picture in a gallery
BARS = "▏▎▍▌▋▊▉█"
MOST_LINES = 72  # of a chart


def draw_panels(view: Panels, width: int, colored: bool) -> Group:
    """Title, each panel, notes."""
    parts: list[RenderableType] = [Text(visible_title(view.title), style="bold")]
    for panel in view.panels():
        parts += ["", *_panel(panel, width, colored)]
    if view.notes:
        parts += ["", *told(view.notes, width)]
    return Group(*parts)


def _panel(panel: OnePanel, width: int, colored: bool) -> list[RenderableType]:
    head: list[RenderableType] = [Text(visible_title(panel.title), style="bold")] if panel.title else []
    head += [Text(line.plain, style="dim") for line in told([panel.note] if panel.note else [], width)]
    if isinstance(panel, HeatMap):
        return [*head, *(_worded(panel, width, colored) if panel.texts else _grid(panel, width, colored))]
    if isinstance(panel, Gallery):
        return [*head, *_side_by_side(panel, width, colored)]
    if isinstance(panel, Chart):
        return [*head, *_bars(panel, width)]
    if isinstance(panel, Curves):
        return [*head, _points(panel)]
    if isinstance(panel, Photo):
        return [*head, *_photo(panel, width, colored)]
    return [*head, _table(panel)]


# --- Heat maps


def _cell(panel: HeatMap, colored: bool, size: int = 2) -> Callable[[float], Text]:
    """The function from a share of the scale to a cell."""
    ramp = DIVERGING if panel.signed else GLOW

    def draw(share: float) -> Text:
        if math.isnan(share):
            return Text(" " * size)
        if colored:
            return Text(" " * size, style=f"on {hexadecimal(color(ramp, share))}")
        signs = SIGNED if panel.signed else SHADES
        step = round(share * (len(signs) - 1)) if panel.signed else int(share * len(signs))
        return Text(signs[min(max(step, 0), len(signs) - 1)] * size)

    return draw


def _grid(panel: HeatMap, width: int, colored: bool) -> list[RenderableType]:
    lines = list(grid_lines(panel.row_names, panel.columns, panel.shares(), width, _cell(panel, colored)))
    return [Text("\n", no_wrap=True, overflow="ignore").join(lines), _legend(panel, colored)]


def _legend(panel: HeatMap, colored: bool) -> Text:
    low, high = panel.ends
    legend = Text(f"{low:g} ")
    if colored:
        legend.append_text(Text.assemble(*(map(_cell(panel, True, 1), np.linspace(0, 1, 16)))))
    else:
        legend.append(SIGNED if panel.signed else SHADES)
    return legend.append(f" {high:g} {panel.meaning}".rstrip())


def _worded(panel: HeatMap, width: int, colored: bool) -> list[RenderableType]:
    """A line for each column: its label, and the words of its cells, the more the brighter."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", *panel.row_names):
        table.add_column(name, no_wrap=True)
    draw, shares = partial(_word, colored=colored, signed=panel.signed), panel.shares()
    for column, label in enumerate(panel.columns):
        cells = [draw(row[column], shares[number, column]) for number, row in enumerate(panel.texts)]
        table.add_row(Text(visible(label), style="bold"), *cells)
    return [table]


def _word(text: str, share: float, *, colored: bool, signed: bool) -> Text:
    if not colored or math.isnan(share):
        return Text(visible_title(text))
    ground = color(DIVERGING if signed else GLOW, share)
    return Text(f" {visible_title(text)} ", style=f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}")


def _side_by_side(panel: Gallery, width: int, colored: bool) -> list[RenderableType]:
    """Small pictures of numbers in lines that fit the width, two rows of places in a line of characters."""
    lines: list[RenderableType] = []
    across = max(1, (width + GAP) // (PICTURE + GAP))
    for start in range(0, len(panel.maps), across):
        some = panel.maps[start : start + across]
        names = [_padded(visible_title(each.title)) for each in some]
        notes = [_padded("{:g} to {:g}".format(*each.ends)) for each in some]
        blocks = [_blocks(each, colored) for each in some]
        tall = max(map(len, blocks))
        blocks = [[*block, *[Text(" " * PICTURE)] * (tall - len(block))] for block in blocks]
        lines += [Text((" " * GAP).join(names), style="italic")]
        lines += [Text(" " * GAP).join(parts) for parts in zip(*blocks, strict=True)]
        lines += [Text((" " * GAP).join(notes), style="dim"), ""]
    return lines[:-1]


def _padded(text: str) -> str:
    while cell_len(text) > PICTURE:
        text = text[:-2] + "…"
    return text + " " * (PICTURE - cell_len(text))


def _blocks(panel: HeatMap, colored: bool) -> list[Text]:
    rows, columns = panel.values.shape
    shares = Image.fromarray(np.nan_to_num(panel.shares()).astype(np.float32))
    if not colored:
        size = (PICTURE, max(1, round(PICTURE / 2 * rows / columns)))
        small = np.asarray(
            shares.resize(size, Image.Resampling.BOX if columns >= PICTURE else Image.Resampling.NEAREST)
        )
        draw = _cell(panel, False, 1)
        return [Text.assemble(*map(draw, row)) for row in small]
    size = (PICTURE, 2 * max(1, round(PICTURE / 2 * rows / columns)))
    small = np.asarray(shares.resize(size, Image.Resampling.BOX if columns >= PICTURE else Image.Resampling.NEAREST))
    ramp = DIVERGING if panel.signed else GLOW
    inks = [[hexadecimal(color(ramp, float(share))) for share in row] for row in small]
    return [_halves(above, below) for above, below in zip(inks[::2], inks[1::2], strict=True)]


def _halves(above: list[str], below: list[str]) -> Text:
    """Two rows of colours in a line: an upper half of the one on a ground of the other."""
    return Text.assemble(*(("▀", f"{upper} on {lower}") for upper, lower in zip(above, below, strict=True)))


# --- Charts, pictures, tables


def _bars(panel: Chart, width: int) -> Iterator[RenderableType]:
    """A line for each point and its number; a single line of the chart has bars, too."""
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=bool(panel.x_label or any(panel.lines)))
    table.add_column(panel.x_label, justify="right", no_wrap=True)
    for name in panel.lines:
        table.add_column(name, justify="right", no_wrap=True)
    first = next(iter(panel.lines.values()))
    room = max(8, min(30, width - 14 * (len(panel.lines) + 1)))
    table.add_column("", no_wrap=True)
    heights = _heights(panel, first)
    chosen = np.unique(np.linspace(0, len(panel.across) - 1, MOST_LINES).round().astype(int))
    for place in chosen:
        label = visible_title(panel.ticks[place]) if panel.ticks else f"{panel.across[place]:g}"
        cells = ["" if math.isnan(line[place]) else f"{line[place]:.3g}" for line in panel.lines.values()]
        table.add_row(Text(label), *cells, Text(_bar(heights[place], room)))
    yield table
    if len(chosen) < len(panel.across):
        yield Text(f"{len(chosen)} of {len(panel.across)} points", style="dim")
    yield Text(f"{panel.y_label}{' (bars: logarithm)' if panel.logarithmic else ''}", style="dim")


def _points(panel: Curves) -> Table:
    """A line for each point of each curve; what the laws say lies between them."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", panel.x_label, panel.y_label):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, curve in panel.points.items():
        for number, (x, y) in enumerate(zip(curve.across, curve.up, strict=True)):
            table.add_row(Text("" if number else name), f"{x:.3g}", f"{y:.4g}")
    return table


def _heights(panel: Chart, values: np.ndarray) -> np.ndarray:
    """How long the bar of each point is, from 0 to 1."""
    if panel.logarithmic:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.log10(values)
        known = values[np.isfinite(values)]
        low = known.min(initial=0.0) - 0.05 * max(1e-9, np.ptp(known)) if known.size else 0.0
        values = np.where(np.isfinite(values), values - low, 0.0)
    top = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    return np.nan_to_num(np.abs(values) / top)


def _bar(share: float, room: int) -> str:
    eighths = round(share * room * 8)
    return BARS[-1] * (eighths // 8) + (BARS[eighths % 8 - 1] if eighths % 8 else "")


def _photo(panel: Photo, width: int, colored: bool) -> list[RenderableType]:
    """The picture with its first box framed; without colour only where the boxes are."""
    rows, columns = panel.pixels.shape[:2]
    said = [
        Text(f"{name}: rows {top:g} to {bottom - 1:g}, columns {left:g} to {right - 1:g} of {rows} x {columns}")
        for name, (left, top, right, bottom) in panel.boxes.items()
    ]
    if not colored:
        return list(said)
    across = min(width, 48)
    size = (across, 2 * max(1, round(across / 2 * rows / columns)))
    small = np.asarray(Image.fromarray(panel.pixels).resize(size, Image.Resampling.NEAREST)).copy()
    for left, top, right, bottom in list(panel.boxes.values())[:1]:
        x, y = size[0] / columns, size[1] / rows
        _frame(small, (int(left * x), int(top * y), round(right * x), round(bottom * y)))
    inks = [[hexadecimal((int(r), int(g), int(b))) for r, g, b in row] for row in small]
    return [*(_halves(above, below) for above, below in zip(inks[::2], inks[1::2], strict=True)), *said]


def _frame(pixels: np.ndarray, box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    for line in (pixels[top, left:right], pixels[bottom - 1, left:right], pixels[top:bottom, left],
                 pixels[top:bottom, right - 1]):  # fmt: skip
        line[:] = (213, 94, 0)


def _table(panel: Facts) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(panel.columns):
        table.add_column(visible_title(name), justify="right" if number else "left", overflow="fold")
    for line in panel.lines:
        table.add_row(*(Text(visible_title(cell)) for cell in line))
    return table
