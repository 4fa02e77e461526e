"""The state-space layer against its own recurrence in plain complex numbers, and what a `Block` asks of it."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu

from regard.attention import Causal, Dense, Lengths, record
from regard.blocks import Block, FeedForward, Residual, StateSpace, initialise_normal, make_norm
from regard.errors import UsageError
from regard.training.muon import hidden_matrices

B, D, N = 3, 5, 4
BOTH_WAYS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])


def make(causal: bool = True, slowest: float = 0.01, fastest: float = 0.7) -> StateSpace:
    torch.manual_seed(3)
    return StateSpace(D, causal=causal, state=N, slowest=slowest, fastest=fastest).double().eval()


def inputs(length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, length, D, generator=generator, dtype=torch.float64)


def recurrence(layer: StateSpace, u: list[float], channel: int, side: int = 0) -> list[float]:
    """One channel, number by number: the zero-order hold of x' = A x + u, read by C."""
    step = math.exp(layer.step_logs[channel].item())
    out = [0.0] * len(u)
    for n in range(layer.state):
        place = channel * layer.state + n
        pole = complex(-math.exp(layer.decay_logs[place].item()), layer.turns[place].item())
        keep = cmath.exp(step * pole)
        take = (keep - 1) / pole
        read = complex(*layer.reads[side, channel, n].tolist())
        x = 0j
        for place, value in enumerate(u):
            x = keep * x + take * value
            out[place] += 2 * (read * x).real
    return out


def oracle(layer: StateSpace, x: Tensor, lengths: list[int]) -> Tensor:
    """x (B, T, D) -> (B, T, D), before the product that mixes channels."""
    y = torch.zeros_like(x)
    for row, length in enumerate(lengths):
        for channel in range(D):
            u = [value if place < length else 0.0 for place, value in enumerate(x[row, :, channel].tolist())]
            found = torch.tensor(recurrence(layer, u, channel), dtype=torch.float64)
            if not layer.causal:
                ahead = recurrence(layer, u[::-1], channel, side=1)[::-1]
                found += torch.tensor([*ahead[1:], 0.0], dtype=torch.float64)  # position t gets what t + 1 has seen
            y[row, :, channel] = found + layer.skip[channel] * torch.tensor(u, dtype=torch.float64)
    return y


@BOTH_WAYS
@pytest.mark.parametrize("length", [1, 2, 3, 16, 37])
def test_the_convolution_is_the_recurrence(causal: bool, length: int) -> None:
    layer, x = make(causal), inputs(length)
    with torch.no_grad():
        wanted = layer.out(gelu(oracle(layer, x, [length] * B)))
        assert torch.allclose(layer(x, x), wanted, atol=1e-9)
        lengths = [length, length // 2, 0]
        wanted = layer.out(gelu(oracle(layer, x, lengths)))
        mask = Lengths(torch.tensor(lengths))
        for given in (layer(x, x, Causal() & mask) if causal else layer(x, x, mask), layer(x, x, mask)):
            for row, real in enumerate(lengths):
                assert torch.allclose(given[row, :real], wanted[row, :real], atol=1e-9)
        if causal:
            assert torch.allclose(layer.scan(x.mT).mT, oracle(layer, x, [length] * B), atol=1e-9)


def test_gradients_of_the_convolution_are_those_of_the_scan() -> None:
    layer, u = make(), inputs(23).mT.contiguous().requires_grad_()
    weigh = inputs(23, 1).mT
    names, parameters = zip(*(pair for pair in layer.named_parameters() if "out" not in pair[0]), strict=True)
    given = torch.autograd.grad((layer.convolved(u) * weigh).sum(), [u, *parameters])
    wanted = torch.autograd.grad((layer.scan(u) * weigh).sum(), [u, *parameters])
    for name, ours, theirs in zip(("u", *names), given, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9), name
        assert theirs.abs().max() > 1e-6, name


def test_gradients_to_both_sides_are_right() -> None:
    layer, x = make(causal=False), inputs(7).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x, x, Lengths(torch.tensor([7, 4, 0]))), (x,), fast_mode=True)
    for parameter in layer.parameters():
        assert torch.autograd.gradcheck(lambda _, x=x.detach(): layer(x, x), (parameter,), fast_mode=True)


def test_it_starts_as_s4d_lin() -> None:
    layer = StateSpace(501, causal=True, state=6, slowest=0.001, fastest=0.1)
    assert torch.allclose(layer.decay_logs.exp(), torch.full((501 * 6,), 0.5))
    assert torch.allclose(layer.turns.view(501, 6)[17], math.pi * torch.arange(6))
    steps = layer.step_logs.detach().exp()
    assert 0.001 <= steps.min() < 0.0012 and 0.08 < steps.max() <= 0.1
    assert abs(float(layer.step_logs.detach().mean()) - math.log(0.01)) < 0.25  # alike in the logarithm
    assert abs(float(torch.view_as_complex(layer.reads.detach()).abs().square().mean()) - 1) < 0.1


@BOTH_WAYS
def test_what_lies_behind_a_rows_end_influences_nothing(causal: bool) -> None:
    layer, x, lengths = make(causal), inputs(19), torch.tensor([19, 8, 0])
    bad = x.masked_fill((torch.arange(19) >= lengths[:, None])[..., None], math.nan).requires_grad_()
    out = layer(bad, bad, Lengths(lengths))
    assert out.isfinite().all()
    alone = x[1:2, :8]
    assert torch.allclose(out[1, :8], layer(alone, alone)[0], atol=1e-9)
    (gradient,) = torch.autograd.grad(out.square().sum(), bad)
    assert gradient.isfinite().all()
    assert not gradient[1, 8:].any() and not gradient[2].any()


@pytest.mark.parametrize("reads", [[], [1], [13], [7, 1, 9], [31]])
def test_step_by_step_equals_the_whole(reads: list[int]) -> None:
    layer, x = make(), inputs(31)
    with torch.no_grad():
        whole = layer(x, x, Causal())
        state, place, parts = layer.start(B, x), 0, []
        for length in reads:
            parts.append(layer.read(x[:, place : place + length], state))
            place += length
        parts += [layer.step(x[:, at : at + 1], state) for at in range(place, 31)]
    assert state.filled == 31
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-9)
    assert state.numbers.shape == (B, D, N)  # it does not grow


def test_single_precision_stays_close_over_a_long_text() -> None:
    layer = StateSpace(D, causal=True).eval()
    x = inputs(700).float()
    with torch.no_grad():
        state = layer.start(B, x)
        parts = [layer.read(x[:, :300], state), *(layer.step(x[:, at : at + 1], state) for at in range(300, 700))]
        stepped, whole = torch.cat(parts, dim=1), layer(x, x)
        exact, wide = layer.double(), x.double()
        for given in (stepped, whole):
            assert torch.allclose(given.double(), exact(wide, wide), atol=2e-5)


def test_hypotheses_are_reordered_with_their_past() -> None:
    layer, x, rows = make(), inputs(17), torch.tensor([2, 0, 2, 1])
    with torch.no_grad():
        state = layer.start(B, x)
        layer.read(x[:, :9], state)
        chosen = state.select(rows)
        layer.read(x[:, 9:], state)  # the old state goes on by itself
        after = torch.cat([layer.step(x[rows][:, at : at + 1], chosen) for at in range(9, 17)], dim=1)
        assert torch.allclose(after, layer(x, x)[rows][:, 9:], atol=1e-9)
        assert chosen.filled == 17
        beams = layer.step(x[:, :1].view(1, B, D), layer.start(B, x))  # one source of three hypotheses
        assert torch.allclose(beams.view(B, 1, D), layer(x, x)[:, :1], atol=1e-9)


@BOTH_WAYS
def test_a_recorder_sees_what_each_channel_mixes(causal: bool) -> None:
    layer, x = make(causal), inputs(13)
    for mask in (None, Lengths(torch.tensor([13, 6, 0]))):
        with record(layer) as seen:
            layer(x, x, mask)
        (call,) = seen.calls
        assert call.role == ("causal" if causal else "self") and not call.sums_to_one
        weights = call.weights()
        assert weights.shape == (B, D, 13, 13) and call.v.shape == call.out.shape == (B, D, 13, 1)
        assert seen.check() < 1e-9
        assert bool(weights.triu(1).any()) == (not causal)
        assert mask is None or not weights[1, :, :, 6:].any()
        assert torch.allclose(call.out[0, :, :, 0].mT, oracle(layer, x[:1], [13])[0], atol=1e-9)


def test_under_autocast_it_stays_in_single_precision_up_to_the_product() -> None:
    layer = StateSpace(D, causal=True).eval()
    x = inputs(29).float()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        with record(layer) as seen:
            out = layer(x, x)
        assert out.dtype == torch.bfloat16
        state = layer.start(B, x)
        assert torch.allclose(layer.read(x, state).float(), out.float(), atol=1e-2)
        low = x.bfloat16()
        assert layer(low, low).isfinite().all()
    assert torch.allclose(seen.calls[0].out[0, :, :, 0].mT.double(), oracle(layer, x[:1].double(), [29])[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_with_weights_in_half_precision_it_computes_in_single(dtype: torch.dtype) -> None:
    layer = make().to(dtype)
    x = inputs(11).to(dtype)
    with torch.no_grad():
        whole, past = layer(x, x), layer.start(B, x)
        steps = torch.cat(
            [layer.read(x[:, :7], past), *(layer.step(each, past) for each in x[:, 7:].split(1, dim=1))], dim=1
        )
        double = x.double()
        exact = layer.double()(double, double)
    assert whole.dtype == steps.dtype == dtype and past.numbers.dtype == torch.complex64
    assert torch.allclose(whole.double(), exact, atol=0.02) and torch.allclose(steps.double(), exact, atol=0.02)


def test_optimisers_that_look_for_matrices_find_only_the_product() -> None:
    layer = make()
    assert hidden_matrices(layer) == ["out.weight"]
    assert [name for name, each in layer.named_parameters() if each.dim() > 1] == ["reads", "out.weight"]
    assert not any(each.is_complex() for each in layer.state_dict().values())


def test_the_initialiser_scales_what_goes_into_the_stream() -> None:
    torch.manual_seed(0)
    layer = StateSpace(64, causal=True)
    block = Block(layer, None, FeedForward(64, 7), lambda: Residual(make_norm("layer", 64, 1e-5), 0.0, order="pre"))
    initialise_normal(block, residual_scale=0.1)
    assert float(layer.out.weight.detach().std()) == pytest.approx(0.002, rel=0.1)
    assert torch.allclose(layer.turns.view(64, -1)[3], math.pi * torch.arange(32))


def test_memory_grows_with_the_length_and_not_with_its_product_with_the_state() -> None:
    """Powers of all positions and all numbers at once would be D · N · T complex numbers."""

    def kept(length: int) -> int:
        layer, x = StateSpace(8, causal=True, state=64), torch.randn(1, length, 8, requires_grad=True)
        storages: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            layer(x, x)
        return sum(storages.values())

    assert kept(4096) < 8 * 64 * 4096 * 8 / 4
    assert kept(16384) < 4.1 * kept(4096)


def test_what_it_cannot_do_is_refused_in_words() -> None:
    x = inputs(7)
    with pytest.raises(UsageError, match="reads one sequence"):
        make()(x, inputs(7, 1))
    with pytest.raises(UsageError, match="reads one sequence"):
        make()(x, x, None, torch.zeros(B, 7, 7))
    with pytest.raises(UsageError, match="mask of the kind Dense"):
        make()(x, x, Dense(torch.ones(7, 7).bool()))
    with pytest.raises(UsageError, match="mask of the kind Causal"):
        make(causal=False)(x, x, Causal())
    with pytest.raises(UsageError, match="token by token"):
        make(causal=False).start(B, x)
    with pytest.raises(UsageError, match="exchange them"):
        StateSpace(D, causal=True, slowest=0.5, fastest=0.1)
