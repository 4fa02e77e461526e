"""Classify graphs: a graph in, the labels of its nodes out, or its own; and how much each node looked at each neighbour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.attention import AttentionCall, record
from regard.brief import brief, quoted
from regard.bundle import Bundle
from regard.data.graphs.batches import graph_batch
from regard.data.graphs.files import of_whole_graphs, read_graphs
from regard.data.graphs.graph import Graph
from regard.data.graphs.load import shown_to_model
from regard.errors import Advice, Option, UsageError
from regard.files import JSON
from regard.look.graph import DrawnGraph, GraphPanel, by_springs
from regard.look.layers import check_choice
from regard.models.graph import GraphClassifier
from regard.predictor import Cancel, Predictor, Progress, Result, check_cancel, label_list

TOGETHER = 256  # whole graphs of a batch
DRAWN = 120  # nodes up to which a whole graph is drawn
NEAR = 60  # nodes of a neighbourhood that are drawn

GraphInput = Graph | str | Path | Sequence[str]  # a graph, a file of graphs, or tables of edges and nodes


@dataclass(frozen=True)
class ClassifiedNode(Result):
    """A node of a graph, or a whole graph, and what the model makes of it."""

    name: str
    label: str
    probability: float
    probabilities: dict[str, float]  # of every label, the likeliest first
    is_graph: bool = False

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return brief(self, quoted(self.name), repr(self.label), probability=self.probability)

    def data(self) -> dict[str, JSON]:
        return {
            "graph" if self.is_graph else "node": self.name,
            "label": self.label,
            "probability": self.probability,
            "labels": label_list(self.probabilities),
        }


class GraphLabeller(Predictor):
    """A trained classifier of nodes or of whole graphs, ready to use."""

    model: GraphClassifier

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.config.graphs is not None
        super().__init__(bundle)
        self.format, self.labels = bundle.config.graphs, bundle.config.labels

    def read_file(self, given: GraphInput) -> list[Graph]:
        """The graphs that a person means, which must be such as the model was trained on."""
        if isinstance(given, Graph):
            return [given]
        names = [str(given)] if isinstance(given, (str, Path)) else [str(each) for each in given]
        if of_whole_graphs(names) != self.format.whole:
            has, wants = ("whole graphs", "nodes") if not self.format.whole else ("nodes of one graph", "whole graphs")
            raise UsageError(
                f"{', '.join(names)} has {has}, and this model gives labels to {wants}",
                f"name {'a .jsonl with a graph a line' if self.format.whole else 'an .npz, or edges.csv and nodes.csv'}",
            )
        return read_graphs(names, directed=self.format.directed)

    def classify(
        self,
        given: GraphInput | Sequence[Graph],
        nodes: Sequence[str] | None = None,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> list[ClassifiedNode]:
        """Classify every node of a graph (or those named), or every graph of a file."""
        several = not isinstance(given, (str, Path, Graph)) and bool(given) and isinstance(given[0], Graph)
        graphs: list[Graph] = list(given) if several else self.read_file(given)  # type: ignore[arg-type]
        if not self.format.whole:
            graph = graphs[0]
            places = np.arange(graph.nodes) if nodes is None else np.array([graph.place(name) for name in nodes])
            shares = self.probabilities(graphs, cancel=cancel)[places]
            return [self._one(graph.name(place), row) for place, row in zip(places.tolist(), shares, strict=True)]
        if nodes is not None:
            raise UsageError("this model gives labels to whole graphs", Advice("leave out ", Option("node")))
        shares = self.probabilities(graphs, progress, cancel)
        return [self._one(str(number), row) for number, row in enumerate(shares)]

    def probabilities(
        self, graphs: Sequence[Graph], progress: Progress | None = None, cancel: Cancel | None = None
    ) -> np.ndarray:
        """The probability of every label, of each node of one graph or of each of several: (nodes or graphs, labels)."""
        found = []
        for start in range(0, len(graphs), TOGETHER):
            check_cancel(cancel)
            found.append(self._shares(graphs[start : start + TOGETHER]))
            if progress is not None:
                progress(min(start + TOGETHER, len(graphs)), len(graphs))
        return np.concatenate(found) if found else np.zeros((0, len(self.labels)))

    @torch.inference_mode()
    def _shares(self, graphs: Sequence[Graph]) -> np.ndarray:
        ready = shown_to_model(graphs, self.format, self.model.config.laplacian)
        total = len(graphs) if self.format.whole else sum(graph.nodes for graph in graphs)
        scored = None if self.format.whole else np.arange(total)
        batch = graph_batch(ready, np.zeros(total, dtype=np.int64), scored).to(self.device)
        shares: np.ndarray = self.model.logits(batch).double().softmax(dim=-1).cpu().numpy()  # type: ignore[arg-type]
        return shares

    def _one(self, name: str, shares: np.ndarray) -> ClassifiedNode:
        order = np.argsort(-shares, kind="stable")
        every = {self.labels[place]: float(shares[place]) for place in order}
        return ClassifiedNode(name, self.labels[order[0]], float(shares[order[0]]), every, self.format.whole)

    def edge_weights(self, graph: Graph) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
        """Who looks and at whom (2, E), each node also at itself; of each layer the weights (H, E); and of each node or of
        the graph the probability of every label.
        """
        with record(self.model, only="self") as seen:
            shares = self.probabilities([graph])
        calls: list[AttentionCall] = seen.calls
        if not calls:
            raise UsageError(f"this {self.config.model.kind} recorded no weights on edges")
        edges = [_listed(call) for call in calls]
        return edges[0][0], [weights for _, weights in edges], shares

    def look(
        self, given: GraphInput, node: str | None = None, row: int = 0, layer: int | None = None, head: int | None = None,
        below: float | None = None,
    ) -> DrawnGraph:  # fmt: skip
        """The graph with the weights on its edges; of a large one the neighbourhood of a node.

        row    which graph of a file of whole graphs, from 0
        layer  of weights, from 0 (None: the first, which looks at what nodes say of themselves); head: one of it (None: mean)
        """
        graphs = self.read_file(given)
        if not 0 <= row < len(graphs):
            raise UsageError(f"there is no graph {row}; there are {len(graphs):,}, counted from 0")
        graph = graphs[row]
        looks, layers, shares = self.edge_weights(graph)
        number = 0 if layer is None else layer
        check_choice(number, head, [len(each) for each in layers])
        chosen = layers[number].mean(axis=0) if head is None else layers[number][head]
        which = f"layer {number}, " + (f"mean of {len(layers[number])} heads" if head is None else f"head {head}")
        told: tuple[str, ...] = ()
        if node is None and graph.nodes > DRAWN:
            node = graph.name(0)
            told = (f"{graph.nodes:,} nodes are too many to draw: those around node {node}; --node names another",)
        centre = None if node is None else graph.place(node)
        kept = np.arange(graph.nodes) if centre is None else around(graph, centre, self.model.config.layers)
        title = f"{self.config.model.kind}: {which}"
        return self._drawn(graph, kept, centre, looks, chosen, shares, title, told, below)

    def _drawn(
        self, graph: Graph, kept: np.ndarray, centre: int | None, looks: np.ndarray, weights: np.ndarray,
        shares: np.ndarray, title: str, told: tuple[str, ...], below: float | None,
    ) -> DrawnGraph:  # fmt: skip
        """Some nodes of a graph with the edges between them."""
        place = np.full(graph.nodes, -1)
        place[kept] = np.arange(len(kept))
        there = (place[looks] >= 0).all(axis=0)
        inside = place[looks[:, there]]
        said = [self.labels[best] for best in shares.argmax(axis=1)]
        groups = () if self.format.whole else tuple(said[node] for node in kept)
        if not self.format.whole:
            told = (*told, "colours are the labels that the model gives")
        return DrawnGraph(
            names=tuple(graph.name(node) for node in kept.tolist()),
            places=by_springs(inside[:, inside[0] != inside[1]], len(kept)),
            looks=inside,
            panels=(GraphPanel("", weights[there]),),
            title=title,
            caption=self._caption(said, shares, graph, centre),
            groups=groups,
            centre=None if centre is None else int(place[centre]),
            below=0.0 if below is None else below,
            told=told,
        )

    def _caption(self, said: Sequence[str], shares: np.ndarray, graph: Graph, centre: int | None) -> str:
        if self.format.whole:
            return f"{said[0]} {shares[0].max():.0%}"
        if centre is None:
            return ""
        return f"node {graph.name(centre)}: {said[centre]} {shares[centre].max():.0%}"


def _listed(call: AttentionCall) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a call, who looks first, and its weights: (2, E) and (H, E). A dense mask is listed by its pairs."""
    if call.on_edges is not None:
        looks = torch.stack([call.graph.target, call.graph.source])
        return looks.cpu().numpy(), call.on_edges.T.double().cpu().numpy()
    looks = call.permitted()[0, 0].nonzero().T  # (2, E)
    return looks.cpu().numpy(), call.weights()[0][:, looks[0], looks[1]].double().cpu().numpy()


def around(graph: Graph, node: int, hops: int) -> np.ndarray:
    """The nodes at most so many edges away, the nearest first and of these those with the most edges; `NEAR` at most."""
    kept, edge = [node], np.array([node])
    for _ in range(hops):
        found = np.setdiff1d(graph.edges[0, np.isin(graph.edges[1], edge)], kept)
        found = found[np.argsort(-graph.degrees[found], kind="stable")][: NEAR - len(kept)]
        kept += found.tolist()
        edge = found
    return np.array(kept)
