"""Networks over graphs, against plain loops over nodes and neighbours, dense matrices, and torch_geometric where it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import regard
from regard.attention import Dense, Edges, MultiHead
from regard.attention.edges import edge_matrix, edge_softmax, mix_edges
from regard.data.graphs.batch import SparseRows
from regard.data.graphs.batches import graph_batch
from regard.data.graphs.config import GraphFormat
from regard.data.graphs.graph import Graph, SparseFeatures, tidy_edges, with_loops
from regard.errors import UsageError
from regard.models.config import GATConfig, GATv2Config, GCNConfig, GraphConfig, GraphTransformerConfig
from regard.models.graph import GATLayer, GATv2Layer, GCNLayer, GraphClassifier, product
from regard.models.table import build

N, F, H, E = 11, 7, 3, 5  # nodes, features, heads, width of a head
LABELS = 4


def drawn(nodes: int = N, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    return tidy_edges(random.integers(0, nodes, (2, 2 * nodes)), nodes, True, "drawn")  # one way: a swap is seen


def graph(nodes: int = N, seed: int = 1, features: int = F) -> Graph:
    random = np.random.default_rng(seed + 100)
    numbers = random.standard_normal((nodes, features)).astype(np.float32)
    return Graph(drawn(nodes, seed), numbers, random.integers(0, LABELS, nodes))


@pytest.fixture(scope="module")
def edges() -> Edges:
    source, target = torch.from_numpy(with_loops(drawn(), N))
    return Edges(source, target, N)


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(N, F, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def neighbours(edges: Edges, node: int) -> list[int]:
    return edges.source[edges.target == node].tolist()


def randomised(layer: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(5)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer.double().eval()


# --- Each layer against its paper, node by node


def test_gat_is_a_loop_over_nodes_and_neighbours(edges: Edges, x: Tensor) -> None:
    layer = randomised(GATLayer(F, H, E, 0.2, 0.6))
    found = layer(x, edges)
    for head in range(H):
        w = layer.weight[:, head * E : (head + 1) * E]
        for i in range(N):
            near = neighbours(edges, i)
            a = torch.cat([layer.looks[head], layer.is_seen[head]])
            scores = [leaky_relu(a @ torch.cat([x[i] @ w, x[j] @ w]), 0.2) for j in near]  # eq. 3
            alpha = torch.stack(scores).softmax(0)
            wanted = sum(alpha[n] * (x[j] @ w) for n, j in enumerate(near))  # eq. 4
            torch.testing.assert_close(found[i, head], wanted + layer.bias[head * E : (head + 1) * E])


@pytest.mark.parametrize("shared", [False, True])
def test_gatv2_is_a_loop_over_nodes_and_neighbours(edges: Edges, x: Tensor, shared: bool) -> None:
    layer = randomised(GATv2Layer(F, H, E, 0.2, 0.6, shared))
    found = layer(x, edges)
    for head in range(H):
        part = slice(head * E, (head + 1) * E)
        seen, looks = layer.weight[:, part], (layer.weight if shared else layer.looks)[:, part]
        for i in range(N):
            near = neighbours(edges, i)
            scores = [layer.a[head] @ leaky_relu(x[i] @ looks + x[j] @ seen, 0.2) for j in near]  # eq. 7
            alpha = torch.stack(scores).softmax(0)
            wanted = sum(alpha[n] * (x[j] @ seen) for n, j in enumerate(near)) + layer.bias[part]
            torch.testing.assert_close(found[i, head], wanted)


def test_gat_ranks_neighbours_alike_for_all_who_look_and_gatv2_does_not() -> None:
    """The point of Brody et al. 2022: where everyone sees everyone, GAT's order of neighbours is the same for all."""
    source, target = (torch.arange(N).repeat(N), torch.arange(N).repeat_interleave(N))
    every, given = Edges(source, target, N), torch.randn(N, F, generator=torch.Generator().manual_seed(1)).double()
    orders = {}
    for layer in (randomised(GATLayer(F, 1, E, 0.2, 0.0)), randomised(GATv2Layer(F, 1, E, 0.2, 0.0))):
        with regard.record(layer) as seen:
            layer(given, every)
        ranked = seen.calls[0].weights()[0, 0].argsort(dim=-1)
        orders[type(layer)] = {tuple(row) for row in ranked.tolist()}
    assert len(orders[GATLayer]) == 1 and len(orders[GATv2Layer]) > 1


def test_gcn_is_the_dense_normalised_adjacency(x: Tensor) -> None:
    both = tidy_edges(drawn(), N, False, "drawn")
    source, target = torch.from_numpy(with_loops(both, N))
    layer = randomised(GCNLayer(F, E))
    a = torch.zeros(N, N, dtype=torch.float64)
    a[target, source] = 1.0
    d = torch.diag(a.sum(dim=1) ** -0.5)
    torch.testing.assert_close(layer(x, Edges(source, target, N))[:, 0], d @ a @ d @ x @ layer.weight + layer.bias)


def test_torch_geometric_gives_the_same(edges: Edges, x: Tensor) -> None:
    """Runs only where it is installed: pip install torch_geometric."""
    nn = pytest.importorskip("torch_geometric.nn")
    pairs = torch.stack([edges.source, edges.target])
    ours, theirs = randomised(GATLayer(F, H, E, 0.2, 0.0)), nn.GATConv(F, E, H, add_self_loops=False).double()
    names = {"lin.weight": ours.weight.T, "att_src": ours.is_seen[None], "att_dst": ours.looks[None], "bias": ours.bias}
    theirs.load_state_dict(names)
    torch.testing.assert_close(ours(x, edges).flatten(1), theirs(x, pairs))
    second, others = randomised(GATv2Layer(F, H, E, 0.2, 0.0)), nn.GATv2Conv(F, E, H, add_self_loops=False).double()
    zeros = torch.zeros(H * E)
    names = {
        "lin_l.weight": second.weight.T,
        "lin_r.weight": second.looks.T,
        "att": second.a[None],
        "bias": second.bias,
    }
    others.load_state_dict({**names, "lin_l.bias": zeros, "lin_r.bias": zeros})
    torch.testing.assert_close(second(x, edges).flatten(1), others(x, pairs))
    third, last = randomised(GCNLayer(F, E)), nn.GCNConv(F, E, add_self_loops=False).double()
    last.load_state_dict({"lin.weight": third.weight.T, "bias": third.bias})
    both = torch.from_numpy(with_loops(tidy_edges(drawn(), N, False, "drawn"), N))
    torch.testing.assert_close(third(x, Edges(both[0], both[1], N))[:, 0], last(x, both))


# --- Sums over edges


def test_softmax_over_edges_is_that_of_each_node(edges: Edges) -> None:
    scores = 30 * torch.randn(len(edges.source), H, dtype=torch.float64)
    found = edge_softmax(scores, edges.target, N)
    for node in range(N):
        here = edges.target == node
        torch.testing.assert_close(found[here], scores[here].softmax(dim=0))


def test_gradients_of_sums_and_sparse_products(edges: Edges) -> None:
    weights = torch.rand(len(edges.source), H, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, H, N, E, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w, v: mix_edges(w, v, edges), (weights, values))
    torch.testing.assert_close(mix_edges(weights, values, edges), edge_matrix(weights, edges, N)[None] @ values)
    dense = np.random.default_rng(1).standard_normal((N, F)) * (np.random.default_rng(2).random((N, F)) < 0.3)
    rows, columns = dense.nonzero()
    kept = SparseFeatures.of(rows, columns, dense[rows, columns], (N, F))
    sparse = SparseRows(
        torch.from_numpy(kept.columns), torch.from_numpy(kept.values).double(), torch.from_numpy(kept.starts[:-1]), F
    )
    matrix = torch.randn(F, E, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(product(sparse, matrix), torch.from_numpy(kept.dense()).double() @ matrix)
    assert torch.autograd.gradcheck(lambda w: product(sparse, w), (matrix,))


def test_a_node_without_edges_gets_zeros() -> None:
    alone = Edges(torch.tensor([0]), torch.tensor([1]), 3)
    v = torch.randn(1, H, 3, E)
    out = mix_edges(edge_softmax(torch.randn(1, H), alone.target, 3), v, alone)
    assert torch.equal(out[0, :, 1], v[0, :, 0]) and not out[0, :, [0, 2]].any()


# --- A Transformer whose mask is the graph


def test_a_transformer_by_edges_is_one_with_a_dense_mask_and_sees_what_gat_sees(edges: Edges) -> None:
    heads = randomised(MultiHead(H * E, H, role="self"))
    given = 0.1 * torch.randn(1, N, H * E, dtype=torch.float64)  # small, so that no weight vanishes
    dense = heads(given, given, Dense(edges.dense(N, N)))
    torch.testing.assert_close(heads(given, given, edges), dense)
    gat = randomised(GATLayer(H * E, H, E, 0.2, 0.0))
    for node in range(N):
        moved = given.clone()
        moved[0, node] += 0.1
        others = (heads(moved, moved, edges) - dense)[0].abs().amax(dim=-1) > 1e-12
        also = (gat(moved[0], edges) - gat(given[0], edges)).flatten(1).abs().amax(dim=-1) > 1e-12
        assert others.tolist() == also.tolist() == [node in neighbours(edges, i) for i in range(N)]


def batch_of(graphs: list[Graph], whole: bool):  # type: ignore[no-untyped-def]  # the labels are of no interest here
    total = len(graphs) if whole else sum(each.nodes for each in graphs)
    return graph_batch(graphs, [0] * total, None if whole else np.arange(total))


CONFIGS: list[GraphConfig] = [
    GATConfig(width=15, heads=3, last_heads=2, residual=True),
    GATv2Config(width=15, heads=3, shared=True),
    GCNConfig(width=5, layers=3),
    GraphTransformerConfig(width=15, heads=3, feed_forward=13, laplacian=0),
]


def made(config: GraphConfig, whole: bool = False) -> GraphClassifier:
    torch.manual_seed(7)
    model = build("classify-graphs", config, labels=LABELS, graphs=GraphFormat(features=F, whole=whole))
    return randomised(model)  # type: ignore[return-value]


def logits(model: GraphClassifier, graphs: list[Graph], whole: bool) -> Tensor:
    batch = batch_of(graphs, whole)
    features = batch.features.double()
    with torch.no_grad():
        return model.logits(
            type(batch)(features, *(getattr(batch, n) for n in ("edges", "graph_of", "graphs", "scored", "labels")))
        )  # type: ignore[arg-type]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda each: each.kind)
def test_other_numbers_of_the_nodes_give_the_same_labels(config: GraphConfig) -> None:
    given, order = graph(), np.random.default_rng(9).permutation(N)
    place = np.argsort(order)
    moved = Graph(place[given.edges], given.features[order], given.labels[order])  # type: ignore[index]
    model, whole = made(config), made(config.model_copy(update={"readout": "attention"}), whole=True)
    torch.testing.assert_close(logits(model, [moved], False), logits(model, [given], False)[order])
    torch.testing.assert_close(logits(whole, [moved], True), logits(whole, [given], True))


@pytest.mark.parametrize("readout", ["mean", "attention"])
def test_graphs_side_by_side_do_not_see_each_other(readout: str) -> None:
    graphs = [graph(5, 1), graph(13, 2), graph(2, 3)]
    model = made(GATConfig(width=15, heads=3, readout=readout), whole=True)  # type: ignore[arg-type]
    alone = torch.cat([logits(model, [each], True) for each in graphs])
    torch.testing.assert_close(logits(model, graphs, True), alone)


class Largest(TorchDispatchMode):
    """The most numbers of a tensor that comes out of any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.most = max([self.most, *(each.numel() for each in tree_leaves(out) if isinstance(each, Tensor))])
        return out


@pytest.mark.parametrize("config", CONFIGS, ids=lambda each: each.kind)
def test_no_matrix_of_all_pairs_of_nodes_is_made(config: GraphConfig) -> None:
    """Neither forward nor back: no tensor has N² numbers, though the graph has many nodes for its edges."""
    nodes = 503
    batch, model = batch_of([graph(nodes)], False), made(config).float().train()
    with Largest() as seen:
        model(batch).objective(dict(batch.counts)).backward()
    assert seen.most < nodes**2 / 2
    if config.kind == "graph-transformer":  # whose dense mask is one, and is seen
        dense = made(config.model_copy(update={"mask": "dense"})).float().train()  # type: ignore[arg-type]
        with Largest() as seen:
            dense(batch).objective(dict(batch.counts)).backward()
        assert seen.most >= nodes**2


def test_the_dense_mask_of_the_model_is_its_edges() -> None:
    one, other = (
        made(GraphTransformerConfig(width=15, heads=3, laplacian=0, mask=mask)) for mask in ("edges", "dense")
    )  # type: ignore[arg-type]
    torch.testing.assert_close(logits(one, [graph()], False), logits(other, [graph()], False))


# --- Recording


@pytest.mark.parametrize("config", CONFIGS, ids=lambda each: each.kind)
def test_recorded_weights_on_edges_rebuild_the_output(config: GraphConfig) -> None:
    model = made(config)
    with regard.record(model) as seen:
        logits(model, [graph()], False)
    assert len(seen.calls) == config.layers and seen.check() < 1e-12
    for call in seen.calls:
        assert call.on_edges is not None
        whole = call.weights()
        assert not whole[~call.allowed()].any()
        torch.testing.assert_close(whole @ call.v, call.out)
        if config.kind != "gcn":
            torch.testing.assert_close(whole.sum(dim=-1), torch.ones(1, call.heads, N, dtype=torch.float64))
        torch.testing.assert_close(call.of_head(0)[0], whole[:, 0])


def test_some_rows_of_edge_weights() -> None:
    model = made(CONFIGS[0])
    with regard.record(model) as whole:
        logits(model, [graph()], False)
    with regard.record(model, rows=slice(2, 7)) as some:
        logits(model, [graph()], False)
    for part, call in zip(some.calls, whole.calls, strict=True):
        assert part.rows == (2, 3, 4, 5, 6) and part.check() < 1e-12
        torch.testing.assert_close(part.weights(), call.weights()[:, :, 2:7])


def test_heads_of_a_graph_network_are_removed_and_softened(edges: Edges, x: Tensor) -> None:
    layer = randomised(GATLayer(F, H, E, 0.2, 0.0))
    plain = layer(x, edges) - layer.bias.view(H, E)
    with regard.intervene(layer, regard.Remove("self", 0, head=1)):
        without = layer(x, edges) - layer.bias.view(H, E)
    assert not without[:, 1].any() and torch.equal(without[:, [0, 2]], plain[:, [0, 2]])
    with regard.intervene(layer, regard.Temperature("self", value=1e6)), regard.record(layer) as seen:
        layer(x, edges)
    for node in range(N):
        near = neighbours(edges, node)
        torch.testing.assert_close(
            seen.calls[0].weights()[0, 0, node, near].float(),
            torch.full((len(near),), 1 / len(near)),
            atol=1e-4,
            rtol=0,
        )
    convolution = made(CONFIGS[2])
    with (
        pytest.raises(UsageError, match="cannot be changed"),
        regard.intervene(convolution, regard.Temperature("self", value=2.0)),
    ):
        logits(convolution, [graph()], False)


def test_in_training_positions_are_turned_and_features_dropped() -> None:
    model = build(
        "classify-graphs", GCNConfig(laplacian=3, dropout=0.0), labels=2, graphs=GraphFormat(features=F)
    ).train()
    given = torch.ones(N, F + 3)
    signs = {tuple(model._turned(given)[0, -3:].tolist()) for _ in range(64)}  # type: ignore[operator]
    assert len(signs) == 8 and torch.equal(model._turned(given)[:, :F], given[:, :F])  # type: ignore[operator]
    assert model.eval()._turned(given) is given  # type: ignore[operator]
    assert math.isclose(float(model.train()._turned(given).abs().sum()), N * (F + 3))  # type: ignore[operator]
