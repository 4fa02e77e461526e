"""Batches of graphs: several side by side are one graph in parts, so that nothing is padded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from regard.data.graphs.batch import GraphBatch, SparseRows
from regard.data.graphs.graph import Graph, SparseFeatures, with_loops


def graph_batch(
    graphs: Sequence[Graph], labels: np.ndarray | Sequence[int], scored: np.ndarray | None = None
) -> GraphBatch:
    """Graphs side by side. `scored` are the nodes of all that labels are of; None: labels are of the graphs."""
    sizes = np.array([graph.nodes for graph in graphs])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    edges = [with_loops(graph.edges, graph.nodes) + start for graph, start in zip(graphs, starts, strict=True)]
    return GraphBatch(
        features=_features(graphs),
        edges=torch.from_numpy(np.concatenate(edges, axis=1)),
        graph_of=torch.from_numpy(np.repeat(np.arange(len(graphs)), sizes)),
        graphs=len(graphs),
        scored=torch.from_numpy(np.arange(len(graphs)) if scored is None else np.asarray(scored, dtype=np.int64)),
        labels=torch.from_numpy(np.asarray(labels, dtype=np.int64)),
    )


def _features(graphs: Sequence[Graph]) -> torch.Tensor | SparseRows:
    found = [graph.features for graph in graphs]
    sparse = [each for each in found if isinstance(each, SparseFeatures)]
    if len(sparse) < len(found):
        dense = [each.dense() if isinstance(each, SparseFeatures) else each for each in found]
        return torch.from_numpy(np.concatenate(dense).astype(np.float32, copy=False))
    offsets = np.concatenate([[0], np.cumsum([len(each.columns) for each in sparse])[:-1]])
    starts = np.concatenate([each.starts[:-1] + offset for each, offset in zip(sparse, offsets, strict=True)])
    columns, values = (np.concatenate([getattr(each, name) for each in sparse]) for name in ("columns", "values"))
    return SparseRows(torch.from_numpy(columns), torch.from_numpy(values), torch.from_numpy(starts), sparse[0].width)


class NodeBatches:
    """Some nodes of one graph, all in each batch: an epoch is one update."""

    def __init__(self, graph: Graph, nodes: np.ndarray) -> None:
        self.nodes, self.labels = nodes, graph.labels[nodes]
        self._whole = graph_batch([graph], self.labels, nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def plan(self, epoch: int) -> list[np.ndarray]:
        return [np.arange(len(self.nodes))]

    def count(self, epoch: int) -> int:
        return 1

    def get(self, epoch: int, index: int) -> GraphBatch:
        return self._whole

    def take(self, rows: Sequence[int] | np.ndarray) -> GraphBatch:
        return self._whole.of(torch.as_tensor(np.asarray(rows, dtype=np.int64)))

    def padding_share(self) -> float:
        return 0.0


class GraphBatches:
    """Whole graphs in an order of each epoch's own, as many in a batch as have `batch_nodes` nodes together."""

    def __init__(self, graphs: Sequence[Graph], batch_nodes: int, seed: int) -> None:
        self.graphs, self.labels = graphs, np.array([int(graph.labels[0]) for graph in graphs])
        self.batch_nodes, self.seed = batch_nodes, seed
        self._sizes = np.array([graph.nodes for graph in graphs])
        self.plan = lru_cache(maxsize=2)(self._plan)  # epoch -> the graphs of each batch

    def __len__(self) -> int:
        return len(self.graphs)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> GraphBatch:
        return self.take(self.plan(epoch)[index])

    def take(self, rows: Sequence[int] | np.ndarray) -> GraphBatch:
        numbers = np.asarray(rows, dtype=np.int64)
        return graph_batch([self.graphs[number] for number in numbers.tolist()], self.labels[numbers])

    def padding_share(self) -> float:
        return 0.0

    def _plan(self, epoch: int) -> list[np.ndarray]:
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.graphs))
        batch = np.cumsum(self._sizes[order]) // self.batch_nodes
        return np.split(order, np.flatnonzero(np.diff(batch)) + 1)
