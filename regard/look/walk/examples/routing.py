"""Experts: which feed-forward layer takes which token (Shazeer et al. 2017; Fedus et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from regard.errors import UsageError
from regard.look.walk.examples.given import (
    check_names,
    check_product,
    name_shapes,
    read_count,
    read_labels,
    read_matrix,
)
from regard.look.walk.examples.matrices import place_of
from regard.look.walk.feed_forward import ExpertsNumbers, FeedForwardNumbers, expert_names, expert_steps, routing_steps
from regard.look.walk.steps import About, Array, Numbers, Step, Walk, counted, quoted_token
from regard.look.walk.sublayer import LinearNumbers

WORDS = ("two", "dogs", "ran", "and", "three", "sat")
X = ((2, 0, 1), (0, 2, 0), (0, 1, 2), (0, 0, 1), (1, 0, 2), (0, 0, 2))
ROUTER = ((2, 0, 0, 1), (0, 2, 1, -1), (0, 0, 2, 1))  # four experts
USED = 2
KEYS = ("x", "router", "used", "labels")


def example_experts() -> ExpertsNumbers:
    """Four experts of two units each: expert n has its own small matrices."""
    up = [((1, 0), (0, 1), (-1, 0)), ((0, 1), (1, 0), (0, -1)), ((-1, 1), (0, 1), (1, 0)), ((1, 1), (-1, 0), (0, 1))]
    down = [((1, 0, 0), (0, 1, 0)), ((0, 1, 1), (1, 0, 0)), ((0, 0, 2), (1, 0, 1)), ((1, 1, 0), (0, 0, 1))]
    pairs = zip(up, down, strict=True)
    experts = tuple(FeedForwardNumbers(_linear(first), _linear(second), "relu") for first, second in pairs)
    return ExpertsNumbers(np.array(ROUTER, dtype=np.float64), experts, USED)


def _linear(rows: tuple[tuple[float, ...], ...]) -> LinearNumbers:
    return LinearNumbers(np.array(rows, dtype=np.float64))


def experts_walk(query: int | str | None = None) -> Walk:
    """Routing of six tokens to four experts; with a query, also what its experts make of that token."""
    return routing_walk(example_experts(), np.array(X, dtype=np.float64), WORDS, query)


def read_routing(values: Mapping[str, object], name: str, query: int | str | None) -> Walk:
    """Routing of a person's own tokens: x (T x D), router (D x experts), used."""
    check_names(values, KEYS, ("x", "router"), name)
    found = {key: read_matrix(values[key], f"{name}: {key}") for key in ("x", "router")}
    check_product(found, "x", "router", name)
    used, count = read_count(values.get("used", 1), f"{name}: used", 1), found["router"].shape[1]
    if used > count:
        raise UsageError(f"{name}: each token uses {used} experts, and there are {count}", name_shapes(found, "router"))
    if query is not None:
        raise UsageError(f"{name} has a router and no experts to go through for one token", "leave out the query")
    labels = read_labels(values.get("labels"), len(found["x"]), f"{name}: labels")
    nothing = FeedForwardNumbers(_linear(((0.0,),)), _linear(((0.0,),)), "relu")
    return routing_walk(ExpertsNumbers(found["router"], (nothing,) * count, used), found["x"], labels, None)


def routing_walk(layer: ExpertsNumbers, x: Array, labels: tuple[str, ...], query: int | str | None) -> Walk:
    """All tokens to their experts; with a query, what the experts of that token say."""
    first = Step(
        "The tokens",
        "x",
        "Made up, small and whole." if labels == WORDS else "As they were given.",
        (Numbers("x", x, labels),),
    )
    about: About = {"queries": list(labels), "keys": list(expert_names(len(layer.experts)))}
    summary = (
        f"{counted(len(labels), 'token')}, {counted(len(layer.experts), 'expert')}, of which each token uses "
        f"{layer.used}: many weights, and few of them for each token."
    )
    if query is None:
        return Walk("Experts: who takes which token", summary, (first, *routing_steps(layer, x, labels)), about)
    place = place_of(labels, query)
    title = f"Experts: what {quoted_token(labels[place])} becomes"
    return Walk(
        title,
        summary,
        (first, *expert_steps(layer, x, place, labels)),
        {**about, "query": place, "token": labels[place]},
    )
