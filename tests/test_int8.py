"""Weights of 8 bits: their products against the rounding written out, small weights untouched, and who is refused."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import UsageError
from regard.models.fast import products as int8
from regard.models.fast.products import LARGE
from regard.tasks.run import RunResult

IN, OUT = 257, 521  # IN * OUT is more than LARGE


def weight_of(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)) / columns**0.5


@pytest.mark.parametrize("rows", [1, 3, 67])
@pytest.mark.parametrize("bias", [True, False])
def test_a_large_product_is_that_of_rounded_numbers(rows: int, bias: bool) -> None:
    """Each weight is off by half a step of its row at most, each input by one step of 7 bits: the error is bounded."""
    weight, shift = weight_of(OUT, IN), torch.linspace(-3, 3, OUT) if bias else None
    assert weight.numel() > LARGE
    x = torch.randn(rows, IN, generator=torch.Generator().manual_seed(2))
    found = int8.int8_product(weight, shift)(x)
    exact = torch.nn.functional.linear(x.double(), weight.double(), None if shift is None else shift.double())
    step, grain = weight.abs().amax(dim=1).double() / 127, (x.max() - x.min()).double() / 127
    bound = x.double().abs().sum(dim=1)[:, None] * step / 2 + grain * (weight.double().abs().sum(dim=1) + IN * step / 2)
    assert ((found - exact).abs() <= bound).all()
    assert 0.001 < (found - exact).norm() / (exact - (0 if shift is None else shift)).norm() < 0.03  # it was rounded
    out = torch.empty(rows, OUT)
    assert int8.int8_product(weight, shift)(x, out) is out and torch.equal(out, found)


def test_a_row_of_zeros_stays_zero() -> None:
    weight = weight_of(OUT, IN)
    weight[7] = 0.0
    assert (int8.int8_product(weight, None)(torch.randn(5, IN))[:, 7] == 0).all()


def test_a_small_product_is_left_as_it_is() -> None:
    weight, x = weight_of(11, 13), torch.randn(5, 13)
    assert torch.allclose(int8.int8_product(weight, None)(x), x @ weight.T, rtol=0, atol=1e-6)


def test_a_translator_takes_them_and_gives_them_back(tiny_run: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "LARGE", 1)  # of the tiny model every weight
    translator = regard.load(tiny_run.best)
    texts = ["3 mars 1998", "mardi 3 mars 1998", "5 avril 2001"]
    plain = translator.translate(texts, beam=2)
    translator.use_weights("int8")
    rounded = translator.translate(texts, beam=2)
    assert [each.score for each in rounded] != [each.score for each in plain]
    assert [each.score for each in rounded] == pytest.approx([each.score for each in plain], abs=0.2)
    translator.use_weights("float32")
    assert [each.score for each in translator.translate(texts, beam=2)] == [each.score for each in plain]


def test_where_there_is_no_kernel_it_is_said(tiny_run: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = regard.load(tiny_run.best)
    with pytest.raises(UsageError, match="no weights int4"):
        translator.use_weights("int4")
    monkeypatch.setattr(int8, "has_kernel", lambda: False)
    with pytest.raises(UsageError, match="this torch has none"):
        translator.use_weights("int8")
    translator.use_weights("float32")
