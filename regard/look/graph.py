"""Graphs, drawn: nodes, and who looks at whom how much. Any attention is one: tokens are nodes, weights are edges.

An arrow leads from who looks to who is looked at, the more weight the thicker and darker. The words of a text stand in a
circle, in the order in which they are read, from the top on clockwise; nodes of a graph where springs between neighbours and
a push between all others leave them (Fruchterman & Reingold 1991), begun from two Laplacian eigenvectors. Weights below a
threshold are left out, and the legend says which, and how much of all weight they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from regard.brief import brief, quoted
from regard.data.graphs.laplacian import laplacian_positions
from regard.errors import RegardError
from regard.files import JSON, finite
from regard.look.colors import INK, color, hexadecimal, scale_top
from regard.look.lines import HUES, Stroke
from regard.look.shown import Shown

if TYPE_CHECKING:
    from regard.look.map import AttentionMap

FAINTEST = 1 / 10  # of the top of the scale: what is fainter is not drawn, where nobody says otherwise
MOST = 600  # arrows of a panel: more are only ink
ROUNDS = 150  # of the springs


class Look(NamedTuple):
    """One arrow."""

    row: int  # who looks
    column: int  # who is looked at
    weight: float


class GraphPanel(NamedTuple):
    """The weights of one head, or of their mean, on all edges: (E,), NaN where masked."""

    title: str
    weights: np.ndarray


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class DrawnGraph(Shown):
    """Nodes with places, and arrows between them; a panel for each head that is shown."""

    called = "a graph"

    names: tuple[str, ...]  # N labels
    places: np.ndarray  # (N, 2), from 0 to 1, downwards
    looks: np.ndarray  # (2, E): who looks, and at whom
    panels: tuple[GraphPanel, ...]
    title: str = ""
    caption: str = ""
    groups: tuple[str, ...] = ()  # of each node the label that it was given; none where there are no labels
    centre: int | None = None  # the node whose neighbourhood this is
    circle: bool = False  # names stand outside, around
    below: float | None = None  # what weighs less is not drawn
    told: tuple[str, ...] = ()  # sentences beside the legend's own

    def __post_init__(self) -> None:
        if self.below is not None and not 0 <= self.below < np.inf:
            raise RegardError(f"arrows are drawn from a weight on, 0 or more, not from {self.below:g}")

    def __repr__(self) -> str:
        return brief(self, quoted(self.title), f"{len(self.names)} nodes", f"{self.looks.shape[1]} edges")

    @cached_property
    def top(self) -> float:
        """The weight of the strongest look."""
        return scale_top(np.stack([panel.weights for panel in self.panels])) if self.looks.size else 1.0

    @cached_property
    def threshold(self) -> float:
        """The weight below which no arrow is drawn, in all panels alike."""
        if self.below is not None:
            return self.below
        least = [0.0]
        for panel in self.panels:
            known = np.sort(panel.weights[~np.isnan(panel.weights)])[::-1]
            least += [float(known[MOST - 1])] if len(known) > MOST else []
        return float(f"{max(self.top * FAINTEST, *least):.3g}")

    def drawn(self, panel: GraphPanel) -> list[Look]:
        """The arrows of a panel, the faintest first, so that the strongest lie on top."""
        with np.errstate(invalid="ignore"):
            there = ((panel.weights >= self.threshold) & (panel.weights > 0)).nonzero()[0]  # False for NaN
        order = there[np.argsort(panel.weights[there], kind="stable")]
        return [Look(int(self.looks[0, e]), int(self.looks[1, e]), float(panel.weights[e])) for e in order]

    @cached_property
    def hidden(self) -> float:
        """The share of all weight that is not drawn, from 0 to 1."""
        whole = sum(float(np.nansum(np.abs(panel.weights))) for panel in self.panels)
        shown = sum(look.weight for panel in self.panels for look in self.drawn(panel))
        return max(0.0, 1 - shown / whole) if whole > 0 else 0.0

    def stroke(self, weight: float) -> Stroke:
        """Thicker, darker and less transparent with the weight."""
        share = min(max(weight / self.top, 0.0), 1.0)
        return Stroke(hexadecimal(color(INK, 0.42 + 0.58 * share)), 0.6 + 2.6 * share, 0.4 + 0.6 * share)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The colour of each label."""
        names = sorted(set(self.groups) - {""})
        return {name: HUES[place % len(HUES)] for place, name in enumerate(names)}

    @cached_property
    def samples(self) -> tuple[float, ...]:
        """Weights whose arrows the legend shows."""
        return tuple(sorted({weight for weight in (self.threshold, self.top / 2, self.top) if 0 < weight <= self.top}))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the arrows, and all that they leave out."""
        share = "less than 1%" if 0 < self.hidden < 0.01 else f"{self.hidden:.0%}"
        left_out = f"weights below {self.threshold:g} are left out: {share} of all weight"
        arrows = "an arrow leads from who looks to who is looked at; a ring is a look at itself"
        return (arrows, left_out if self.hidden > 1e-9 else "no weight is left out", *self.told)

    def data(self) -> dict[str, JSON]:
        """Every node with its place, and every edge with its weight in each panel; a masked one is null."""
        groups = self.groups or ("",) * len(self.names)
        spots = zip(self.names, groups, self.places.tolist(), strict=True)
        nodes = [{"name": name, **({"label": label} if label else {}), "x": x, "y": y} for name, label, (x, y) in spots]
        edges = self.looks.T.tolist()
        panels = [{"title": each.title, "weights": each.weights.tolist()} for each in self.panels]
        names = {"title": self.title, "caption": self.caption, "notes": self.notes}
        drawn = {"below": self.threshold, "left_out": self.hidden}
        return finite({**names, **drawn, "nodes": nodes, "edges": edges, "panels": panels})

    def csv(self) -> str:
        """A line for each arrow that is drawn, the strongest first; places count from 0."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "row", "column", "looks", "is_looked_at", "weight"])
        for panel in self.panels:
            for row, column, weight in reversed(self.drawn(panel)):
                writer.writerow([panel.title, row, column, self.names[row], self.names[column], repr(weight)])
        return file.getvalue()

    def html(self) -> str:
        """A whole page: nothing is loaded from elsewhere, and without script it is a picture."""
        page: str = self._draw("page")
        return page

    def text(self, width: int = 80, color: bool = False) -> str:
        """For a terminal of that width: each node that looks, and the nodes that it looks at most."""
        return self._terminal(width, color)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {".html": self.html, ".json": self.json, ".csv": self.csv}


def graph_of_maps(maps: Sequence[AttentionMap], titles: Sequence[str], title: str, below: float | None) -> DrawnGraph:
    """Maps of the same words as graphs beside each other; words that look and words that are looked at may be different."""
    first = maps[0]
    same = first.rows == first.columns
    names = first.rows if same else (*first.rows, *first.columns)
    rows, columns = np.indices((len(first.rows), len(first.columns))).reshape(2, -1)
    looks = np.stack([rows, columns if same else columns + len(first.rows)])
    panels = tuple(GraphPanel(name, each.weights.ravel()) for name, each in zip(titles, maps, strict=True))
    told = first.notes if same else (*first.notes, "those who look stand on the right, those looked at on the left")
    return DrawnGraph(
        names, in_circle(len(names), len(first.rows)), looks, panels, title, circle=True, below=below, told=told
    )


def in_circle(count: int, first: int) -> np.ndarray:
    """Places around a circle, from the top on clockwise: (N, 2). Of two sides the `first` are on the right."""
    if count == first:
        turns = np.arange(count) / count
    else:
        right, left = (np.arange(1, n + 1) / (n + 1) / 2 for n in (first, count - first))
        turns = np.concatenate([right, 1 - left])
    return 0.5 + 0.5 * np.stack([np.sin(2 * np.pi * turns), -np.cos(2 * np.pi * turns)], axis=1)


def by_springs(edges: np.ndarray, count: int) -> np.ndarray:
    """Places of nodes between which edges (2, E) pull and all push: (N, 2), from 0 to 1, the same each time."""
    if count == 1:
        return np.full((1, 2), 0.5)
    spots = laplacian_positions(edges, count, 2).astype(float)
    spots = spots / max(1e-9, np.abs(spots).max()) + 0.1 * np.random.default_rng(1).standard_normal((count, 2))
    near = np.zeros((count, count))
    near[edges[0], edges[1]] = near[edges[1], edges[0]] = 1.0
    np.fill_diagonal(near, 0.0)
    length = 1.6 / np.sqrt(count)
    for heat in np.linspace(0.2, 0.002, ROUNDS):
        apart = spots[:, None] - spots[None]  # (N, N, 2)
        far = np.maximum(np.linalg.norm(apart, axis=-1), 1e-3)
        force = (length / far) ** 2 - near * far / length
        moved = (apart * force[..., None]).sum(axis=1) - 0.6 * spots  # and a little towards the middle
        size = np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-9)
        spots += moved / size * np.minimum(size, heat)
    low, high = spots.min(axis=0), spots.max(axis=0)
    return (spots - low) / np.maximum(high - low, 1e-9)
