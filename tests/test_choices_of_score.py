"""Scores by offset and by networks, and unlikeness, in the models that take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_recorder import make_translator
from test_verify import make

from regard.attention import SCORES, record
from regard.data.batch import label_batch
from regard.models.config import PlainAttentionConfig, SelfAttentionConfig
from regard.models.table import build
from regard.verify import verify

RUNG = {"width": 14, "dropout": 0.0}
SMALL = {"width": 14, "hidden": 14, "dropout": 0.0}


def broken(bundle: Any) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in verify(bundle) if check.passed is False]


def classifier(config: Any) -> Any:
    torch.manual_seed(0)
    return build("classify", config, (23,), labels=3).double().eval()


def some() -> Any:
    return label_batch([np.arange(4, 17), np.arange(9, 14)], [0, 1], 0)


@pytest.mark.parametrize("score", ["mlp", "offset"])
def test_translators_with_new_scores_keep_every_invariant(score: str) -> None:
    kind = {"mlp": "luong", "offset": "bahdanau"}[score]
    assert broken(make_translator(kind, **SMALL, score=score, back=1)) == []


@pytest.mark.parametrize("score", SCORES)
def test_a_classifier_attends_with_any_score(score: str) -> None:
    """softmax(score) of every pair, by the module itself, on one text after another without padding."""
    model, batch = classifier(SelfAttentionConfig(score=score, **RUNG)), some()
    layer = model.attention
    with record(model) as seen, torch.no_grad():
        found = model.features(batch)
        assert seen.check() < 1e-9
        for row, length in enumerate((13, 5)):
            x = model.tokens(batch.ids[row : row + 1, :length])
            times = torch.arange(length)
            weights = layer.attention.score.at(x, layer.attention.score.keys(x), times).softmax(dim=-1)
            wanted = layer.out(weights @ layer.value(x)).mean(dim=1)
            assert torch.allclose(found[row], wanted[0], atol=1e-10)
    assert torch.equal(seen.calls[0].weights()[1, 0, :5, 5:], torch.zeros(5, 8).double())


def test_a_classifier_with_a_score_keeps_every_invariant() -> None:
    assert broken(make("classify", "self-attention", **RUNG, score="offset", back=2)) == []


@pytest.mark.parametrize(("likeness", "sign"), [("like", 1.0), ("unlike", -1.0), ("learned", 0.0)])
def test_basic_self_attention_looks_at_what_is_like_or_unlike(likeness: str, sign: float) -> None:
    model, batch = classifier(PlainAttentionConfig(likeness=likeness, **RUNG)), some()
    with record(model) as seen, torch.no_grad():
        model.features(batch)
        x = model.tokens(batch.ids[:1])[0]
    weights = seen.calls[0].weights()[0, 0]
    assert torch.allclose(weights, (sign * x @ x.mT).softmax(dim=-1), atol=1e-10)
    own = weights.diagonal()
    assert {"like": bool((own > 1 / 13).all()), "unlike": bool((own < 1 / 13).all()), "learned": True}[likeness]


def test_the_sign_of_likeness_learns_and_old_models_have_no_new_weight() -> None:
    model = classifier(PlainAttentionConfig(likeness="learned", **RUNG))
    model(some()).parts["loss"].sum.backward()
    assert model.likeness.grad.abs() > 0
    for likeness in ("like", "unlike"):
        assert "likeness" not in classifier(PlainAttentionConfig(likeness=likeness, **RUNG)).state_dict()
    assert broken(make("classify", "plain-attention", **RUNG, likeness="unlike")) == []
