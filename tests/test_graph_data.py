"""Graphs from files and built-in ones, their splits and batches; Laplacian positions against the dense matrix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from regard.data.builtin.communities import FRIENDS, STRANGERS, communities, community_centres, rings
from regard.data.graphs import laplacian
from regard.data.graphs.batches import GraphBatches, graph_batch
from regard.data.graphs.config import GraphFormat, GraphsConfig, are_graphs
from regard.data.graphs.files import read_graphs, read_npz, renumbered
from regard.data.graphs.graph import DEGREES, Graph, SparseFeatures, normalised, tidy_edges
from regard.data.graphs.laplacian import edge_norms, laplacian_positions
from regard.data.graphs.load import load_graphs, part_of, shown_to_model, with_split
from regard.errors import RegardError, UsageError

EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 2]])
FEATURES = np.array([[1.0, 3.0], [0.0, 0.0], [2.0, 2.0], [0.0, 5.0]], dtype=np.float32)
LABELS = np.array([1, 0, -1, 1])


def both_ways(edges: np.ndarray) -> set[tuple[int, int]]:
    return {(a, b) for a, b in edges.tolist()} | {(b, a) for a, b in edges.tolist()}


def pairs(graph: Graph) -> set[tuple[int, int]]:
    return {(a, b) for a, b in graph.edges.T.tolist()}


# --- Files


@pytest.mark.parametrize("edges", [EDGES, EDGES.T])
def test_an_archive(tmp_path: Path, edges: np.ndarray) -> None:
    mask = np.array([True, False, False, False])
    np.savez(
        tmp_path / "g.npz",
        edges=edges,
        features=FEATURES,
        label=LABELS,
        train_mask=mask,
        val=np.array([1]),
        test=np.array([3]),
    )
    found = read_npz(tmp_path / "g.npz")
    assert pairs(found) == both_ways(EDGES) and found.label_names == ("0", "1")
    assert found.labels.tolist() == [1, 0, -1, 1] and np.array_equal(found.features, FEATURES)  # type: ignore[arg-type]
    assert found.parts is not None and [each.tolist() for each in found.parts.values()] == [[0], [1], [3]]
    assert pairs(read_npz(tmp_path / "g.npz", directed=True)) == {(a, b) for a, b in EDGES.tolist()}


def test_sparse_features_of_an_archive(tmp_path: Path) -> None:
    rows, columns = FEATURES.nonzero()
    np.savez(
        tmp_path / "g.npz",
        edges=EDGES,
        feat_row=rows,
        feat_col=columns,
        feat_value=FEATURES[rows, columns],
        shape=[4, 2],
        label=LABELS,
    )
    found = read_npz(tmp_path / "g.npz").features
    assert isinstance(found, SparseFeatures) and np.array_equal(found.dense(), FEATURES)
    sums = normalised(found)
    assert isinstance(sums, SparseFeatures)
    assert np.allclose(sums.dense(), normalised(FEATURES)) and np.allclose(sums.dense().sum(axis=1), [1, 0, 1, 1])  # type: ignore[arg-type]


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edges=EDGES, label=np.array(["a", None, {}, "b"], dtype=object))
    with pytest.raises(RegardError, match="not an archive of plain arrays"):
        read_npz(tmp_path / "g.npz")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"edges": EDGES}, "has no label; it has edges"),
        ({"edges": EDGES + 1, "label": LABELS}, "names node 4, and there are 4, numbered from 0 to 3"),
        ({"edges": EDGES / 2, "label": LABELS}, "whole numbers"),
        ({"edges": EDGES, "label": LABELS, "features": FEATURES[:3]}, "3 nodes have features and 4 a label"),
        ({"edges": EDGES, "label": LABELS, "train": np.array([9])}, "train names nodes that are not there"),
        ({"edges": EDGES, "label": LABELS, "feat_row": [9], "feat_col": [0], "shape": [4, 2]}, "outside the shape"),
    ],
)
def test_archives_that_are_wrong(tmp_path: Path, arrays: dict[str, np.ndarray], match: str) -> None:
    np.savez(tmp_path / "g.npz", **{name: np.asarray(each) for name, each in arrays.items()})
    with pytest.raises(RegardError, match=match):
        read_npz(tmp_path / "g.npz")


@pytest.mark.parametrize("turned", [False, True])
def test_tables_of_edges_and_nodes(tmp_path: Path, turned: bool) -> None:
    (tmp_path / "edges.csv").write_text("source,target,kind\nann,bob,x\nbob,cy,x\n")
    (tmp_path / "nodes.csv").write_text(
        "id,age,label,split,size\nann,1,old,train,0.5\nbob,2,new,valid,1\ncy,3,,test,2\n"
    )
    names = [str(tmp_path / name) for name in ("edges.csv", "nodes.csv")]
    [found] = read_graphs(names[::-1] if turned else names)
    assert are_graphs(names) and not are_graphs(names[:1])
    assert found.node_names == ("ann", "bob", "cy") and pairs(found) == both_ways(np.array([[0, 1], [1, 2]]))
    assert np.array_equal(found.features, [[1, 0.5], [2, 1], [3, 2]])  # type: ignore[arg-type]
    assert [found.label_names[n] if n >= 0 else "" for n in found.labels] == ["old", "new", ""]
    assert found.parts is not None and found.parts["valid"].tolist() == [1] and found.place("cy") == 2
    with pytest.raises(RegardError, match="there is no node dan"):
        found.place("dan")
    (tmp_path / "edges.csv").write_text("source,target\nann,dan\n")
    with pytest.raises(RegardError, match="an edge names 'dan'"):
        read_graphs(names)


def test_whole_graphs_a_line_each(tmp_path: Path) -> None:
    rows = [{"edges": [[0, 1], [1, 2]], "label": "chain"}, {"edges": [[0, 1], [1, 2], [2, 0]], "label": "ring"}]
    path = tmp_path / "g.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    chain, ring = read_graphs([str(path)])
    assert chain.label_names == ring.label_names == ("chain", "ring") and (chain.labels[0], ring.labels[0]) == (0, 1)
    assert chain.features.shape == (3, DEGREES) and chain.features.argmax(axis=1).tolist() == [1, 2, 1]  # type: ignore[union-attr]
    assert renumbered(ring, ("ring",)).labels.tolist() == [0]
    path.write_text(json.dumps(rows[0]) + "\n" + '{"edges": [[0, "x"]], "label": "a"}')
    with pytest.raises(RegardError, match="line 2: ValueError"):
        read_graphs([str(path)])
    assert are_graphs([str(path)]) and are_graphs(["a.npz"]) and are_graphs(["builtin/rings/test"])
    assert not are_graphs(["a.tsv"]) and not are_graphs(["builtin/names"])
    with pytest.raises(UsageError, match="cannot tell what graph"):
        read_graphs([__file__])


# --- Splits and batches


def test_a_split_that_is_drawn_is_drawn_again(tmp_path: Path) -> None:
    graph = communities("train", 97)
    one, notes = with_split(graph)
    other, _ = with_split(communities("train", 97))
    parts = [part_of(one, name) for name in ("train", "valid", "test")]
    assert [len(each) for each in parts] == [58, 20, 19] and len(np.unique(np.concatenate(parts))) == 97
    assert all(
        np.array_equal(part_of(other, name), each) for name, each in zip(("train", "valid", "test"), parts, strict=True)
    )
    assert "drawn at random by a fixed seed, 58 to train, 20 to valid, 19 to test" in notes[0]


def test_held_out_graphs_and_formats(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    rows = [{"edges": [[0, 1]], "features": [[-1.0], [float(n)]], "label": str(n % 2)} for n in range(30)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    sets = load_graphs(GraphsConfig(train=(str(path),)))
    assert sets.counts == (27, 3) and sets.format == GraphFormat(features=1, whole=True, normalise="none")
    assert load_graphs(GraphsConfig(train=("builtin/rings",), builtin_size=10)).counts == (10, 500)
    nodes = load_graphs(GraphsConfig(train=("builtin/communities/50",)))
    assert nodes.train[0] is nodes.valid[0] and nodes.counts == (30, 10)
    with pytest.raises(RegardError, match="nodes are validated in the graph"):
        load_graphs(GraphsConfig(valid=("builtin/communities",)))
    with pytest.raises(RegardError, match="nodes have 16 features, and the model was trained on 3"):
        shown_to_model(nodes.train, GraphFormat(features=3), 0)


def test_batches_join_graphs_and_every_epoch_has_all() -> None:
    graphs = rings("train", 23)
    batch = graph_batch(graphs[:3], [0, 1, 0])
    sizes = [each.nodes for each in graphs[:3]]
    assert batch.nodes == sum(sizes) and batch.graph_of.bincount().tolist() == sizes
    assert (batch.graph_of[batch.edges[0]] == batch.graph_of[batch.edges[1]]).all()
    assert batch.edges.size(1) == sum(each.edges.shape[1] + each.nodes for each in graphs[:3])
    source = GraphBatches(graphs, 40, seed=5)
    for epoch in (0, 1):
        rows = np.concatenate(source.plan(epoch))
        assert sorted(rows.tolist()) == list(range(23)) and source.count(epoch) == len(source.plan(epoch)) > 3
    assert not np.array_equal(np.concatenate(source.plan(0)), np.concatenate(source.plan(1)))
    sparse = Graph(EDGES.T, SparseFeatures.of(*FEATURES.nonzero(), FEATURES[FEATURES.nonzero()], (4, 2)), LABELS)
    joined = graph_batch([sparse, sparse], [0, 0]).features
    assert len(joined) == 8 and joined.starts.tolist() == [0, 2, 2, 4, 5, 7, 7, 9]  # type: ignore[union-attr]


# --- Built-in graphs


def test_communities_are_such() -> None:
    graph = communities("train", 2000)
    same = graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]
    assert same.sum() / 2000 == pytest.approx(FRIENDS, rel=0.1) and (~same).sum() / 2000 == pytest.approx(
        STRANGERS, rel=0.1
    )
    assert np.bincount(graph.labels).tolist() == [400] * 5
    apart = np.linalg.norm(graph.features[:, None] - community_centres()[None], axis=-1)  # type: ignore[index]
    alone = (apart.argmin(axis=1) == graph.labels).mean()  # the best that can be said of a node alone
    assert 0.4 < alone < 0.6
    assert not np.array_equal(communities("test", 100).features, communities("train", 100).features)  # type: ignore[arg-type]


def test_rings_have_one_ring_and_trees_none() -> None:
    for graph in rings("test", 60):
        edges = graph.edges.shape[1] // 2
        assert edges == graph.nodes - 1 + int(graph.labels[0])  # connected, so that one edge more is one ring
        values = np.linalg.eigvalsh(laplacian.laplacian(graph.edges, graph.nodes))
        assert (values < 1e-9).sum() == 1  # in one part


# --- Laplacian positions


def dense_laplacian(edges: np.ndarray, nodes: int) -> np.ndarray:
    """I - D^-1/2 A D^-1/2, by its definition."""
    a = np.zeros((nodes, nodes))
    for i, j in edges.T:
        a[i, j] = a[j, i] = 1.0
    roots = np.diag(a.sum(axis=1) ** -0.5)
    return np.eye(nodes) - roots @ a @ roots


def test_positions_are_eigenvectors_of_the_dense_matrix() -> None:
    nodes = 37
    graph = tidy_edges(np.stack([np.arange(nodes - 1), np.arange(1, nodes)]), nodes, False, "chain")
    graph = np.concatenate([graph, tidy_edges(np.array([[0, 5], [9, 30]]), nodes, False, "more")], axis=1)
    matrix, found = dense_laplacian(graph, nodes), laplacian_positions(graph, nodes, 5).astype(float)
    values = np.linalg.eigvalsh(matrix)
    assert np.allclose(matrix @ found, found * values[1:6], atol=1e-6)
    assert np.allclose(found.T @ found, np.eye(5), atol=1e-5)
    assert (found[np.abs(found).argmax(axis=0), np.arange(5)] > 0).all()
    assert not laplacian_positions(graph[:, :0], 3, 5)[:, 2:].any()  # fewer nodes than positions: zeros


@pytest.mark.parametrize("parts", [1, 3])
def test_positions_of_large_graphs_span_those_of_the_matrix(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """In parts, eigenvalue 0 comes as often as there are parts, which a Krylov space of one vector would miss."""
    each = communities("train", 211).edges
    edges, nodes = np.concatenate([each + 211 * part for part in range(parts)], axis=1), 211 * parts
    values, vectors = np.linalg.eigh(dense_or(edges, nodes))
    count = next(n for n in range(6, 40) if values[n + 1] - values[n] > 1e-3)
    monkeypatch.setattr(laplacian, "SMALL", 10)
    found = laplacian._of_blocks(edges, nodes, count + 1)
    spanned = vectors[:, : count + 1]
    assert np.allclose(found.T @ found, np.eye(count + 1), atol=1e-6)
    assert np.allclose(spanned @ (spanned.T @ found), found, atol=1e-4)


def dense_or(edges: np.ndarray, nodes: int) -> np.ndarray:
    """The Laplacian, in which a node without edges is a part of its own."""
    matrix = np.diag((np.bincount(edges[1], minlength=nodes) > 0).astype(float))
    matrix[edges[1], edges[0]] = -edge_norms(edges, nodes)
    return matrix
