"""Bahdanau's and Luong's walks: every number of every step against plain loops over the model's own weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from test_walk import OTHER, TEXT, agree, check_lines, predictor_of, rows_of
from torch import Tensor
from torch.nn.functional import cosine_similarity, linear, softmax

from regard.inspect.walk import walk
from regard.look.walk import Walk

SMALL = {"width": 6, "hidden": 10, "dropout": 0.0}
SCORES = ("additive", "dot", "scaled-dot", "general", "cosine", "location")


def state_and_annotations(predictor: Any, query: int) -> tuple[Tensor, Tensor]:
    """What asks at target position `query` and what is looked at, by running the parts of the model by hand."""
    model = predictor.model
    source = torch.tensor([[*predictor.tokenizers.source.encode(TEXT), 2]])
    target = torch.tensor([[1, *predictor.tokenizers.target.encode(OTHER)]])
    memory = model.encode(source, torch.tensor([source.size(1)]))
    state = model.begin(memory)
    asked = state.layers[-1][0][0]
    for t in range(query + 1):  # one step after another, as in decoding
        asked = state.layers[-1][0][0]
        _, state = model.step(target[:, t : t + 1], state)
    new = state.layers[-1][0][0]
    return (new if model.config.kind == "luong" else asked), memory.vectors[0]


def scored(score: Any, kind: str, s: Tensor, h: Tensor) -> tuple[dict[str, Any], Tensor]:
    """The arrays of a score, and the score of each annotation (S,)."""
    rows = range(len(h))
    if kind == "additive":
        asked, offered = linear(s, score.query.weight), linear(h, score.key.weight)
        both = torch.stack([asked + offered[j] for j in rows])
        v = score.value.weight[0]
        terms = torch.stack([v * both[j].tanh() for j in rows])
        arrays = {"s W": asked, "h U": offered, "W": score.query.weight.T, "U": score.key.weight.T, "v": v}
        return {**arrays, "s W + h U": both, "tanh": both.tanh(), "products": terms}, score.value(both.tanh())[:, 0]
    if kind == "general":
        made = linear(h, score.key.weight)
        arrays = {"h W": made, "W": score.key.weight.T, "products": torch.stack([s * made[j] for j in rows])}
        return arrays, torch.stack([s @ made[j] for j in rows])
    if kind == "cosine":
        strength = score.log_strength.exp()
        unit, units = s / s.norm(), torch.stack([h[j] / h[j].norm() for j in rows])
        arrays = {"length of s": s.norm(), "unit s": unit, "length of h": h.norm(dim=1), "unit h": units, "β": strength}
        return {**arrays, "products": unit * units}, strength * cosine_similarity(s[None], h)
    if kind == "location":
        weight = score.position.weight
        found = {"W": weight, "products": torch.stack([s * weight[j] if j < len(weight) else s * 0 for j in rows])}
        return found, found["products"].sum(dim=1)
    factor = 1 / math.sqrt(len(s)) if kind == "scaled-dot" else 1.0
    return {"products": torch.stack([s * h[j] for j in rows])}, h @ s * factor


@torch.no_grad()
def oracle(predictor: Any, query: int, seen: list[bool] | None = None) -> dict[str, Any]:
    model = predictor.model
    s, h = state_and_annotations(predictor, query)
    arrays, scores = scored(model.attention.score, model.config.score, s, h)
    arrays |= {"s": s, "h": h, "sums": arrays["products"].sum(dim=1), "scores": scores}
    scores = scores / model.attention.temperature
    arrays["tempered"] = scores
    if seen is not None:
        arrays["allowed"] = [float(each) for each in seen]
        scores = scores.masked_fill(~torch.tensor(seen), -math.inf)
    highest = max(scores.tolist())
    powers = [math.exp(each - highest) for each in scores.tolist()]
    arrays |= {"masked scores": scores, "max": highest, "shifted": scores - highest, "exp": powers, "sum": sum(powers)}
    arrays["weights"] = softmax(scores, dim=0)
    return arrays


def contexts(arrays: dict[str, Any], weights: Any) -> dict[str, Any]:
    h, weights = arrays["h"], torch.as_tensor(weights, dtype=torch.float64)
    each = torch.stack([weights[j] * h[j] for j in range(len(h))])
    return {**arrays, "weighted h": each, "context": each.sum(dim=0)}


def joined(predictor: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Luong's attentional vector."""
    combine = predictor.model.combine
    inner = combine(torch.cat([arrays["context"], arrays["s"]]))
    return {**arrays, "W_c [c ; s]": inner, "vector": inner.tanh(), "W_c": combine.weight.T, "b_c": combine.bias}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_every_number_of_bahdanaus_look(score: str, cell: str) -> None:
    predictor = predictor_of("translate", {**SMALL, "kind": "bahdanau", "score": score, "cell": cell, "layers": 2})
    found = walk(predictor, TEXT, OTHER, query=3)
    arrays = oracle(predictor, 3)
    agree(found, contexts(arrays, arrays["weights"]))
    assert check_lines(found) >= 3 and found.difference < 1e-9 and set(found.differences) == {"weights", "context"}
    titles = [step.title for step in found.steps]
    assert titles[0].startswith("What asks") and titles[-1].startswith("Recomputed")


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("more", [{}, {"input_feeding": True, "temperature": 1.7}], ids=["plain", "fed"])
def test_every_number_of_luongs_look(score: str, more: dict[str, Any]) -> None:
    predictor = predictor_of("translate", {**SMALL, "kind": "luong", "score": score, **more})
    found = walk(predictor, TEXT, OTHER, query=2)
    arrays = oracle(predictor, 2)
    agree(found, joined(predictor, contexts(arrays, arrays["weights"])))
    check_lines(found)
    vectors = predictor.read(TEXT, OTHER).run()[0, 2]  # of one pass over the whole translation
    np.testing.assert_allclose(found["vector"][0], vectors, atol=1e-9)
    assert set(found.differences) == {"weights", "context", "vector"} and found.difference < 1e-9


def test_a_window_at_the_same_position() -> None:
    predictor = predictor_of("translate", {**SMALL, "kind": "luong", "where": "local-m", "window": 1})
    found = walk(predictor, TEXT, OTHER, query=2)
    arrays = oracle(predictor, 2, [abs(j - 2) <= 1 for j in range(7)])
    arrays |= {"p": 2.0}
    agree(found, joined(predictor, contexts(arrays, arrays["weights"])))
    check_lines(found)
    step = next(step for step in found.steps if step.title.startswith("Mask"))
    assert step.arrays[-1].remarks.count("outside the window") == 4


@torch.no_grad()
def test_a_window_at_a_predicted_position() -> None:
    predictor = predictor_of("translate", {**SMALL, "kind": "luong", "where": "local-p", "window": 2})
    found = walk(predictor, TEXT, OTHER, query=1)
    s, _ = state_and_annotations(predictor, 1)
    place = predictor.model.attention.place
    inner = place.inner(s).tanh()
    total = place.outer(inner)
    p = float(7 * total.sigmoid())
    arrays = oracle(predictor, 1, [abs(j - p) <= 2 for j in range(7)])
    bell = [math.exp(-((j - p) ** 2) / (2 * 1.0**2)) for j in range(7)]
    weakened = [float(weight) * fall for weight, fall in zip(arrays["weights"], bell, strict=True)]
    arrays |= {
        "tanh(W_p s)": inner,
        "v_p · tanh": total,
        "p": p,
        "W_p": place.inner.weight.T,
        "v_p": place.outer.weight[0],
    }
    arrays |= {"fall-off": bell, "weakened": weakened}
    agree(found, joined(predictor, contexts(arrays, weakened)))
    check_lines(found)
    assert found.difference < 1e-9 and found["weakened"].sum() < 1


def test_positions_that_a_score_does_not_know_are_masked() -> None:
    predictor = predictor_of("translate", {**SMALL, "kind": "bahdanau", "score": "location", "max_length": 4})
    found = walk(predictor, TEXT, OTHER, query=3)
    arrays = oracle(predictor, 3, [j < 4 for j in range(7)])
    agree(found, contexts(arrays, arrays["weights"]))
    step = next(step for step in found.steps if step.title.startswith("Mask"))
    assert step.arrays[-1].remarks[4:] == ("beyond what the score knows",) * 3


def test_directions_are_told_apart() -> None:
    both = walk(predictor_of("translate", {**SMALL, "kind": "bahdanau"}), TEXT, OTHER)
    one = walk(predictor_of("translate", {**SMALL, "kind": "bahdanau", "bidirectional": False}), TEXT, OTHER)
    assert _annotations(both)[:1] == ("→0",) and _annotations(both)[5:6] == ("←0",)
    assert _annotations(one)[:1] == ("0",)


def _annotations(found: Walk) -> tuple[str, ...]:
    return next(array.columns for step in found.steps for array in step.arrays if array.name == "h")


@torch.no_grad()
def test_every_number_of_a_learned_query() -> None:
    predictor = predictor_of("classify", {"kind": "additive", "width": 6, "hidden": 10, "dropout": 0.0})
    found = walk(predictor, TEXT)
    model = predictor.model
    special = predictor.tokenizer.specials
    ids = torch.tensor([[special.begin, *predictor.tokenizer.encode(TEXT), special.end]])
    h = model.encoder(model.tokens(ids), torch.tensor([ids.size(1)]))[0][0]
    s = model.pool.query
    arrays, scores = scored(model.pool.attention.score, "additive", s, h)
    arrays |= {"s": s, "h": h, "sums": scores, "max": scores.max(), "shifted": scores - scores.max()}
    arrays |= {"exp": (scores - scores.max()).exp(), "weights": scores.softmax(0)}
    arrays["sum"] = arrays["exp"].sum()
    agree(found, contexts(arrays, arrays["weights"]))
    assert found.about["role"] == "pool" and "context" in rows_of(found) and found.difference < 1e-9
