"""Score a classifier of graphs on nodes, or graphs, that it has not learned from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from regard.data.graphs.files import of_whole_graphs, read_graphs, renumbered
from regard.data.graphs.graph import Graph
from regard.data.graphs.load import part_of, with_split
from regard.errors import RegardError
from regard.evaluate.classification import score_labels
from regard.predictor import Cancel
from regard.tasks.classify.evaluate import LabelEvaluation
from regard.tasks.classify_graphs.predictor import GraphLabeller


def evaluate_graphs(
    predictor: GraphLabeller,
    names: Sequence[str],
    data_root: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
) -> tuple[LabelEvaluation, tuple[str, ...]]:
    """Classify the test nodes of a graph, or the graphs of a file, and compare; and what is to be told of it.

    builtin/communities/test is a graph that the model never saw: all its nodes are scored.
    """
    found = predictor.read_file(list(names)) if data_root is None else read_graphs(names, data_root)
    graphs = [renumbered(graph, predictor.labels) for graph in found]
    started = time.perf_counter()
    shares = predictor.probabilities(graphs, progress, cancel)
    seconds = time.perf_counter() - started
    notes: tuple[str, ...] = ()
    if of_whole_graphs(names):
        wanted = np.array([int(graph.labels[0]) for graph in graphs])
    else:
        nodes, notes = _test_nodes(graphs[0], names[0])
        wanted, shares = graphs[0].labels[nodes], shares[nodes]
    unknown = {graphs[0].label_names[number] for number in wanted if number >= len(predictor.labels)}
    if unknown or (wanted < 0).any() or not len(wanted):
        raise RegardError(
            f"the test set has labels that the model never learned: {', '.join(sorted(unknown)) or 'none at all'}",
            f"it knows {', '.join(predictor.labels[:8])}",
        )
    predicted = shares.argmax(axis=1)
    scores = score_labels(predicted.tolist(), wanted.tolist(), predictor.labels)
    return LabelEvaluation(scores, predicted, wanted, seconds), notes


def _test_nodes(graph: Graph, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The nodes that are scored: those that the file keeps for tests; without a split, what a run on this file leaves."""
    if name.startswith("builtin/") and name.endswith(("/test", "/valid")):
        return np.arange(graph.nodes), ()
    graph, notes = with_split(graph)
    nodes = part_of(graph, "test")
    if not len(nodes):
        raise RegardError(f"{name} keeps no nodes for a test", "name some: an array or a split called test")
    return nodes, notes
