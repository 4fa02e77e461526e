"""Attention rollout against plain loops, and against the rollout of recorded batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regard.attention import record
from regard.errors import UsageError
from regard.look import sentence_of
from regard.look.sentence import SentenceAttention, cross_rollout, rollout
from regard.models.classifier import rollout as rollout_of_calls
from regard.models.config import GPT2Config
from regard.models.table import build

L, H, T, S = 3, 2, 5, 7
NAN = float("nan")


def heads_of(rows: int, columns: int, causal: bool = False) -> list[np.ndarray]:
    found = np.random.default_rng(7).random((L, H, rows, columns)) ** 3
    if causal:
        found *= np.tril(np.ones((rows, columns)))
    found /= found.sum(axis=-1, keepdims=True)
    if causal:
        found[..., np.triu(np.ones((rows, columns), dtype=bool), 1)] = NAN
    return list(found)


def by_loops(layers: list[np.ndarray]) -> list[list[float]]:
    """Abnar & Zuidema 2020, eq. 1, number by number: R[t][s] = Σ_m ½ (mean_h A[h][t][m] + [t = m]) R'[m][s]."""
    size = layers[0].shape[-1]
    before = [[float(t == s) for s in range(size)] for t in range(size)]
    for layer in layers:
        after = [[0.0] * size for _ in range(size)]
        for t in range(size):
            for m in range(size):
                cells = [0.0 if layer[h][t][m] != layer[h][t][m] else layer[h][t][m] for h in range(H)]
                share = 0.5 * sum(cells) / H + 0.5 * (t == m)
                for s in range(size):
                    after[t][s] += share * before[m][s]
        before = after
    return before


@pytest.mark.parametrize("causal", [False, True])
def test_rollout_by_loops(causal: bool) -> None:
    layers = heads_of(S, S, causal)
    found = rollout(layers)
    np.testing.assert_allclose(np.nan_to_num(found), by_loops(layers), atol=1e-14)
    assert np.nansum(found, axis=-1) == pytest.approx(1.0, abs=1e-12)
    assert np.array_equal(np.isnan(found), np.triu(np.ones((S, S), dtype=bool), 1) if causal else np.zeros((S, S)) > 0)


def test_a_window_reaches_further_with_every_layer() -> None:
    """Each layer sees its left neighbour; after three layers a token holds those up to three to the left."""
    layer = np.where(np.tri(S) - np.tri(S, k=-2) > 0, 0.5, NAN)
    layer[0, 0] = 1.0
    found = rollout([layer[None]] * 3)
    assert np.array_equal(~np.isnan(found), np.tri(S) - np.tri(S, k=-4) > 0)


def test_the_look_at_a_source_goes_through_the_encoder() -> None:
    cross, encoder = heads_of(T, S)[-1], heads_of(S, S)
    inside = by_loops(encoder)
    mean = [[sum(cross[h][t][s] for h in range(H)) / H for s in range(S)] for t in range(T)]
    expected = [[sum(mean[t][m] * inside[m][s] for m in range(S)) for s in range(S)] for t in range(T)]
    np.testing.assert_allclose(cross_rollout(cross, encoder), expected, atol=1e-14)


def test_weights_of_any_sum_and_sign_are_taken_by_their_size() -> None:
    layers = heads_of(S, S)
    signs = np.random.default_rng(1).choice([-3.0, 3.0], size=(H, S, S))
    np.testing.assert_allclose(rollout([each * signs for each in layers]), rollout([3 * each for each in layers]))
    np.testing.assert_allclose(rollout([3 * each for each in layers]), rollout(layers))


def test_the_rollout_of_a_recording_is_that_of_its_maps() -> None:
    torch.manual_seed(0)
    model: Any = build(
        "generate", GPT2Config(layers=3, width=12, heads=3, feed_forward=17, max_length=11), (13,)
    ).eval()
    with torch.inference_mode(), record(model) as seen:
        model.read(torch.tensor([[1, 5, 7, 2, 9]]))
    found = sentence_of(seen).rollout()
    np.testing.assert_allclose(np.nan_to_num(found.weights), rollout_of_calls(seen.calls)[0].numpy(), atol=1e-6)
    assert np.array_equal(np.isnan(found.weights), np.triu(np.ones((5, 5), dtype=bool), 1))


def sentence(role: str, layers: list[np.ndarray], **others: SentenceAttention) -> SentenceAttention:
    rows, columns = layers[0].shape[1:]
    labels = tuple(f"s{n}" for n in range(columns)), tuple(f"t{n}" for n in range(rows))
    return SentenceAttention(*labels, {f"l{n}": each for n, each in enumerate(layers)}, 0.0, role, others)


def test_a_sentence_says_which_composition_was_used() -> None:
    encoder = sentence("self", heads_of(S, S))
    found = encoder.rollout()
    assert found.title == "self-attention, rollout over 3 layers"
    assert found.notes[0].endswith("the product over 3 layers of (A + I)/2, A the mean of a layer's heads")
    both = sentence("cross", heads_of(T, S), self=encoder)
    looked = both.rollout()
    np.testing.assert_allclose(looked.weights, cross_rollout(heads_of(T, S)[-1], heads_of(S, S)))
    assert "the last layer's cross-attention times the product over 3 encoder layers" in looked.notes[0]
    assert (looked.rows[0], looked.columns[0]) == ("t0", "s0")
    with pytest.raises(UsageError, match="behind this cross-attention there are none; look at the map"):
        sentence("cross", heads_of(T, S)).rollout()
