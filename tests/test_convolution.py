"""Dilated convolutions against torch's own, step by step, one input at a time; the residual block against a plain loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from regard.blocks.convolution import (
    CausalConvolution,
    CentredConvolution,
    ConvolutionBlock,
    ConvolutionPast,
    DilatedConvolution,
)
from regard.noise import noise

B, INPUTS, OUTPUTS = 3, 5, 11
KINDS = [CausalConvolution, CentredConvolution]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(kind: type[CausalConvolution] | type[CentredConvolution], kernel: int, dilation: int) -> DilatedConvolution:
    torch.manual_seed(kernel)
    return kind(INPUTS, OUTPUTS, kernel, dilation).double()


def torch_s(convolution: DilatedConvolution, x: Tensor, kernel: int, dilation: int, *, causal: bool) -> Tensor:
    """torch wants (outputs, inputs, kernel) and channels before positions."""
    weight = convolution.taps.weight.unflatten(1, (kernel, INPUTS)).transpose(1, 2)
    span = (kernel - 1) * dilation
    padded = pad(x.transpose(1, 2), (span, 0) if causal else (span // 2, span // 2))
    return conv1d(padded, weight, convolution.taps.bias, dilation=dilation).transpose(1, 2)


@pytest.mark.parametrize("length", [1, 2, 7, 13])
@pytest.mark.parametrize("dilation", [1, 2, 3, 7, 17])
@pytest.mark.parametrize(
    ("kind", "kernel"),
    [(CausalConvolution, kernel) for kernel in (1, 2, 3, 5, 7)]
    + [(CentredConvolution, kernel) for kernel in (1, 3, 5, 7)],
)
def test_values_and_gradients_are_those_of_torch(
    kind: type[CausalConvolution] | type[CentredConvolution], kernel: int, dilation: int, length: int
) -> None:
    convolution = build(kind, kernel, dilation)
    x = random(B, length, INPUTS).requires_grad_()
    wanted = [x, convolution.taps.weight, convolution.taps.bias]
    ours, theirs = convolution(x), torch_s(convolution, x, kernel, dilation, causal=kind is CausalConvolution)
    assert ours.shape == (B, length, OUTPUTS)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    towards = random(*ours.shape, seed=1)
    for found, expected in zip(*(torch.autograd.grad(y, wanted, towards) for y in (ours, theirs)), strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_a_sum_by_hand() -> None:
    """One channel, kernel 3, dilation 2, weights 100, 10, 1: y_t = 100 x_{t-4} + 10 x_{t-2} + x_t, or around t."""
    causal, centred = (kind(1, 1, kernel=3, dilation=2) for kind in KINDS)
    for convolution in (causal, centred):
        convolution.taps.weight.data = torch.tensor([[100.0, 10.0, 1.0]])
        convolution.taps.bias.data.fill_(0.5)
    x = torch.tensor([1.0, 2, 3, 4, 5, 6])[None, :, None]
    assert causal(x).flatten().tolist() == [1.5, 2.5, 13.5, 24.5, 135.5, 246.5]
    assert centred(x).flatten().tolist() == [13.5, 24.5, 135.5, 246.5, 350.5, 460.5]


@torch.no_grad()
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (3, 2), (5, 3), (7, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_one_input_reaches_exactly_these_outputs(
    kind: type[CausalConvolution] | type[CentredConvolution], kernel: int, dilation: int
) -> None:
    convolution, x = build(kind, kernel, dilation), random(1, 17, INPUTS)
    before = convolution(x)
    for i in range(17):
        other = x.clone()
        other[:, i] += 1
        changed = {t for t in range(17) if not torch.equal(convolution(other)[:, t], before[:, t])}
        steps = range(kernel) if kind is CausalConvolution else range(-(kernel // 2), kernel // 2 + 1)
        assert changed == {i + j * dilation for j in steps} & set(range(17))


def test_an_even_kernel_has_no_middle() -> None:
    with pytest.raises(ValueError, match=r"kernel 4 .*odd"):
        CentredConvolution(INPUTS, OUTPUTS, kernel=4)


# --- Step by step


@torch.no_grad()
@pytest.mark.parametrize("dilation", [1, 2, 5])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_steps_are_the_whole_sequence(kernel: int, dilation: int) -> None:
    """Also where hypotheses change places on the way, and one goes on twice."""
    convolution, x = build(CausalConvolution, kernel, dilation), random(B, 29, INPUTS)
    assert isinstance(convolution, CausalConvolution)
    past = convolution.start(B, x)
    for t in range(29):
        if t % 7 == 3:
            chosen = torch.tensor([2, 0, 2] if t < 20 else [2, 1])
            past = past.select(chosen)
            x = torch.cat([x[chosen, :t], random(len(chosen), 29, INPUTS, seed=t)[:, t:]], dim=1)
        assert torch.allclose(convolution.step(x[:, t], past), convolution(x)[:, t], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_past_is_as_long_as_the_convolution_looks_back_and_stays_in_its_place() -> None:
    convolution, x = CausalConvolution(INPUTS, OUTPUTS, kernel=3, dilation=7), torch.ones(B, INPUTS)
    past = convolution.start(B, x)
    buffer = past.inputs
    for _ in range(31):
        convolution.step(x, past)
        assert past.inputs is buffer
    assert buffer.shape == (B, 2 * 7, INPUTS)
    assert past.read == 31


@torch.no_grad()
def test_a_selected_past_is_a_copy() -> None:
    past = ConvolutionPast(random(B, 4, INPUTS), 4)
    before = past.inputs.clone()
    past.select(torch.arange(B)).inputs.zero_()
    assert torch.equal(past.inputs, before)


# --- The block


def norm_relu(x: list[float], weight: list[float], bias: list[float]) -> list[float]:
    """max(0, LayerNorm(x)) of one vector (Ba et al. 2016)."""
    mean = sum(x) / len(x)
    deviation = (sum((v - mean) ** 2 for v in x) / len(x) + 1e-5) ** 0.5
    return [max(0.0, (v - mean) / deviation * w + b) for v, w, b in zip(x, weight, bias, strict=True)]


def product(matrix: list[list[float]], x: list[float], bias: list[float]) -> list[float]:
    return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(matrix, bias, strict=True)]


def plain_block(block: ConvolutionBlock, x: list[list[float]], offsets: list[int], ends: int) -> list[list[float]]:
    """Figure 3 (left) of the paper, of one row, number by number; positions at and behind `ends` are not looked at."""
    tensors = {name: tensor.tolist() for name, tensor in block.state_dict().items()}

    def both(name: str) -> tuple:
        return tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    def linear(name: str, y: list[float]) -> list[float]:
        return product(tensors[f"{name}.weight"], y, tensors[f"{name}.bias"])

    inner = [linear("down", norm_relu(y, *both("before_down"))) for y in x]
    inner = [norm_relu(y, *both("before_convolution")) for y in inner]
    nothing = [0.0] * len(inner[0])
    out = []
    for t, start in enumerate(x):
        seen = [inner[t + offset] if 0 <= t + offset < ends else nothing for offset in offsets]
        y = linear("convolution.taps", [value for vector in seen for value in vector])
        y = linear("up", norm_relu(y, *both("before_up")))
        out.append([a + b for a, b in zip(start, y, strict=True)])
    return out


def build_block(kind: type[CausalConvolution] | type[CentredConvolution], rate: float = 0.0) -> ConvolutionBlock:
    torch.manual_seed(5)
    block = ConvolutionBlock(14, kind(7, 7, 3, 2), rate=rate).double()
    for parameter in block.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.5)
    return block


@torch.no_grad()
def test_a_block_is_the_figure_of_the_paper() -> None:
    x, ends = random(B, 11, 14), [11, 6, 3]
    real = (torch.arange(11) < torch.tensor(ends)[:, None])[..., None].double()
    causal, centred = build_block(CausalConvolution)(x), build_block(CentredConvolution)(x, real)
    for row, end in enumerate(ends):
        plain = plain_block(build_block(CausalConvolution), x[row].tolist(), [-4, -2, 0], 11)
        assert torch.allclose(causal[row], torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-12)
        plain = plain_block(build_block(CentredConvolution), x[row].tolist(), [-2, 0, 2], end)
        assert torch.allclose(centred[row, :end], torch.tensor(plain[:end], dtype=torch.float64), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_block_steps_as_it_reads() -> None:
    block, x = build_block(CausalConvolution), random(6, 13, 14)
    expected, past = block(x), block.start(6, x)
    for t in range(13):
        found = block.step(x[:, t].view(2, 3, 14), past)  # two sources with three hypotheses each
        assert torch.allclose(found.flatten(0, 1), expected[:, t], rtol=0, atol=1e-12)


def test_a_block_drops_only_what_it_adds_and_only_in_training() -> None:
    block, x = build_block(CausalConvolution, rate=0.5), random(B, 11, 14)
    with noise(1):
        added = block.train()(x) - x
    sure = block.eval()(x) - x
    dropped = added.abs() < 1e-12
    assert 0.3 < dropped.double().mean() < 0.7
    assert torch.allclose(added[~dropped], 2 * sure[~dropped], rtol=0, atol=1e-12)
