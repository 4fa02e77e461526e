"""The graphs of a run: read, split, and made as a model is shown them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from regard.data.graphs.config import GraphFormat, GraphsConfig
from regard.data.graphs.files import TESTED, of_whole_graphs, read_graphs, renumbered
from regard.data.graphs.graph import Graph, SparseFeatures, is_never_negative, normalised
from regard.data.graphs.laplacian import laplacian_positions
from regard.errors import RegardError

SHARES = (0.6, 0.2)  # of labelled nodes, for training and validation, where a file has no split; the rest is for tests
SEED = 1  # of such a split: a test finds the same nodes again


@dataclass(frozen=True, eq=False)
class GraphSets:
    """The graphs of a run. Where labels are of nodes, training and validation have one graph and different nodes."""

    train: list[Graph]
    valid: list[Graph]
    labels: tuple[str, ...]
    format: GraphFormat
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> tuple[int, int]:
        """How many labels are learned from, and how many validated on."""
        if self.format.whole:
            return len(self.train), len(self.valid)
        return len(part_of(self.train[0], "train")), len(part_of(self.valid[0], "valid"))


def load_graphs(config: GraphsConfig, data_root: Path | None = None) -> GraphSets:
    """Training and validation graphs as the configuration names them."""
    whole = of_whole_graphs(config.train)
    found = read_graphs(config.train, data_root, directed=config.directed, split="train", size=config.builtin_size)
    train, valid, notes = (_whole if whole else _nodes)(found, config, data_root)
    known = [graph.label_names[number] for graph in train for number in np.unique(graph.labels) if number >= 0]
    if len(set(known)) < 2:
        raise RegardError(f"{', '.join(config.train)}: {len(set(known))} different labels", "a classifier needs two")
    widths = {graph.width for graph in (*train, *valid)}
    if len(widths) > 1:
        raise RegardError(f"graphs have different numbers of features: {sorted(widths)}", "give every node as many")
    how = config.normalise
    if how == "auto":
        how = "rows" if is_never_negative(train) else "none"
    shown = GraphFormat(features=widths.pop(), whole=whole, normalise=how, directed=config.directed)
    return GraphSets(train, valid, train[0].label_names, shown, notes)


def _nodes(
    found: list[Graph], config: GraphsConfig, data_root: Path | None
) -> tuple[list[Graph], list[Graph], tuple[str, ...]]:
    if config.valid:
        raise RegardError("data.valid: nodes are validated in the graph that they are learned in", "leave it out")
    graph, notes = with_split(found[0])
    if not len(part_of(graph, "train")) or not len(part_of(graph, "valid")):
        raise RegardError(
            "a graph needs nodes to learn from and others to validate on", "name them: train, valid, test"
        )
    return [graph], [graph], notes


def _whole(
    found: list[Graph], config: GraphsConfig, data_root: Path | None
) -> tuple[list[Graph], list[Graph], tuple[str, ...]]:
    if any(graph.labels[0] < 0 for graph in found):
        raise RegardError(f"{', '.join(config.train)}: a graph has no label", "give each one")
    builtin = config.train[0].startswith("builtin/")
    names = config.valid or (config.train if builtin else ())
    if names:
        valid = read_graphs(names, data_root, directed=config.directed, split="valid", size=TESTED)
        valid = [renumbered(graph, found[0].label_names) for graph in valid]
        if len(valid[0].label_names) > len(found[0].label_names):
            raise RegardError(f"validation has labels that training has not: {valid[0].label_names[-1]}")
        return found, valid, ()
    order = np.random.default_rng(SEED).permutation(len(found))
    held = max(1, min(config.hold_out, len(found) // 10))
    if held >= len(found):
        raise RegardError(f"{len(found)} graphs are too few to hold some out", "name a validation set (data.valid)")
    note = f"no validation set: held out {held:,} of {len(found):,} graphs"
    return [found[n] for n in order[held:]], [found[n] for n in order[:held]], (note,)


def with_split(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The graph with a split: its own, or one drawn by a fixed seed of the nodes that have a label."""
    if graph.parts is not None:
        return graph, ()
    known = np.random.default_rng(SEED).permutation((graph.labels >= 0).nonzero()[0])
    ends = np.round(np.cumsum(SHARES) * len(known)).astype(int)
    parts = dict(zip(("train", "valid", "test"), np.split(known, ends), strict=True))
    told = ", ".join(f"{len(nodes):,} to {name}" for name, nodes in parts.items())
    return replace(graph, parts=parts), (f"the file has no split: nodes are drawn at random by a fixed seed, {told}",)


def part_of(graph: Graph, part: str) -> np.ndarray:
    """The nodes of a part of a graph's split that have a label."""
    nodes = (graph.parts or {}).get(part, np.zeros(0, dtype=np.int64))
    return nodes[graph.labels[nodes] >= 0]


def shown_to_model(graphs: Sequence[Graph], how: GraphFormat, positions: int) -> list[Graph]:
    """Graphs with features as a model is shown them: normalised, and Laplacian positions behind them."""
    for graph in graphs:
        if graph.width != how.features:
            raise RegardError(
                f"nodes have {graph.width:,} features, and the model was trained on {how.features:,}",
                "give the same features",
            )
    return [replace(graph, features=_shown(graph, how, positions)) for graph in graphs]


def _shown(graph: Graph, how: GraphFormat, positions: int) -> np.ndarray | SparseFeatures:
    features = normalised(graph.features) if how.normalise == "rows" else graph.features
    if not positions:
        return features
    places = laplacian_positions(graph.edges, graph.nodes, positions)
    if isinstance(features, np.ndarray):
        return np.concatenate([features, places], axis=1)
    rows, columns = np.indices(places.shape).reshape(2, -1)
    return SparseFeatures.of(
        np.concatenate([features.rows, rows]),
        np.concatenate([features.columns, columns + features.width]),
        np.concatenate([features.values, places.ravel()]),
        (len(features), features.width + positions),
    )
