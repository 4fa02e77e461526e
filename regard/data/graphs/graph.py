"""One graph: its edges, the features of its nodes, dense or sparse, and what it or its nodes are labelled with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from regard.errors import RegardError

DEGREES = 16  # features of nodes that have none of their own: how many edges they have, as one of so many
SPARSE = 0.2  # share of features that are not zero below which only those are kept
UNKNOWN = -1  # a label that nobody told


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Features of which most are zero: those that are not, row by row."""

    columns: np.ndarray  # (M,)
    values: np.ndarray  # (M,)
    starts: np.ndarray  # (N + 1,): where each row begins, and the end
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> np.ndarray:
        """The row of each value: (M,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def dense(self) -> np.ndarray:
        """All features, zeros too: (N, F)."""
        found = np.zeros((len(self), self.width), dtype=np.float32)
        np.add.at(found, (self.rows, self.columns), self.values)
        return found

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> SparseFeatures:
        """Features by row and column, in any order."""
        order = np.lexsort((columns, rows))
        starts = np.searchsorted(rows[order], np.arange(shape[0] + 1))
        return cls(columns[order].astype(np.int64), values[order].astype(np.float32), starts, shape[1])


Features = np.ndarray | SparseFeatures  # (N, F)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph. `edges` has for each edge the node that is looked at, and the node that looks."""

    edges: np.ndarray  # (2, E)
    features: Features  # (N, F)
    labels: np.ndarray  # (N,) of nodes, or (1,) of the graph: numbers of `names`; -1 where unknown
    label_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()  # numbers, where nobody named them
    parts: dict[str, np.ndarray] | None = None  # train, valid and test: numbers of nodes; None: the file has no split

    @property
    def nodes(self) -> int:
        return len(self.features)

    @property
    def width(self) -> int:
        return self.features.width if isinstance(self.features, SparseFeatures) else self.features.shape[1]

    @cached_property
    def degrees(self) -> np.ndarray:
        """The number of edges into each node: (N,)."""
        return np.bincount(self.edges[1], minlength=self.nodes)

    def name(self, node: int) -> str:
        return self.node_names[node] if self.node_names else str(node)

    def place(self, name: str) -> int:
        """The number of a node that a person names."""
        if name in self.node_names:
            return self.node_names.index(name)
        if name.isdecimal() and int(name) < self.nodes:
            return int(name)
        last = self.name(self.nodes - 1)
        raise RegardError(f"there is no node {name}", f"there are {self.nodes:,}, from {self.name(0)} to {last}")

    def neighbours(self, node: int) -> np.ndarray:
        """The nodes that a node looks at, itself included: sorted numbers."""
        return np.union1d(self.edges[0, self.edges[1] == node], [node])


def tidy_edges(edges: np.ndarray, nodes: int, directed: bool, where: str) -> np.ndarray:
    """Edges (2, E), each once; both ways, unless they are directed; a node's edge to itself is left out."""
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((2, 0), dtype=np.int64)
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu":
        raise RegardError(f"{where}: edges are whole numbers (2, E), not {edges.dtype} {edges.shape}")
    edges = (edges if edges.shape[0] == 2 else edges.T).astype(np.int64)
    if edges.min() < 0 or edges.max() >= nodes:
        wrong = edges.max() if edges.max() >= nodes else edges.min()
        raise RegardError(f"{where}: an edge names node {wrong}, and there are {nodes}, numbered from 0 to {nodes - 1}")
    edges = edges[:, edges[0] != edges[1]]
    if not directed:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    return np.unique(edges, axis=1)


def with_loops(edges: np.ndarray, nodes: int) -> np.ndarray:
    """The edges and one from each node to itself: a neighbourhood holds the node whose it is."""
    own = np.arange(nodes)
    return np.concatenate([edges, np.stack([own, own])], axis=1)


def degree_features(edges: np.ndarray, nodes: int) -> np.ndarray:
    """How many edges each node has, as one of `DEGREES` classes: (N, DEGREES)."""
    degrees = np.bincount(edges[1], minlength=nodes).clip(max=DEGREES - 1)
    return np.eye(DEGREES, dtype=np.float32)[degrees]


def normalised(features: Features) -> Features:
    """Features whose rows sum to one; a row of zeros stays."""
    if isinstance(features, SparseFeatures):
        sums = np.zeros(len(features))
        np.add.at(sums, features.rows, features.values)
        return replace(features, values=(features.values / _above(sums)[features.rows]).astype(np.float32))
    sums = features.sum(axis=1, keepdims=True)
    return (features / _above(sums)).astype(np.float32)


def _above(sums: np.ndarray) -> np.ndarray:
    return np.where(sums == 0, 1.0, sums)


def is_never_negative(graphs: Sequence[Graph]) -> bool:
    """Whether no feature of any graph is below zero, as where they count something."""
    values = (each.features.values if isinstance(each.features, SparseFeatures) else each.features for each in graphs)
    return all(each.size == 0 or float(each.min()) >= 0 for each in values)


def thinned(features: np.ndarray) -> Features:
    """Dense features as sparse ones, if most of many are zero."""
    if features.shape[1] < 64 or np.count_nonzero(features) > SPARSE * features.size:
        return features.astype(np.float32)
    rows, columns = features.nonzero()
    return SparseFeatures.of(rows, columns, features[rows, columns], (features.shape[0], features.shape[1]))
