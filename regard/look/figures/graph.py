"""Graphs as figures: a panel for each head, nodes in the colours of their labels, arrows in the ink of their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path

from regard.look.figures.sheet import (
    QUIET,
    TEXT,
    Pen,
    cut,
    families_of,
    heading,
    heading_height,
    lines_of,
    sheet,
    write_heading,
)
from regard.look.graph import DrawnGraph, GraphPanel, Look
from regard.look.labels import visible

ACROSS = 3  # panels beside each other
WIDEST = 1.1  # inches of a name outside a circle
BEND = 0.14  # of an arrow's length: two nodes that look at each other have two arrows
PLAIN = "#8a949c"  # a node without a label
NAMED = 60  # nodes that are named inside a graph


class Frame(NamedTuple):
    """A panel's part of the page, in inches."""

    left: float
    top: float
    side: float

    def at(self, place: Sequence[float]) -> tuple[float, float]:
        return self.left + place[0] * self.side, self.top + place[1] * self.side


def draw_graph(graph: DrawnGraph) -> Figure:
    """Title, panels, and what the arrows and the colours mean."""
    families = families_of(graph.title, graph.caption, *graph.notes, *map(visible, graph.names), *graph.kinds)
    pen, quiet = Pen(8.5, families), Pen(9.0, families, color=QUIET)
    across = 2 if len(graph.panels) == 4 else min(ACROSS, len(graph.panels))
    side = side_of(graph)
    room = WIDEST if graph.circle else 0.42  # around the nodes, for their names
    pitch = side + 2 * room
    width = max(across * pitch, 5.0)
    title = heading(graph.title, graph.caption, families, width)
    legend = [line for note in graph.notes for line in lines_of(note, quiet, width)]
    rows = math.ceil(len(graph.panels) / across)
    above = heading_height(title)
    deep = side + 2 * (0.35 if graph.circle else room)
    named = quiet.pitch if len(graph.panels) > 1 else 0.0
    bottom = above + rows * (deep + named) + 0.1
    kinds = lines_of(" · ".join(graph.kinds), quiet, width) if graph.kinds else []
    figure, axes = sheet(width, bottom + (1 + len(kinds) + len(legend)) * quiet.pitch)
    write_heading(axes, title)
    for number, panel in enumerate(graph.panels):
        row, column = divmod(number, across)
        top = above + row * (deep + named)
        if named:
            quiet.write(axes, column * pitch, top, panel.title)
        start = (width - across * pitch) / 2 + column * pitch + room
        draw_panel(axes, graph, panel, Frame(start, top + named + (deep - side) / 2, side), pen)
    _draw_legend(axes, graph, quiet, bottom, legend, width)
    return figure


def side_of(graph: DrawnGraph) -> float:
    """Inches of a panel's square: more nodes need more room, more panels leave less."""
    most = 3.4 if len(graph.panels) > 1 else 6.4
    return min(most, max(2.0, (0.105 if graph.circle else 0.55) * len(graph.names) ** (1.0 if graph.circle else 0.6)))


def radius_of(graph: DrawnGraph, side: float) -> float:
    """Inches of a node."""
    return 0.035 if graph.circle else min(0.11, max(0.03, 0.35 * side / math.sqrt(len(graph.names)) / 2))


def draw_panel(axes: Axes, graph: DrawnGraph, panel: GraphPanel, frame: Frame, pen: Pen) -> None:
    radius = radius_of(graph, frame.side)
    spots = np.array([frame.at(place) for place in graph.places.tolist()])
    for look in graph.drawn(panel):
        _draw_look(axes, graph, look, spots, radius)
    for node, (x, y) in enumerate(spots.tolist()):
        ink = graph.kinds.get(graph.groups[node], PLAIN) if graph.groups else PLAIN
        size, rim, line = (radius * 1.35, TEXT, 1.6) if node == graph.centre else (radius, "white", 0.6)
        axes.add_patch(Circle((x, y), size, facecolor=ink, edgecolor=rim, linewidth=line, zorder=2.5))
    _write_names(axes, graph, spots, radius, pen)


def _draw_look(axes: Axes, graph: DrawnGraph, look: Look, spots: np.ndarray, radius: float) -> None:
    stroke, start, end = graph.stroke(look.weight), spots[look.row], spots[look.column]
    ink = to_rgba(stroke.color, stroke.opacity)
    if look.row == look.column:
        size = max(radius * 1.25, 0.06)
        x, y = start + outwards(graph, look.row) * (size + 0.3 * radius)
        ring = Circle((x, y), size, facecolor="none", edgecolor=ink, linewidth=stroke.width, zorder=1)
        axes.add_patch(ring)
        return
    path = arrow(start, end, spots.mean(axis=0) if graph.circle else None, radius)
    head = 2.5 + 2.6 * stroke.width
    way = Path(path, [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    axes.add_patch(
        FancyArrowPatch(
            path=way,
            arrowstyle="-|>",
            mutation_scale=head,
            color=ink,
            linewidth=stroke.width,
            zorder=2,
            capstyle="butt",
        )
    )


def arrow(start: np.ndarray, end: np.ndarray, middle: np.ndarray | None, radius: float) -> list[tuple[float, float]]:
    """Start, bend and end of an arrow between the rims of two nodes; in a circle it bends towards the middle."""
    along = end - start
    side = np.array([-along[1], along[0]]) * BEND
    bend = (start + end) / 2 + side
    if middle is not None:
        bend = bend + 0.55 * (middle - (start + end) / 2)
    ends = [
        point + radius * 1.25 * (bend - point) / max(1e-9, float(np.linalg.norm(bend - point)))
        for point in (start, end)
    ]
    return [tuple(ends[0].tolist()), tuple(bend.tolist()), tuple(ends[1].tolist())]


def outwards(graph: DrawnGraph, node: int) -> np.ndarray:
    """The direction from the middle of all nodes to one."""
    away = graph.places[node] - graph.places.mean(axis=0)
    size = float(np.linalg.norm(away))
    return away / size if size > 1e-9 else np.array([0.0, -1.0])


def _write_names(axes: Axes, graph: DrawnGraph, spots: np.ndarray, radius: float, pen: Pen) -> None:
    if not graph.circle and len(graph.names) > NAMED:
        return
    for node, (x, y) in enumerate(spots.tolist()):
        label = cut(visible(graph.names[node]), pen, WIDEST - 0.2)
        if graph.circle:
            away = outwards(graph, node)
            left = x + away[0] * 0.2 + radius * away[0] - (pen.ruler(label) if away[0] < 0 else 0)
            left -= pen.ruler(label) / 2 * (1 - abs(away[0])) * (1 if away[0] >= 0 else -1)
            pen.write(axes, left, y + away[1] * 0.24 - pen.pitch / 2, label)
        else:
            small = Pen(6.5, pen.families, color=QUIET)
            small.write(axes, x + radius + 0.02, y - small.pitch / 2 - radius, label)


def _draw_legend(axes: Axes, graph: DrawnGraph, pen: Pen, y: float, notes: Sequence[str], width: float) -> None:
    pen.write(axes, 0.0, y, "weight")
    x = pen.ruler("weight") + 0.2
    for weight in graph.samples:
        stroke = graph.stroke(weight)
        axes.plot(
            [x, x + 0.4], [y + pen.pitch / 2] * 2, color=to_rgba(stroke.color, stroke.opacity), linewidth=stroke.width
        )
        pen.write(axes, x + 0.47, y, f"{weight:g}")
        x += 0.47 + pen.ruler(f"{weight:g}") + 0.25
    y, x = y + pen.pitch, 0.0
    for name, ink in graph.kinds.items():
        shown = cut(name, pen, width / 2)
        if x and x + 0.2 + pen.ruler(shown) > width:
            y, x = y + pen.pitch, 0.0
        axes.add_patch(Circle((x + 0.06, y + pen.pitch / 2), 0.05, facecolor=ink, edgecolor="none"))
        pen.write(axes, x + 0.15, y, shown)
        x += 0.15 + pen.ruler(shown) + 0.22
    y += pen.pitch if graph.kinds else 0.0
    for note in notes:
        pen.write(axes, 0.0, y, note)
        y += pen.pitch
