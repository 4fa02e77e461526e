"""Graphs whose answers are known: communities of a network, and small graphs with or without a ring.

Communities are a stochastic block model (Holland et al. 1983): two nodes of one community know each other with one
probability, of two communities with a lesser one. Features are the community's own vector and much noise: a node alone can
be told only badly, by its neighbours well. Rings are random trees with one more edge, in which exactly one ring closes.
"""

from __future__ import annotations

import numpy as np

from regard.data.graphs.graph import Graph, degree_features, tidy_edges

NODES, GROUPS, WIDTH = 1000, 5, 16
FRIENDS, STRANGERS = 6.0, 2.0  # edges of a node within its community, and to all others, on average
NOISE = 3.5  # deviation of each feature, beside centres whose features have a deviation of 1
LEAST, MOST = 6, 20  # nodes of a small graph
SEEDS = {"train": 1, "valid": 2, "test": 3}
LABELS = ("tree", "ring")


def communities(split: str = "train", nodes: int = NODES) -> Graph:
    """One network; those of other splits are other people of the same communities."""
    random = np.random.default_rng((7, SEEDS[split]))
    labels = random.permutation(np.arange(nodes) % GROUPS)
    centres = community_centres()
    features = (centres[labels] + NOISE * random.standard_normal((nodes, WIDTH))).astype(np.float32)
    edges = np.concatenate([_within(random, labels), _between(random, labels)], axis=1)
    names = tuple("ABCDE")
    return Graph(tidy_edges(edges, nodes, False, "communities"), features, labels, names)


def community_centres() -> np.ndarray:
    """The vector of each community, that of its members on average: (GROUPS, WIDTH)."""
    return np.random.default_rng(11).standard_normal((GROUPS, WIDTH))


def _within(random: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Edges between nodes of one community, drawn one by one: (2, E)."""
    found = []
    for group in range(GROUPS):
        members = (labels == group).nonzero()[0]
        count = random.poisson(FRIENDS * len(members) / 2)
        found.append(members[random.integers(0, len(members), (2, count))])
    return np.concatenate(found, axis=1)


def _between(random: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Edges between communities: (2, E)."""
    wanted = random.poisson(STRANGERS * len(labels) / 2)
    drawn = random.integers(0, len(labels), (2, 2 * wanted + 8))
    return drawn[:, labels[drawn[0]] != labels[drawn[1]]][:, :wanted]


def rings(split: str, count: int) -> list[Graph]:
    """Small graphs, half of them trees, half with one ring."""
    random = np.random.default_rng((13, SEEDS[split]))
    return [_small(random, number % 2) for number in range(count)]


def _small(random: np.random.Generator, label: int) -> Graph:
    nodes = int(random.integers(LEAST, MOST + 1))
    order = random.permutation(nodes)
    parents = [int(random.integers(0, place)) for place in range(1, nodes)]
    edges = [(parent, place) for place, parent in enumerate(parents, start=1)]
    if label:
        free = [(a, b) for b in range(2, nodes) for a in range(b) if (a, b) not in set(edges)]
        edges.append(free[int(random.integers(0, len(free)))])
    tidy = tidy_edges(order[np.array(edges).T], nodes, False, "rings")
    return Graph(tidy, degree_features(tidy, nodes), np.array([label]), LABELS)
