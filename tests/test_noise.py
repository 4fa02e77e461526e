"""Dropout's noise: its rate, its expectation, its gradient, and that it depends on nothing but its key."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.noise import Noise, add_dropped, dropout, noise

MANY = 1_000_003
TRUE_DROPS = {0.1: 26, 0.3: 77, 0.5: 128, 0.9: 230}  # of 256 byte values, those under the threshold


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def drawn(*key: int, rate: float = 0.3, size: int = 1009) -> Tensor:
    with noise(*key):
        return dropout(ones(size), rate)


@pytest.mark.parametrize("rate", TRUE_DROPS)
def test_the_rate_is_right_and_the_scale_is_that_of_the_true_rate(rate: float) -> None:
    """Within five standard deviations of the binomial; a true keep probability of 230/256 is scaled by 256/230."""
    keep = 1 - TRUE_DROPS[rate] / 256
    found = drawn(3, rate=rate, size=MANY)
    kept = found != 0
    deviation = math.sqrt(keep * (1 - keep) / MANY)
    assert abs(kept.double().mean().item() - keep) < 5 * deviation
    assert abs(keep - (1 - rate)) <= 1 / 512
    assert torch.allclose(found[kept], torch.full_like(found[kept], 1 / keep), rtol=1e-15)


def test_neighbours_are_independent() -> None:
    """All eight bytes of each random word serve, so look at lags within and across words."""
    kept = (drawn(5, rate=0.5, size=MANY) != 0).double() - 0.5
    for lag in (1, 2, 3, 4, 7, 8, 9, 16, 101):
        correlation = (kept[lag:] * kept[:-lag]).mean().item() * 4
        assert abs(correlation) < 5 / math.sqrt(MANY), lag


def test_all_bytes_are_equally_likely() -> None:
    counts = torch.bincount(Noise(1, 2).bytes(MANY).long(), minlength=256).double()
    chi_squared = ((counts - MANY / 256) ** 2 / (MANY / 256)).sum().item()
    assert abs(chi_squared - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 17])
def test_any_number_of_bytes(count: int) -> None:
    assert Noise(4).bytes(count).shape == (count,)
    assert torch.equal(Noise(4).bytes(count), Noise(4).bytes(24)[:count])


def test_the_same_key_gives_the_same_noise_and_another_key_another() -> None:
    assert torch.equal(drawn(1, 2, 3), drawn(1, 2, 3))
    keys = [(1, 2, 3), (1, 2, 4), (1, 3, 2), (2, 2, 3), (1, 2), (1, 2, 3, 1), (12, 3)]
    found = [drawn(*key) for key in keys]
    for i, first in enumerate(found):
        for second in found[:i]:
            same = ((first != 0) == (second != 0)).double().mean().item()
            assert same == pytest.approx(0.7**2 + 0.3**2, abs=0.1)  # as alike as two independent draws


def test_a_stream_goes_on_within_its_block() -> None:
    with noise(1):
        first, second = dropout(ones(1009), 0.5), dropout(ones(1009), 0.5)
    assert not torch.equal(first, second)
    with noise(1):
        again = [dropout(ones(1009), 0.5) for _ in range(2)]
    assert torch.equal(again[0], first)
    assert torch.equal(again[1], second)


def test_torch_s_own_generator_follows_the_key_too() -> None:
    def rand(key: int) -> Tensor:
        with noise(key):
            return torch.rand(7)

    assert torch.equal(rand(1), rand(1))
    assert not torch.equal(rand(1), rand(2))


@pytest.mark.parametrize("function", [dropout, lambda y, rate: add_dropped(torch.full_like(y, 3.0), y, rate) - 3.0])
def test_the_expectation_stays(function: Callable[[Tensor, float], Tensor]) -> None:
    """The mean over many draws, within five standard errors, element by element and of all."""
    y, draws, keep = torch.linspace(-2, 2, 101, dtype=torch.float64), 10_007, 1 - 77 / 256
    with noise(11):
        mean = function(y.expand(draws, 101), 0.3).mean(dim=0)
    deviation = y.abs() * math.sqrt((1 - keep) / keep / draws)
    assert ((mean - y).abs() <= 5 * deviation + 1e-12).all()
    assert (mean.sum() - y.sum()).abs() < 5 * deviation.square().sum().sqrt()


def test_the_gradient_is_the_mask() -> None:
    x, y = ones(13, 17).requires_grad_(), ones(13, 17).mul(2).requires_grad_()
    with noise(9):
        out = dropout(y, 0.3)
    (gradient,) = torch.autograd.grad(out.sum(), y)
    assert torch.equal(gradient, out / 2)
    assert set(gradient.unique().tolist()) == {0.0, 256 / 179}
    with noise(9):
        summed = add_dropped(x, y, 0.3)
    assert torch.equal(summed, x + out)
    through_x, through_y = torch.autograd.grad((summed * 5).sum(), (x, y))
    assert torch.equal(through_x, torch.full_like(x, 5))
    assert torch.allclose(through_y, 5 * gradient, rtol=1e-15)


def test_gradients_by_finite_differences() -> None:
    def noisy(x: Tensor, y: Tensor) -> Tensor:
        with noise(2, 3):
            return add_dropped(dropout(x, 0.4).sin(), y * x, 0.2).square()

    torch.manual_seed(7)
    inputs = [torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(noisy, tuple(inputs))


def test_layout_and_type_do_not_matter() -> None:
    """Strides do not change which element is dropped; float32 stays float32, also where a bfloat16 branch joins it."""
    x = torch.randn(5, 7).add(9)
    with noise(1):
        plain = dropout(x, 0.5)
    with noise(1):
        turned = dropout(x.T.contiguous().T, 0.5)
    assert torch.equal(plain, turned)
    assert plain.dtype == torch.float32
    with noise(1):
        assert add_dropped(x, x.bfloat16(), 0.5).dtype == torch.float32


def test_blocks_nest_and_the_outer_stream_goes_on() -> None:
    with noise(1):
        expected = [dropout(ones(101), 0.5) for _ in range(2)]
    with noise(1):
        first = dropout(ones(101), 0.5)
        with noise(2):
            inner = dropout(ones(101), 0.5)
        second = dropout(ones(101), 0.5)
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])
    assert torch.equal(inner, drawn(2, rate=0.5, size=101))


def outside_is_torch_s() -> None:
    torch.manual_seed(31)
    expected = functional.dropout(ones(1009), 0.3)
    torch.manual_seed(31)
    assert torch.equal(dropout(ones(1009), 0.3), expected)
    torch.manual_seed(31)
    assert torch.equal(add_dropped(ones(1009), ones(1009), 0.3), 1 + expected)


def test_outside_a_block_dropout_is_torch_s() -> None:
    outside_is_torch_s()
    with noise(1):
        pass
    outside_is_torch_s()
    with pytest.raises(KeyError), noise(1):
        raise KeyError
    outside_is_torch_s()


def test_threads_have_their_own_streams() -> None:
    """Two threads draw in turn, each from its own key; a third inside nobody's block uses torch's dropout."""
    found: dict[int, list[Tensor]] = {1: [], 2: []}
    barrier = threading.Barrier(2, timeout=10)

    def draw(key: int) -> None:
        with noise(key):
            for _ in range(5):
                barrier.wait()
                found[key].append(dropout(ones(101), 0.5))

    with noise(3):
        threads = [threading.Thread(target=draw, args=(key,)) for key in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        mine = dropout(ones(101), 0.5)
        failures: list[BaseException] = []
        alone = threading.Thread(target=lambda: _catch(outside_is_torch_s, failures))
        alone.start()
        alone.join()
    assert not failures
    assert torch.equal(mine, drawn(3, rate=0.5, size=101))
    for key, tensors in found.items():
        with noise(key):
            assert all(torch.equal(tensor, dropout(ones(101), 0.5)) for tensor in tensors)


def _catch(function: Callable[[], None], failures: list[BaseException]) -> None:
    try:
        function()
    except BaseException as error:
        failures.append(error)


def test_rate_zero_is_the_identity_and_draws_nothing() -> None:
    x, y = torch.randn(7), torch.randn(7)
    assert dropout(x, 0.0) is x
    assert torch.equal(add_dropped(x, y, 0.0), x + y)
    with noise(1):
        assert dropout(x, 0.0) is x
        assert torch.equal(add_dropped(x, y, 0.0), x + y)
        after = dropout(ones(1009), 0.3)
    assert torch.equal(after, drawn(1))
