"""Graphs as text: a line for each node that looks, with the nodes that it looks at most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from regard.look.colors import GLOW, color, hexadecimal, ink_on
from regard.look.graph import DrawnGraph, GraphPanel, Look
from regard.look.labels import visible, visible_title
from regard.look.lines import number

LONGEST_LABEL = 20  # characters
MOST_NODES = 40  # that have a line


def draw_graph(graph: DrawnGraph, width: int, colored: bool) -> Text:
    """Title, a part for each head, and what is left out."""
    found = [Text(visible_title(line), style="bold") for line in (graph.title, graph.caption) if line]
    for panel in graph.panels:
        found += [Text(panel.title, style="italic")] if len(graph.panels) > 1 else []
        found += _nodes(graph, panel, width, colored)
    found += [Text(), *(Text(visible_title(note), style="dim") for note in graph.notes)]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(found)


def _nodes(graph: DrawnGraph, panel: GraphPanel, width: int, colored: bool) -> Iterator[Text]:
    """A line for each node that looks, that in the centre first."""
    looks: dict[int, list[Look]] = defaultdict(list)
    for look in reversed(graph.drawn(panel)):
        looks[look.row].append(look)
    nodes = sorted(looks, key=lambda node: (node != graph.centre, node))
    margin = max((cell_len(_cut(graph, node)) for node in nodes[:MOST_NODES]), default=0)
    for node in nodes[:MOST_NODES]:
        label = _cut(graph, node)
        line = Text.assemble(" " * (margin - cell_len(label)), (label, "bold"), " →")
        for look in looks[node]:
            part = _look(graph, look, colored)
            if line.cell_len + part.cell_len + 2 > width:
                line.append(" …")
                break
            line.append(" ").append(part)
        yield line
    if len(nodes) > MOST_NODES:
        yield Text(f"and {len(nodes) - MOST_NODES:,} more nodes: -o graph.png draws them", style="dim")


def _look(graph: DrawnGraph, look: Look, colored: bool) -> Text:
    ground = color(GLOW, min(1.0, look.weight / graph.top))
    style = f"{hexadecimal(ink_on(ground))} on {hexadecimal(ground)}" if colored else ""
    return Text.assemble((_cut(graph, look.column), style), f" {number(look.weight)}")


def _cut(graph: DrawnGraph, node: int) -> str:
    shown = visible(graph.names[node])
    shown = shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"
    return f"{shown} ({graph.groups[node]})" if graph.groups and graph.groups[node] else shown
