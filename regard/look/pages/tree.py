"""A beam search as a page: the tree as a drawing whose tokens tell their numbers under the pointer."""

from __future__ import annotations

from dataclasses import dataclass

from regard.look.figures.tree import LEGEND, column_starts, told
from regard.look.labels import visible
from regard.look.pages import template
from regard.look.written import BeamTree, Place

ROW, GAP, LETTER, ABOVE = 40, 34, 8.4, 22  # pixels


@dataclass(frozen=True)
class NodeOfPage:
    """A token where it stands, with the line that leads to it."""

    x: float
    y: float
    label: str
    number: str
    kind: str  # its class: wins, ended, alive, dropped
    hint: str
    line: str  # the points of the line from its parent; empty at the first step


def tree_page(tree: BeamTree) -> str:
    """Return the page of a search."""
    columns, rows = column_starts(tree, _width, GAP), tree.rows()
    winner = set(tree.path(tree.winner))
    nodes = [_node(tree, place, columns, rows, winner) for place, _ in tree.nodes()]
    width = max((each.x + _width(each.label) for each in nodes), default=0) + 60
    height = ABOVE + (max(rows.values(), default=0) + 1) * ROW
    return template.render(
        "tree.html",
        title=tree.title,
        nodes=nodes,
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        legend=list(zip(("wins", "ended", "alive", "dropped"), (meaning for _, meaning in LEGEND), strict=True)),
    )


def _node(
    tree: BeamTree, place: Place, columns: list[float], rows: dict[Place, float], winner: set[Place]
) -> NodeOfPage:
    node = tree.steps[place[0]][place[1]]
    x, y, line = columns[place[0]], ABOVE + rows[place] * ROW, ""
    if node.parent is not None:
        parent = (place[0] - 1, node.parent)
        before = tree.steps[parent[0]][parent[1]]
        start, above = columns[parent[0]] + _width(visible(before.label)) + 4, ABOVE + rows[parent] * ROW
        line = f"{start:.1f},{above - 5:.1f} {x - GAP / 2:.1f},{y - 5:.1f} {x - 4:.1f},{y - 5:.1f}"
    hint = f"{visible(node.label)}: log-probability {node.log_probability:.3f}, {node.total:.3f} of all so far"
    hint += f"; {node.state}" if node.score is None else f"; {node.state} with score {node.score:.3f}"
    kind = "wins" if place in winner else node.state
    return NodeOfPage(x, y, visible(node.label), told(tree, place), kind, hint, line)


def _width(text: str) -> float:
    """About how wide a text is, in pixels; a page has no ruler before it is shown."""
    return max(34.0, LETTER * len(text) * (1.0 if text.isascii() else 1.4))
