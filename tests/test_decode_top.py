"""The k greatest, against sorting in Python; small integers make equals common."""

from __future__ import annotations

import importlib
import math
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decode.choice import BLOCK, CACHED, log_norm, top

module = importlib.import_module("regard.decode.choice")


def by_sorting(row: list[float], k: int) -> list[tuple[float, int]]:
    return sorted(((value, i) for i, value in enumerate(row)), key=lambda pair: (-pair[0], pair[1]))[:k]


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1, 5, 67, 7 * BLOCK + 13, 23 * BLOCK, 41 * BLOCK + 1]),
    k=st.sampled_from([1, 2, 3, 6, 11]),
    kinds=st.sampled_from([2, 5, 101, 10**6]),
    small=st.sampled_from([0, 2**15]),
)
def test_top_is_the_head_of_a_stable_sort(seed: int, size: int, k: int, kinds: int, small: int) -> None:
    """By blocks and without them: `small` 0 sends every row that is long enough for it through blocks."""
    scores = torch.randint(kinds, (2, 3, size), generator=torch.Generator().manual_seed(seed)).float()
    with mock.patch.object(module, "SMALL", small):
        values, ids = top(scores, k)
    assert values.shape == ids.shape == (2, 3, min(k, size))
    for row in range(6):
        expected = by_sorting(scores.view(6, -1)[row].tolist(), k)
        found = zip(values.view(6, -1)[row].tolist(), ids.view(6, -1)[row].tolist(), strict=True)
        assert list(found) == expected


def test_top_works_with_fewer_allowed_than_wanted() -> None:
    for size in (7 * BLOCK, 701 * BLOCK):
        scores = torch.full((1, size), -math.inf)
        scores[0, 5], scores[0, 300] = 1.0, 2.0
        values, ids = top(scores, 3)
        assert values.tolist() == [[2.0, 1.0, -math.inf]]
        assert ids[0, :2].tolist() == [300, 5]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("size", [7, 7 * BLOCK, 701 * BLOCK])
def test_top_shows_nan(size: int, k: int) -> None:
    scores = torch.randn(3, size)
    scores[1, 5] = math.nan
    values, _ = top(scores, k)
    assert values.isnan().any(dim=-1).tolist() == [False, True, False]


def test_top_reads_views_without_order() -> None:
    """Logits come as slices and expanded views."""
    scores = torch.randn(11, 2, 37 * BLOCK).transpose(0, 1)
    values, ids = top(scores, 3)
    assert torch.equal(values, scores.gather(-1, ids))
    assert torch.equal(values[..., 0], scores.amax(dim=-1))


@pytest.mark.parametrize("shape", [(2, 3, 5), (7, 5, CACHED // 11 + 3), (1, 2, CACHED + 1)])
def test_log_norm_is_the_log_sum_exp(shape: tuple[int, ...]) -> None:
    logits = torch.randn(shape, dtype=torch.float64) * 3
    logits[0, 0, 1] = -math.inf
    expected = logits.exp().sum(dim=-1).log()
    assert log_norm(logits).shape == shape[:-1]
    np.testing.assert_allclose(log_norm(logits), expected.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shift", [-300.0, -60.0, 0.0, 60.0, 300.0])
def test_log_norm_of_many_neither_overflows_nor_vanishes(shift: float) -> None:
    logits = torch.randn(31, CACHED // 7, generator=torch.Generator().manual_seed(3)) + shift
    expected = logits.double().logsumexp(dim=-1)
    np.testing.assert_allclose(log_norm(logits), expected.numpy(), rtol=1e-6, atol=2e-6)
    logits[5, 7] = math.nan
    assert np.isnan(log_norm(logits)).nonzero()[0].tolist() == [5]


@pytest.mark.parametrize("size", [5, 37, 10_007])
def test_the_log_norm_of_a_row_does_not_depend_on_the_others(size: int) -> None:
    """To the bit: a kernel computes the last elements of all that it is given in another way than the others."""
    logits = 3 * torch.randn(13, size, generator=torch.Generator().manual_seed(size))
    alone = [log_norm(logits[row : row + 1])[0] for row in range(13)]
    assert log_norm(logits).tolist() == alone
    assert log_norm(logits[4:9]).tolist() == alone[4:9]
