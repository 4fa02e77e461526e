"""Positions against the paper's formula in plain loops, and embeddings against a row of their table times √D."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from regard.embed import TokenEmbedding, embedding_table, positions, sinusoid
from regard.errors import RegardError
from regard.noise import noise

B, T, D, V = 3, 5, 14, 23


def formula(position: int, width: int) -> list[float]:
    """Vaswani et al. 2017, section 3.5, one number at a time."""
    row = []
    for i in range(width):
        angle = position / 10000 ** ((i - i % 2) / width)
        row.append(math.sin(angle) if i % 2 == 0 else math.cos(angle))
    return row


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=dtype)


@pytest.mark.parametrize("width", [2, 14, 7, 1])
@pytest.mark.parametrize("start", [0, 1, 13, 997])
def test_sinusoid_is_the_formula(width: int, start: int) -> None:
    expected = [formula(position, width) for position in range(start, start + 11)]
    found = sinusoid(11, width, start)
    assert found.shape == (11, width)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-11)


def test_by_hand() -> None:
    """Width 4: wavelengths 2π and 2π · 100."""
    expected = [[0, 1, 0, 1], [0.8415, 0.5403, 0.0100, 0.9999], [0.9093, -0.4161, 0.0200, 0.9998]]
    assert torch.allclose(sinusoid(3, 4), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=5.1e-5)


@pytest.mark.parametrize("start", [0, 3, 6, 7, 101])
def test_sinusoidal_positions_are_added_from_any_start_and_beyond_the_table(start: int) -> None:
    """The table has 11 rows; 5 positions from 7 on, or from 101, do not fit in it."""
    x = random(B, T, D)
    expected = torch.tensor([formula(start + t, D) for t in range(T)], dtype=torch.float64)
    added = positions("sinusoidal", D, 11)(x, start) - x
    assert torch.allclose(added, expected.expand(B, T, D), rtol=0, atol=1e-12)


def test_sinusoidal_positions_stay_accurate_far_out_and_keep_the_type() -> None:
    """A table computed in float32 would be wrong by 1e-3 here."""
    x = torch.zeros(1, 2, D)
    found = positions("sinusoidal", D, 11)(x, 50_021)
    assert found.dtype == torch.float32
    expected = torch.tensor([formula(50_021, D), formula(50_022, D)])
    assert torch.allclose(found[0], expected, rtol=0, atol=1e-6)
    table = positions("sinusoidal", D, 1024).float()
    expected = torch.tensor([formula(1022, D), formula(1023, D)])
    assert torch.allclose(table(x, 1022)[0], expected, rtol=0, atol=1e-6)


def test_sinusoidal_positions_learn_nothing_and_are_not_saved() -> None:
    module = positions("sinusoidal", D, 11)
    assert not list(module.parameters())
    assert not module.state_dict()


def test_learned_positions_add_their_rows_and_learn_them() -> None:
    module = positions("learned", D, 11).double()
    (table,) = module.parameters()
    assert table.shape == (11, D)
    x = random(B, T, D)
    assert torch.equal(module(x, 6), x + table[6:11])
    module(x, 6).sum().backward()
    assert table.grad is not None
    assert torch.equal(table.grad, torch.cat([torch.zeros(6, D), torch.full((T, D), B)]).double())


@pytest.mark.parametrize(("length", "start", "end"), [(13, 0, 13), (5, 7, 12), (1, 11, 12)])
def test_learned_positions_refuse_what_is_too_long(length: int, start: int, end: int) -> None:
    module = positions("learned", D, 11)
    with pytest.raises(RegardError, match=rf"\b{end} tokens.*\b11 learned"):
        module(torch.zeros(1, length, D), start)


def test_no_positions_add_nothing() -> None:
    x = random(B, T, D)
    assert positions("none", D, 11)(x, 3) is x


def test_embeddings_are_rows_times_the_root_of_the_width_plus_positions() -> None:
    table = embedding_table(V, D).double()
    module = TokenEmbedding(table, positions("sinusoidal", D, 11), rate=0.0)
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 22]])
    rows = table.weight.tolist()
    expected = [
        [[math.sqrt(14) * w + p for w, p in zip(rows[i], formula(t + 2, D), strict=True)] for t, i in enumerate(row)]
        for row in ids.tolist()
    ]
    assert torch.allclose(module(ids, start=2), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_scaled_rows_have_unit_size() -> None:
    torch.manual_seed(5)
    scaled = embedding_table(1009, 64).weight * math.sqrt(64)
    assert scaled.std().item() == pytest.approx(1.0, abs=0.02)
    assert scaled.mean().item() == pytest.approx(0.0, abs=0.02)


def test_dropout_falls_on_the_sum_in_training_only() -> None:
    module = TokenEmbedding(nn.Embedding(V, D), positions("sinusoidal", D, 11), rate=0.5)
    ids = torch.arange(V)[None, :11]
    still = module.eval()(ids)
    with noise(7):
        noisy = module.train()(ids)
    dropped = noisy == 0
    assert 0.3 < dropped.float().mean() < 0.7
    assert torch.allclose(noisy[~dropped], 2 * still[~dropped])
