"""Graphs as pages: the same drawing, whose nodes keep only their own arrows under the pointer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from regard.look.figures.graph import PLAIN, arrow, outwards
from regard.look.graph import DrawnGraph, GraphPanel, Look
from regard.look.labels import visible
from regard.look.lines import Stroke, number
from regard.look.pages import template

SIDE, AROUND = 520, 110  # pixels of a panel's square, and around it for names
SMALL = 340  # of one among several
STYLE, SCRIPT = template.stylesheet("graph.css"), template.script("graph.js", call="everyGraph(document);")


@dataclass(frozen=True)
class Arrow:
    """One arrow as a path, or a look at itself as a ring."""

    look: Look
    stroke: Stroke
    way: str
    tip: str  # the points of its head; none for a ring
    hint: str


@dataclass(frozen=True)
class Node:
    """A node with its name and what it looks at."""

    x: float
    y: float
    radius: float
    fill: str
    is_centre: bool
    name: str
    name_x: float
    name_y: float
    anchor: str
    says: str


@dataclass(frozen=True)
class Panel:
    """One head's arrows and the nodes above them."""

    title: str
    arrows: list[Arrow]
    nodes: list[Node]


def graph_fragment(graph: DrawnGraph) -> str:
    """Return title, pictures and legend in one element, for a notebook or a page."""
    side = SIDE if len(graph.panels) == 1 else SMALL
    around = AROUND if graph.circle else 40
    radius = 5.0 if graph.circle else min(11.0, max(3.5, 0.18 * side / max(1.0, len(graph.names) ** 0.5)))
    spots = graph.places * side + around
    return template.render(
        "graph.html",
        title=graph.title,
        caption=graph.caption,
        size=side + 2 * around,
        panels=[_panel(graph, panel, spots, radius) for panel in graph.panels],
        several=len(graph.panels) > 1,
        samples=[(graph.stroke(weight), f"{weight:g}") for weight in graph.samples],
        kinds=list(graph.kinds.items()),
        notes=graph.notes,
        style=STYLE,
        script=SCRIPT,
    )


def graph_page(graph: DrawnGraph) -> str:
    """Return the fragment as a whole page, which is also well-formed XML."""
    title = graph.title or "Who looks at whom"
    return template.render("sheet.html", title=title, fragment=Markup(graph_fragment(graph)), widest="72em")


def _panel(graph: DrawnGraph, panel: GraphPanel, spots: np.ndarray, radius: float) -> Panel:
    looks = graph.drawn(panel)
    arrows = [_arrow(graph, look, spots, radius) for look in looks]
    return Panel(panel.title, arrows, [_node(graph, node, looks, spots, radius) for node in range(len(graph.names))])


def _arrow(graph: DrawnGraph, look: Look, spots: np.ndarray, radius: float) -> Arrow:
    stroke, one, other = graph.stroke(look.weight), graph.names[look.row], graph.names[look.column]
    hint = f"{visible(one)} → {visible(other)}: {look.weight:.3f}"
    if look.row == look.column:
        size = max(1.25 * radius, 6.0)
        x, y = spots[look.row] + outwards(graph, look.row) * (size + 0.3 * radius)
        turn = f"a{size:.1f} {size:.1f} 0 1 0 "
        way = f"M{x - size:.1f} {y:.1f}{turn}{2 * size:.1f} 0{turn}{-2 * size:.1f} 0"
        return Arrow(look, stroke, way, "", hint)
    middle = spots.mean(axis=0) if graph.circle else None
    start, bend, end = (np.array(point) for point in arrow(spots[look.row], spots[look.column], middle, radius))
    along = (end - bend) / max(1e-9, float(np.linalg.norm(end - bend)))
    size = 3.5 + 2.2 * stroke.width
    side = np.array([-along[1], along[0]]) * size * 0.42
    base = end - along * size
    tip = " ".join(f"{x:.1f},{y:.1f}" for x, y in (end, base + side, base - side))
    way = f"M{start[0]:.1f} {start[1]:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {base[0]:.1f} {base[1]:.1f}"
    return Arrow(look, stroke, way, tip, hint)


def _node(graph: DrawnGraph, node: int, looks: list[Look], spots: np.ndarray, radius: float) -> Node:
    (x, y), away = spots[node].tolist(), outwards(graph, node)
    own = [f"{visible(graph.names[look.column])} {number(look.weight)}" for look in reversed(looks) if look.row == node]
    label = graph.groups[node] if graph.groups else ""
    says = f"{visible(graph.names[node])}{f' ({label})' if label else ''} looks at {', '.join(own[:12]) or 'nothing'}"
    fill, centre = graph.kinds.get(label, PLAIN), node == graph.centre
    reach = radius + (15 if graph.circle else 3)
    spot = (x + away[0] * reach, y + away[1] * reach + 4) if graph.circle else (x + reach, y - reach)
    anchor = "start" if not graph.circle or away[0] > 0.3 else "end" if away[0] < -0.3 else "middle"
    size = radius * (1.35 if centre else 1.0)
    return Node(x, y, size, fill, centre, visible(graph.names[node])[:24], *spot, anchor, says)
