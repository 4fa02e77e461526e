"""Graph networks on Cora, and what an epoch costs as graphs grow.

    python benchmarks/graphs.py -o docs/results/graphs.json

Cora (McCallum et al. 2000; the split of Yang et al. 2016: 140 training, 500 validation and 1,000 test nodes) is read
from REGARD_DATA/cora/cora.npz. Each kind is trained as in its paper, with ten seeds: GAT with two layers, eight heads of
eight, dropout 0.6 on features and weights, Adam at 0.005 with L2 of 5e-4; GCN with 16 units, dropout 0.5, at 0.01. After each
fourth update the validation nodes are looked at; a run ends 100 updates after neither their accuracy nor their loss was
better. Weights are chosen by them alone, in two ways, each with a score on the test nodes: those with the least loss
("loss": what `regard train` does where accuracies are within their error), and those at which both were the best so far
("both": GAT's authors, execute_cora.py). The other table times one update of GAT on built-in communities.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.data.builtin.communities import communities
from regard.data.graphs.batches import NodeBatches
from regard.data.graphs.config import GraphFormat
from regard.data.graphs.files import read_npz
from regard.data.graphs.graph import Graph
from regard.data.graphs.load import part_of, shown_to_model, with_split
from regard.files import write_json
from regard.models.config import GATConfig, GATv2Config, GCNConfig, GraphConfig
from regard.models.table import build
from regard.noise import noise
from regard.training.config import TrainConfig
from regard.training.optimiser import make_optimiser, set_rate

PATIENCE, EVERY, MOST = 100, 4, 1000  # updates
PUBLISHED = {"gat": "83.0 ± 0.7 (Velickovic et al. 2018)", "gcn": "81.5 (Kipf & Welling 2017)"}
RULES = ("loss", "both")
RATES = {"gat": 5e-3, "gatv2": 5e-3, "gcn": 1e-2}
SIZES = (500, 1000, 2000, 4000, 8000, 16000)


def train_config(kind: str, seed: int) -> TrainConfig:
    """How the papers train."""
    values = {"weight_decay": 5e-4, "decay": "l2", "betas": (0.9, 0.999), "epsilon": 1e-8, "warmup": 0}
    return TrainConfig(seed=seed, lr=RATES[kind], schedule="constant", precision="float32", **values)


def learned(model: nn.Module, graph: Graph, config: TrainConfig, most: int) -> tuple[dict[str, float], int]:
    """The test accuracy in percent of the weights that validated best, by either rule, and how many updates it took."""
    train, valid, test = (NodeBatches(graph, part_of(graph, part)) for part in ("train", "valid", "test"))
    batch, optimiser = train.get(0, 0), make_optimiser(model, config)
    set_rate(optimiser, config.lr)
    best, since, step = (-1.0, -float("inf")), 0, 0
    kept = dict.fromkeys(RULES, copy.deepcopy(model.state_dict()))
    while step < most and since < PATIENCE:
        model.train()
        with noise(config.seed, step, 0):
            model(batch).objective(batch.counts).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step, since = step + 1, since + 1
        if step % EVERY:
            continue
        found = scored(model, valid)
        better = [new >= old for new, old in zip(found, best, strict=True)]
        kept |= dict.fromkeys(
            [rule for rule, holds in zip(RULES, (better[1], all(better)), strict=True) if holds],
            copy.deepcopy(model.state_dict()),
        )
        if any(better):
            best, since = (max(found[0], best[0]), max(found[1], best[1])), 0
    return {rule: 100 * of_weights(model, kept[rule], test) for rule in RULES}, step


def of_weights(model: nn.Module, weights: dict[str, torch.Tensor], test: NodeBatches) -> float:
    model.load_state_dict(weights)
    return scored(model, test)[0]


@torch.no_grad()
def scored(model: nn.Module, batches: NodeBatches) -> tuple[float, float]:
    """The share of nodes that are right, and the mean log-likelihood."""
    parts = model.eval()(batches.get(0, 0)).parts
    return float(parts["correct"].sum) / len(batches), -float(parts["nll"].sum) / len(batches)


def accuracy(graph: Graph, config: GraphConfig, seeds: int, most: int) -> dict[str, object]:
    """The accuracy of one kind of network with each seed, their mean and deviation."""
    shown = GraphFormat(features=graph.width, normalise="rows")
    ready, updates, began = shown_to_model([graph], shown, 0)[0], [], time.process_time()
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for seed in range(1, seeds + 1):
        torch.manual_seed(seed)
        model = build("classify-graphs", config, labels=len(graph.label_names), graphs=shown)
        percent, steps = learned(model, ready, train_config(config.kind, seed), most)
        for rule in RULES:
            found[rule].append(round(percent[rule], 2))
        updates.append(steps)
        print(f"{config.kind} seed {seed}: {percent['loss']:.1f}%, {percent['both']:.1f}%, {steps} updates", flush=True)
    cost = {"updates": updates, "cpu_seconds": round(time.process_time() - began, 1)}
    return {
        **{rule: summary(each) for rule, each in found.items()},
        **cost,
        "published": PUBLISHED.get(config.kind, ""),
    }


def summary(found: list[float]) -> dict[str, object]:
    """Mean and standard deviation over seeds, and each."""
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    return {"mean": round(statistics.mean(found), 2), "deviation": round(spread, 2), "accuracies": found}


def growth(sizes: tuple[int, ...], times: int) -> list[dict[str, float]]:
    """Processor time of an update of GAT, by nodes and edges, and the most memory that an N x N matrix would take."""
    rows = []
    for nodes in sizes:
        graph, _ = with_split(communities("train", nodes))
        shown = GraphFormat(features=graph.width)
        model = build("classify-graphs", GATConfig(), labels=len(graph.label_names), graphs=shown).train()
        batch = NodeBatches(graph, part_of(graph, "train")).get(0, 0)
        took = []
        for step in range(times + 1):
            began = time.process_time()
            with noise(1, step, 0):
                model(batch).objective(batch.counts).backward()
            took.append(time.process_time() - began)
        seconds, edges = float(np.median(took[1:])), batch.edges.size(1)
        row = {"nodes": nodes, "edges": edges, "milliseconds": round(1e3 * seconds, 2)}
        rows.append({**row, "microseconds_an_edge": round(1e6 * seconds / edges, 3)})
        print(
            f"{nodes:,} nodes, {edges:,} edges: {1e3 * seconds:.1f} ms, {1e6 * seconds / edges:.2f} µs an edge",
            flush=True,
        )
    return rows


def exponents(rows: list[dict[str, float]]) -> dict[str, float]:
    """The power of nodes and of edges by which the time grows: the slope between logarithms."""
    logs = {name: np.log([row[name] for row in rows]) for name in ("nodes", "edges", "milliseconds")}
    return {name: round(float(np.polyfit(logs[name], logs["milliseconds"], 1)[0]), 2) for name in ("nodes", "edges")}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--out", type=Path, help="where to write the results")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kinds", nargs="*", default=["gat", "gcn", "gatv2"])
    parser.add_argument("--tiny", action="store_true", help="a few updates on built-in communities")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    if asked.tiny:
        graph, seeds, most, sizes, times = with_split(communities("train", 100))[0], 2, 3, (50, 100), 1
    else:
        graph = read_npz(Path(os.environ["REGARD_DATA"]) / "cora" / "cora.npz")
        seeds, most, sizes, times = asked.seeds, MOST, SIZES, 5
    configs = {"gat": GATConfig(), "gatv2": GATv2Config(), "gcn": GCNConfig()}
    rows = growth(sizes, times)
    cora: dict[str, object] = {}
    found: dict[str, object] = {"cora": cora, "growth": rows, "exponents": exponents(rows)}
    for kind in asked.kinds:
        cora[kind] = accuracy(graph, configs[kind], seeds, most)
        if asked.out is not None:
            write_json(asked.out, found)
    print(json.dumps(found if asked.tiny else found["exponents"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
