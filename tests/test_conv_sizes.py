"""Sizes behind convolutions and poolings against torch's real outputs; same padding; batch norm against torch's own."""

from __future__ import annotations

import warnings
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d

from regard.blocks.convolution import Convolution, channels_last, output_size, same_padding
from regard.blocks.norm import BatchNorm
from regard.errors import RegardError

GRID = list(product((1, 2, 3, 5, 8, 11), (1, 2, 3, 4, 7), (1, 2, 3, 5), (0, 1, 2, 3), (1, 2, 3)))


def test_a_convolution_is_as_large_as_told() -> None:
    fitting = 0
    for size, kernel, stride, padding, dilation in GRID:
        x, weight = torch.zeros(1, 1, size, size), torch.zeros(1, 1, kernel, kernel)
        try:
            real = conv2d(x, weight, stride=stride, padding=padding, dilation=dilation).size(-1)
        except RuntimeError:  # torch says that the kernel is larger than the picture
            with pytest.raises(RegardError, match="does not fit"):
                output_size(size, kernel, stride, padding, dilation)
        else:
            fitting += 1
            assert output_size(size, kernel, stride, padding, dilation) == real
    assert 500 < fitting < len(GRID) - 100


def test_a_pooling_is_as_large_as_told() -> None:
    for size, kernel, stride, padding, dilation in GRID:
        if padding > kernel // 2:
            continue  # torch refuses to pool padding alone
        x = torch.zeros(1, 1, size, size)
        try:
            real = max_pool2d(x, kernel, stride, padding, dilation).size(-1)
        except RuntimeError:
            with pytest.raises(RegardError, match=r"^max-pooling: .*does not fit"):
                output_size(size, kernel, stride, padding, dilation, what="max-pooling")
            continue
        assert output_size(size, kernel, stride, padding, dilation) == real
        if dilation == 1:
            assert avg_pool2d(x, kernel, stride, padding).size(-1) == real


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            (7, 9),
            "convolution: ⌊(7 + 2·0 − 9)/1⌋ + 1 = −1: a 9 x 9 kernel does not fit a picture of 7 x 7; "
            "use a smaller kernel, padding of 1 or more, or a larger picture",
        ),
        (
            (3, 8, 2, 1),
            "convolution: ⌊(3 + 2·1 − 8)/2⌋ + 1 = −1: a 8 x 8 kernel does not fit a picture of 3 x 3 with padding 1; "
            "use a smaller kernel, padding of 3 or more, or a larger picture",
        ),
        (
            (7, 5, 3, 0, 3),
            "convolution: ⌊(7 + 2·0 − 3·(5 − 1) − 1)/3⌋ + 1 = −1: a 5 x 5 kernel with dilation 3 reaches over 13 x 13 and "
            "does not fit a picture of 7 x 7; use a smaller kernel or dilation, padding of 3 or more, or a larger picture",
        ),
        ((2, 3, 2), "convolution: ⌊(2 + 2·0 − 3)/2⌋ + 1 = 0: a 3 x 3 kernel does not fit a picture of 2 x 2; "
         "use a smaller kernel, padding of 1 or more, or a larger picture"),
    ],
)  # fmt: skip
def test_what_does_not_fit_shows_its_arithmetic(settings: tuple[int, ...], message: str) -> None:
    with pytest.raises(RegardError) as error:
        output_size(*settings)
    assert str(error.value) == message


def test_the_padding_that_the_error_advises_is_the_least_that_fits() -> None:
    for size, kernel, stride, _, dilation in GRID:
        try:
            output_size(size, kernel, stride, 0, dilation)
        except RegardError as error:
            advised = int(str(error).split("padding of ")[1].split()[0])
            assert output_size(size, kernel, stride, advised, dilation) >= 1
            if advised > 1:
                with pytest.raises(RegardError):
                    output_size(size, kernel, stride, advised - 1, dilation)


@pytest.mark.parametrize("settings", [(0, 1), (3, 0), (3, 1, 0), (3, 1, 1, -1), (3, 1, 1, 0, 0)])
def test_settings_that_mean_nothing(settings: tuple[int, ...]) -> None:
    with pytest.raises(RegardError, match=r"it must be \d or more"):
        output_size(*settings)


# --- Pooling and convolution themselves


def test_the_gradient_of_a_maximum_goes_to_where_it_was() -> None:
    x = torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(3), requires_grad=True)
    out, numbers = max_pool2d(x, 2), x.tolist()
    ahead = torch.randn(out.shape, generator=torch.Generator().manual_seed(4))
    out.backward(ahead)
    expected = torch.zeros(2, 3, 7, 7)
    for b, c, row, column in product(range(2), range(3), range(3), range(3)):
        cells = [(row * 2 + i, column * 2 + j) for i in range(2) for j in range(2)]
        best = max(cells, key=lambda cell: numbers[b][c][cell[0]][cell[1]])
        expected[b, c, best[0], best[1]] += ahead[b, c, row, column]
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 8])
def test_same_padding_is_torchs(kernel: int) -> None:
    torch.manual_seed(5)
    x = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    ours = Convolution(3, 5, kernel, bias=True).double()
    nn.init.normal_(ours.bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the copy that an even kernel needs
        expected = conv2d(x, ours.weight, ours.bias, padding="same")
    assert torch.allclose(ours(x), expected, rtol=0, atol=1e-12)
    assert ours.size_after(7) == 7
    assert sum(same_padding(kernel)) == kernel - 1


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (1, 2), (4, 3), (5, 5)])
def test_a_convolution_tells_its_size(kernel: int, stride: int) -> None:
    convolution = Convolution(1, 1, kernel, stride=stride)
    for size in range(1, 14):
        assert convolution.size_after(size) == convolution(torch.zeros(1, 1, size, size)).size(-1)


@pytest.mark.parametrize("inputs", [1, 3, 5, 8, 11])
@pytest.mark.parametrize(("kernel", "stride", "depthwise"), [(1, 2, False), (3, 2, False), (3, 1, False), (5, 1, True)])
def test_gradients_in_float32_with_channels_last(inputs: int, kernel: int, stride: int, depthwise: bool) -> None:
    """oneDNN 3.12 crashed on the gradient of 1 x 1 kernels with stride 2 and fewer than 8 channels (its issue 6035)."""
    torch.manual_seed(2)
    outputs, groups = (inputs, inputs) if depthwise else (7, 1)
    fast = Convolution(inputs, outputs, kernel, stride=stride, groups=groups)
    x = torch.randn(19, inputs, 14, 14)
    leaf, exact = channels_last(x).detach().requires_grad_(), x.double().requires_grad_()
    weight = fast.weight.detach().double().requires_grad_()
    out, expected = fast(leaf), conv2d(exact, weight, stride=stride, padding=kernel // 2, groups=groups)
    assert torch.allclose(out.double(), expected, rtol=0, atol=1e-4)
    out.backward(torch.ones_like(out))
    expected.backward(torch.ones_like(expected))
    assert torch.allclose(leaf.grad.double(), exact.grad, rtol=0, atol=1e-4)
    assert torch.allclose(fast.weight.grad.double(), weight.grad, rtol=0, atol=1e-2)


def test_fresh_weights_have_hes_variance() -> None:
    torch.manual_seed(1)
    dense, depthwise = Convolution(31, 67, 5, bias=True), Convolution(997, 997, 5, groups=997)
    assert float(dense.weight.detach().var()) == pytest.approx(2 / (31 * 25), rel=0.05)
    assert float(depthwise.weight.detach().var()) == pytest.approx(2 / 25, rel=0.05)
    assert not dense.bias.any()


@pytest.mark.parametrize("channels", [1, 3])
def test_layout_changes_memory_and_no_number_and_stays(channels: int) -> None:
    x = torch.randn(2, channels, 5, 7)
    turned = channels_last(x)
    assert torch.equal(turned, x)
    assert turned.stride() == (5 * 7 * channels, 1, 7 * channels, channels)
    assert Convolution(channels, 11, 3)(turned).is_contiguous(memory_format=torch.channels_last)


# --- Batch norm


def test_batch_norm_is_torchs_in_training_and_evaluation() -> None:
    torch.manual_seed(7)
    ours, theirs = BatchNorm(5).double(), nn.BatchNorm2d(5).double()
    for norm in (ours, theirs):
        nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
        nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(2))
    for _ in range(3):
        x = torch.randn(3, 5, 7, 2, dtype=torch.float64) * 3 + 11
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        ahead = torch.randn_like(x)
        for norm, leaf in ((ours, a), (theirs, b)):
            norm.zero_grad()
            norm(leaf).backward(ahead)
        assert torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-12)
        assert torch.allclose(a.grad, b.grad, rtol=0, atol=1e-12)
        assert torch.allclose(ours.weight.grad, theirs.weight.grad, rtol=0, atol=1e-12)
        assert torch.allclose(ours.bias.grad, theirs.bias.grad, rtol=0, atol=1e-12)
        assert torch.allclose(ours.mean, theirs.running_mean, rtol=0, atol=1e-12)
        assert torch.allclose(ours.variance, theirs.running_var, rtol=0, atol=1e-12)
    x = torch.randn(1, 5, 1, 1, dtype=torch.float64)
    assert torch.allclose(ours.eval()(x), theirs.eval()(x), rtol=0, atol=1e-12)


def test_batch_norm_by_hand() -> None:
    """One channel with the numbers 1, 3: mean 2, variance 1 (2 with n - 1 below)."""
    norm = BatchNorm(1)
    out = norm(torch.tensor([1.0, 3.0]).view(2, 1, 1, 1)).flatten()
    assert out.tolist() == pytest.approx([-1, 1], abs=1e-4)
    assert float(norm.mean) == pytest.approx(0.1 * 2)
    assert float(norm.variance) == pytest.approx(0.9 * 1 + 0.1 * 2)


def test_what_batch_norm_saves() -> None:
    state = BatchNorm(3).state_dict()
    assert list(state) == ["weight", "bias", "mean", "variance"]
    assert all(tensor.dtype == torch.float32 for tensor in state.values())


def test_one_number_has_no_variance() -> None:
    with pytest.raises(RegardError, match="larger batch"):
        BatchNorm(3)(torch.zeros(1, 3, 1, 1))
