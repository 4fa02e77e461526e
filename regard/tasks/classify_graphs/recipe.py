"""Train a classifier of graphs: of the nodes of one, all in each update, or of many whole ones in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.graphs.batch import GraphBatch
from regard.data.graphs.batches import GraphBatches, NodeBatches, graph_batch
from regard.data.graphs.graph import Graph, SparseFeatures, tidy_edges
from regard.data.graphs.load import GraphSets, load_graphs, part_of, shown_to_model
from regard.evaluate.classification import f1_error, score_labels
from regard.models.configs.graphs import GraphNetConfig
from regard.tasks.classify_graphs.config import ClassifyGraphsConfig
from regard.tasks.config import RunConfig
from regard.tasks.recipe import (
    PreparedRun,
    Setup,
    class_weights,
    fingerprint,
    label_metrics,
    predicted_labels,
    uneven,
    uneven_notes,
)
from regard.tasks.subject import ROWS, Batch, FewBatches, NotApplicable, Subject
from regard.tokens import TextTokenizer
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error

SHOWN = 2  # validated nodes or graphs shown to the person
NODES = (7, 11, 3, 5, 13)  # of the graphs of `regard verify`
TOGETHER = 8192  # nodes of a batch in validation


def prepare_classify_graphs(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the graphs, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifyGraphsConfig)
    sets = load_graphs(config.data, setup.data_root)
    config = _chosen(config, setup, sets)
    setup.note(config)
    model = setup.build(config, labels=len(sets.labels), graphs=sets.format)
    sets = _shown(config, sets)
    train, valid = _batches(config, sets)
    counts = np.bincount(train.labels, minlength=len(sets.labels)).tolist()
    model.class_weights = class_weights(config.train.class_weights, sets.labels, counts)  # type: ignore[assignment]
    about = BundleConfig(task="classify-graphs", labels=sets.labels, graphs=sets.format, model=config.model)
    data: Fingerprint = {
        "the graphs": fingerprint(*map(_parts, (*sets.train, *sets.valid))),
        "the labels": list(sets.labels),
    }
    data["the split"] = fingerprint([train.labels], [valid.labels])
    what = "graphs" if sets.format.whole else "nodes"
    validate = _validation(valid, sets, uneven(counts))
    job = setup.job(config, Bundle(about, model, None, {}), train, validate, data, unit=what)
    told = (*sets.notes, *uneven_notes(sets.labels, counts, what, config.train.class_weights))
    return PreparedRun(job, (*told, _sizes(sets, what)))


def _chosen(config: ClassifyGraphsConfig, setup: Setup, sets: GraphSets) -> ClassifyGraphsConfig:
    updates = max(1.0, sum(graph.nodes for graph in sets.train) / config.train.batch_tokens) if sets.format.whole else 1
    facts = {"labels": len(sets.labels), "features": sets.format.features, "updates an epoch": updates}
    found = setup.choose(config, examples=sets.counts[0], **facts)
    assert isinstance(found, ClassifyGraphsConfig)
    return found


def _shown(config: ClassifyGraphsConfig, sets: GraphSets) -> GraphSets:
    """The graphs as the model is shown them; of nodes, training and validation have one."""
    assert isinstance(config.model, GraphNetConfig)
    train = shown_to_model(sets.train, sets.format, config.model.laplacian)
    if sets.valid[0] is sets.train[0]:
        return replace(sets, train=train, valid=train)
    return replace(sets, train=train, valid=shown_to_model(sets.valid, sets.format, config.model.laplacian))


def _batches(
    config: ClassifyGraphsConfig, sets: GraphSets
) -> tuple[NodeBatches, NodeBatches] | tuple[GraphBatches, GraphBatches]:
    if not sets.format.whole:
        graph = sets.train[0]
        return NodeBatches(graph, part_of(graph, "train")), NodeBatches(graph, part_of(graph, "valid"))
    train = GraphBatches(sets.train, config.train.batch_tokens, config.train.seed)
    return train, GraphBatches(sets.valid, TOGETHER, 0)


def _parts(graph: Graph) -> list[np.ndarray]:
    """The parts of a graph that a run must find unchanged."""
    values = graph.features.values if isinstance(graph.features, SparseFeatures) else graph.features.ravel()
    return [graph.edges.ravel(), values, graph.labels]


def _sizes(sets: GraphSets, what: str) -> str:
    first, learned, held = sets.train[0], *sets.counts
    counts = f"{learned:,} training and {held:,} validation {what}, {len(sets.labels)} labels"
    if sets.format.whole:
        return f"{counts}, {sets.format.features:,} features a node"
    shape = (
        f"{first.nodes:,} nodes, {first.edges.shape[1]:,} edges (both ways counted), {sets.format.features:,} features"
    )
    return f"one graph of {shape}; {counts}"


def _validation(batches: NodeBatches | GraphBatches, sets: GraphSets, rare: bool) -> Callable[[nn.Module], Validation]:
    """Loss, accuracy and F1 on nodes, or graphs, that no label was learned from."""
    labels = sets.labels

    def validate(model: nn.Module) -> Validation:
        predicted, loss = predicted_labels(model, batches, len(batches))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), labels)
        firsts = zip(predicted[:SHOWN].tolist(), batches.labels[:SHOWN].tolist(), strict=True)
        shown = [(_called(batches, row), labels[said], labels[wanted]) for row, (said, wanted) in enumerate(firsts)]
        errors = {"accuracy": share_error(found.accuracy, len(batches)), "f1": f1_error(found.confusion)}
        return Validation({"loss": loss, **label_metrics(found, rare)}, shown, errors)

    return validate


def _called(batches: NodeBatches | GraphBatches, row: int) -> str:
    return f"node {batches.nodes[row]}" if isinstance(batches, NodeBatches) else f"graph {row}"


class ClassifyGraphsSubject(Subject):
    """Random graphs, of each of which a node is labelled, or the whole."""

    @cached_property
    def graphs(self) -> list[Graph]:
        shown, model = self.bundle.config.graphs, self.bundle.config.model
        assert shown is not None and isinstance(model, GraphNetConfig)
        random, width = np.random.default_rng(1), shown.features + model.laplacian
        found = []
        for nodes in NODES:
            edges = tidy_edges(random.integers(0, nodes, (2, 2 * nodes)), nodes, shown.directed, "verify")
            features = 0.3 * random.standard_normal((nodes, width)).astype(np.float32)  # so that no loss leaps
            found.append(Graph(edges, features, random.integers(0, len(self.bundle.config.labels), 1)))
        return found

    def take(self, rows: Sequence[int]) -> GraphBatch:
        graphs = [self.graphs[row] for row in rows]
        ends = np.cumsum([graph.nodes for graph in graphs]) - 1  # the last node of each
        whole = self.bundle.config.graphs is not None and self.bundle.config.graphs.whole
        return graph_batch(graphs, [int(graph.labels[0]) for graph in graphs], None if whole else ends)

    def batch(self, model: nn.Module, rows: Sequence[int] = ROWS) -> Batch:
        batch = super().batch(model, rows)
        return replace(batch, features=batch.features.to(next(model.parameters()).dtype))

    def lengthened(self, batch: GraphBatch) -> GraphBatch:
        raise NotApplicable("graphs stand side by side in a batch: nothing is padded")

    def training(self, seed: int) -> FewBatches:
        return FewBatches([self.take(rows) for rows in ([0, 1], [2, 3], [3, 4], [4, 0])], seed)

    def real(self, outputs: Tensor, batch: GraphBatch) -> list[Tensor]:
        """The scores of each graph's labels, or of those of its last node: (labels,)."""
        return list(outputs)

    def writes(self, batch: GraphBatch) -> Tensor:
        raise NotApplicable("the nodes of a graph have no order: nothing comes later")

    @property
    def tokenizers(self) -> dict[str, TextTokenizer]:
        return {}
