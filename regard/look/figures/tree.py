"""A beam search as a tree: a column for each step, the winner in a strong colour, what was dropped in grey."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from regard.look.figures.sheet import (
    FRAME,
    QUIET,
    TEXT,
    Pen,
    cut,
    families_of,
    heading,
    heading_height,
    sheet,
    write_heading,
)
from regard.look.labels import visible
from regard.look.written import BeamTree, Place

ROW = 0.36  # inches from row to row
WIDEST = 1.25  # inches of a token
GAP = 0.42  # inches between columns, for the lines
WINS, ENDS, LIVES, DROPPED = "#0b5c96", "#009e73", TEXT, "#98a1a9"
LEGEND = ((WINS, "the winner"), (ENDS, "ended"), (LIVES, "went on"), (DROPPED, "dropped"))


def draw_tree(tree: BeamTree) -> Figure:
    """Title, columns of tokens with the log-probability of each, lines between them, and what the colours mean."""
    families = families_of(tree.title, *(visible(node.label) for _, node in tree.nodes()))
    word, small = Pen(9.0, families), Pen(6.5, families, color=QUIET)
    columns = column_starts(tree, lambda text: word.ruler(cut(text, word, WIDEST)), GAP)
    rows = tree.rows()
    last = max((word.ruler(cut(visible(node.label), word, WIDEST)) for node in (tree.steps or ((),))[-1]), default=0.0)
    width = max(columns[-1] + last + 0.5, 5.0)
    title = heading(tree.title, "", families, width)
    top = heading_height(title) + word.pitch
    figure, axes = sheet(width, top + (max(rows.values(), default=0) + 1) * ROW + 0.1)
    write_heading(axes, title)
    x = 0.0
    for ink, meaning in LEGEND:
        small.write(axes, x, top - word.pitch, meaning, ink=ink)
        x += small.ruler(meaning) + 0.25
    winner = set(tree.path(tree.winner))
    for place, node in tree.nodes():
        ink, y = color_of(tree, place, winner), top + rows[place] * ROW
        label = cut(visible(node.label), word, WIDEST)
        word.write(axes, columns[place[0]], y, label, ink=ink)
        small.write(axes, columns[place[0]], y + 0.16, told(tree, place), ink=ink if place in winner else QUIET)
        if node.parent is not None:
            parent = (place[0] - 1, node.parent)
            before = cut(visible(tree.steps[parent[0]][parent[1]].label), word, WIDEST)
            start = columns[parent[0]] + word.ruler(before) + 0.04
            ends = top + rows[parent] * ROW + word.pitch / 2, y + word.pitch / 2
            bend = columns[parent[0]] + max(word.ruler(before), small.ruler(told(tree, parent))) + 0.05
            across = [start, bend, columns[place[0]] - 0.14, columns[place[0]] - 0.05]
            axes.plot(across, [ends[0], ends[0], ends[1], ends[1]], color=WINS if place in winner else FRAME,
                      linewidth=1.6 if place in winner else 0.8, zorder=2 if place in winner else 1, clip_on=False)  # fmt: skip
    return figure


def column_starts(tree: BeamTree, ruler: Callable[[str], float], gap: float) -> list[float]:
    """Where each column begins: behind the widest token of the one before."""
    found = [0.0]
    for step in tree.steps[:-1]:
        widest = max((max(ruler(visible(node.label)), 0.34) for node in step), default=0.0)
        found.append(found[-1] + widest + gap)
    return found


def color_of(tree: BeamTree, place: Place, winner: set[Place]) -> str:
    """The colour of a node: it won, ended, was dropped, or went on."""
    state = tree.steps[place[0]][place[1]].state
    return WINS if place in winner else {"ended": ENDS, "dropped": DROPPED, "alive": LIVES}[state]


def told(tree: BeamTree, place: Place) -> str:
    """The number below a token: the log-probability of all so far, or the score of what has ended."""
    node = tree.steps[place[0]][place[1]]
    return f"{node.total:.2f}" if node.score is None else f"score {node.score:.2f}"
