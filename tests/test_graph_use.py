"""Graphs from file to label: training, scores, labels, invariants and drawings, by the command line and in Python."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.bundle import Bundle, BundleConfig, save_bundle
from regard.cli.main import run
from regard.data.builtin.communities import communities, rings
from regard.data.graphs.config import GraphFormat
from regard.data.graphs.graph import Graph
from regard.look.graph import DrawnGraph, GraphPanel, by_springs, graph_of_maps, in_circle
from regard.look.map import AttentionMap
from regard.models.table import build
from regard.tasks.classify_graphs.predictor import GraphLabeller, around
from regard.tasks.configure import run_config
from regard.verify import verify

SMALL = {"gat": {"width": 6, "heads": 3}, "gatv2": {"width": 6, "heads": 3}, "gcn": {"width": 5}}
SMALL["graph-transformer"] = {"width": 6, "heads": 3, "feed_forward": 7, "laplacian": 2}


def bundle_of(kind: str, whole: bool = False, features: int = 16) -> Bundle:
    torch.manual_seed(1)
    shown, labels = GraphFormat(features=features, whole=whole), ("ring", "tree") if whole else tuple("ABCDE")
    model = run_config("classify", {"model": {"kind": kind, **SMALL[kind]}}).model
    about = BundleConfig(task="classify-graphs", model=model, labels=labels, graphs=shown)
    return Bundle(about, build("classify-graphs", model, labels=len(labels), graphs=shown), None, {})


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    code = run(words)
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


# --- Invariants


@pytest.mark.parametrize("whole", [False, True], ids=["nodes", "graphs"])
@pytest.mark.parametrize("kind", list(SMALL))
def test_every_invariant_holds(kind: str, whole: bool) -> None:
    found = {each.name: each for each in verify(bundle_of(kind, whole))}
    assert not [each for each in found.values() if each.passed is False]
    passed = {name for name, each in found.items() if each.passed}
    assert passed == {
        "batched = single",
        "accumulated = large batch",
        "recorded weights = output",
        "reloaded = saved",
        "resumed = uninterrupted",
    }
    assert "no order" in found["later tokens change nothing earlier"].detail
    assert "nothing is padded" in found["padded = unpadded"].detail


# --- From a file to labels


def test_nodes_from_an_archive_to_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = communities("train", 150)
    np.savez("graph.npz", edges=graph.edges, features=graph.features, label=np.array(list("ABCDE"))[graph.labels])
    words = (
        "--steps",
        "40",
        "--set",
        "model.dropout=0.2",
        "--set",
        "model.attention_dropout=0",
        "--set",
        "train.lr=0.03",
    )
    told = json.loads(typed(capsys, "train", "classify", "--data", "graph.npz", "--model", "gat", *words, "--json"))
    assert told["metrics"]["accuracy"] > 60 and told["run"] == "runs/classify/1"
    scores = json.loads(typed(capsys, "eval", "runs/classify/1", "--on", "graph.npz", "--json"))
    assert scores["texts"] == 30 and scores["accuracy"] > 60 and "drawn at random" in scores["notes"][0]
    other = json.loads(typed(capsys, "eval", "runs/classify/1", "--on", "builtin/communities/150/test", "--json"))
    assert other["texts"] == 150
    lines = typed(capsys, "classify", "graph.npz").splitlines()
    predictor = regard.load("runs/classify/1", task="classify-graphs")
    assert lines == [f"{each.name}\t{each.label}" for each in predictor.classify("graph.npz")] and len(lines) == 150
    [one] = typed(capsys, "classify", "graph.npz", "--node", "17", "--json").splitlines()
    assert json.loads(one) == predictor.classify("graph.npz", ["17"])[0].data()
    typed(capsys, "look", "graph.npz", "--node", "17", "-o", "g.json")
    drawn = json.loads(Path("g.json").read_text())
    assert drawn["nodes"][0]["name"] == "17" and len(drawn["edges"]) == len(drawn["panels"][0]["weights"])
    assert run(("classify", "graph.npz", "--second", "x")) == 2 and run(("look", "graph.npz", "--as", "map")) == 2
    assert run(("classify", "graph.npz", "--node", "9999")) == 1
    assert run(("train", "classify", "--data", "graph.npz", "--model", "bert", "--steps", "1")) != 0


def test_whole_graphs_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = {"train": rings("train", 300), "test": rings("test", 100)}
    for name, graphs in sets.items():
        rows = [{"edges": each.edges.T.tolist(), "label": each.label_names[each.labels[0]]} for each in graphs]
        Path(f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    words = ("--steps", "120", "--set", "train.lr=0.02", "--set", "model.dropout=0", "--set", "train.validate_every=60")
    typed(capsys, "train", "classify", "--data", "train.jsonl", "--model", "gcn", *words, "--json")
    scores = json.loads(typed(capsys, "eval", "runs/classify/1", "--on", "test.jsonl", "--json"))
    assert scores["texts"] == 100 and scores["accuracy"] > 85
    assert len(typed(capsys, "classify", "test.jsonl").splitlines()) == 100
    typed(capsys, "look", "test.jsonl", "--row", "3", "-o", "g.svg")
    assert run(("classify", "builtin/communities")) == 2
    assert "gives labels to whole graphs" in capsys.readouterr().err


# --- Where nodes look


def test_the_drawn_weights_are_the_recorded_ones(tmp_path: Path) -> None:
    predictor = regard.load(save_bundle(tmp_path / "bundle", bundle_of("gat")))
    assert isinstance(predictor, GraphLabeller)
    graph = communities("train", 60)
    looks, layers, shares = predictor.edge_weights(graph)
    assert [each.shape[0] for each in layers] == [3, 1] and shares.shape == (60, 5)
    for weights in layers:
        for node in range(60):
            assert weights[:, looks[0] == node].sum(axis=1) == pytest.approx(1.0)
            assert set(looks[1, looks[0] == node]) == set(graph.neighbours(node).tolist())
    whole = predictor.look(graph, layer=0, head=2)
    assert np.array_equal(whole.panels[0].weights, layers[0][2]) and np.array_equal(whole.looks, looks)
    near = predictor.look(graph, node="5")
    assert near.centre == 0 and near.names[0] == "5" and set(near.names[1:]) <= {str(n) for n in range(60)}
    assert set(map(str, graph.neighbours(5))) <= set(near.names)


def test_a_large_graph_is_drawn_around_a_node() -> None:
    graph = communities("train", 1000)
    kept = around(graph, 7, 2)
    assert kept[0] == 7 and len(kept) == len(set(kept.tolist())) <= 60
    steps = {7: 0}
    for hop in (1, 2):
        steps |= {int(n): hop for m in list(steps) for n in graph.neighbours(m) if int(n) not in steps}
    assert all(int(node) in steps for node in kept)


# --- Graphs of tokens


def words(count: int) -> tuple[str, ...]:
    return tuple(f"w{number}" for number in range(count))


BY_HAND = AttentionMap(
    np.array([[1.0, np.nan, np.nan], [0.96, 0.04, np.nan], [0.3, 0.5, 0.2]]), words(3), words(3), "hand"
)


def test_a_map_as_a_graph() -> None:
    graph = graph_of_maps([BY_HAND], [""], "hand", None)
    assert graph.names == words(3) and graph.threshold == 0.1
    assert [tuple(look) for look in graph.drawn(graph.panels[0])] == [
        (2, 2, 0.2), (2, 0, 0.3), (2, 1, 0.5), (1, 0, 0.96), (0, 0, 1.0)
    ]  # fmt: skip
    assert graph.hidden == pytest.approx(0.04 / 3) and "weights below 0.1 are left out: 1%" in " ".join(graph.notes)
    rows = list(csv.DictReader(io.StringIO(graph.csv())))
    assert (rows[0]["looks"], rows[0]["is_looked_at"], float(rows[0]["weight"])) == ("w0", "w0", 1.0)
    assert json.loads(graph.json())["panels"][0]["weights"][1] is None
    page = ElementTree.fromstring(graph.html().split("\n", 1)[1])
    assert len([each for each in page.iter() if each.get("class") == "a"]) == 5
    assert "w2 → w1 0.50" in graph.text() and graph.figure().get_figwidth() > 4
    everything = graph_of_maps([BY_HAND], [""], "hand", 0.0)
    assert len(everything.drawn(everything.panels[0])) == 6 and everything.hidden == pytest.approx(0.0)


def test_two_sides_stand_apart_and_words_go_round_clockwise() -> None:
    cross = AttentionMap(np.full((2, 3), 1 / 3), words(3), ("a", "b"), "cross")
    graph = graph_of_maps([cross, cross], ["head 0", "head 1"], "cross", None)
    assert graph.names == ("a", "b", "w0", "w1", "w2") and len(graph.panels) == 2
    assert (graph.places[:2, 0] > 0.5).all() and (graph.places[2:, 0] < 0.5).all() and graph.looks[1].min() == 2
    top, right, bottom, left = in_circle(4, 4)
    assert np.allclose([top, right, bottom, left], [[0.5, 0], [1, 0.5], [0.5, 1], [0, 0.5]])


def test_springs_put_neighbours_together() -> None:
    graph: Graph = communities("train", 40)
    spots = by_springs(graph.edges, 40)
    apart = np.linalg.norm(spots[:, None] - spots[None], axis=-1)
    assert apart[graph.edges[0], graph.edges[1]].mean() < 0.7 * apart.mean()
    assert spots.min() >= 0 and spots.max() <= 1 and np.array_equal(spots, by_springs(graph.edges, 40))
    one = DrawnGraph(("a",), by_springs(np.zeros((2, 0), int), 1), np.zeros((2, 1), int), (GraphPanel("", np.ones(1)),))
    assert one.figure().get_figheight() > 1


def test_any_text_is_a_graph_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the language model that comes with Regard; of one layer a panel for each head."""
    asked = ("look", "def main(", "-m", "python", "--as", "graph")
    typed(capsys, *asked, "--layer", "1", "-o", str(tmp_path / "g.json"))
    found = json.loads((tmp_path / "g.json").read_text())
    assert [each["title"] for each in found["panels"]] == ["head 0", "head 1", "head 2", "head 3"]
    for panel in found["panels"]:
        weights = np.array([np.nan if each is None else each for each in panel["weights"]], dtype=float)
        sums = np.nansum(weights.reshape(len(found["nodes"]), -1), axis=1)
        assert sums == pytest.approx(1.0, abs=1e-4)
    assert "main → " in typed(capsys, *asked, "--layer", "1", "--head", "0", "--below", "0.3")
    assert run((*asked[:4], "--below", "0.3")) == 2 and run((*asked, "--node", "1")) == 2
