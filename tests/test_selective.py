"""The selective state space against its recurrence in plain numbers, its scan against a loop, and what a `Block` asks of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention import Causal, Dense, Lengths, record
from regard.blocks import Block, Residual, Selective, initialise_normal, make_norm
from regard.blocks import selective as chapter
from regard.blocks.selective import SelectiveReader, scan, scan_reference
from regard.errors import UsageError
from regard.training.muon import hidden_matrices

B, D, N = 3, 5, 4
BOTH_WAYS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])


def make(causal: bool = True) -> Selective:
    torch.manual_seed(3)
    return Selective(D, causal=causal, state=N, kernel=3, rank=2, slowest=0.1, fastest=0.9).double().eval()


def inputs(length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, length, D, generator=generator, dtype=torch.float64)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def recurrence(reader: SelectiveReader, x: np.ndarray) -> np.ndarray:
    """Algorithm 2 of the paper, (T, E) -> (T, E), one position, channel and number after another."""
    taps = reader.taps.detach().numpy().reshape(reader.kernel, -1)
    matrix = reader.selects.weight.detach().numpy()
    up, bias = reader.step_up.detach().numpy(), reader.step_bias.detach().numpy()
    poles = -np.exp(reader.decay_logs.detach().numpy().reshape(-1, reader.state))
    skip, tap_bias = reader.skip.detach().numpy(), reader.tap_bias.detach().numpy()
    h, out = np.zeros_like(poles), np.zeros_like(x)
    for t in range(len(x)):
        u = tap_bias.copy()
        for back in range(reader.kernel):
            if t - back >= 0:
                u += taps[reader.kernel - 1 - back] * x[t - back]
        u = u * sigmoid(u)
        low, write, read = np.split(matrix @ u, [reader.rank, reader.rank + reader.state])
        step = np.log1p(np.exp(up @ low + bias))
        for e in range(len(u)):
            for n in range(reader.state):
                h[e, n] = math.exp(step[e] * poles[e, n]) * h[e, n] + step[e] * write[n] * u[e]
            out[t, e] = read @ h[e] + skip[e] * u[e]
    return out


def oracle(layer: Selective, x: Tensor) -> Tensor:
    """One text (T, D) -> (T, D)."""
    both = x.numpy() @ layer.into.weight.detach().numpy().T
    given, gate = np.split(both, 2, axis=-1)
    y = recurrence(layer.ahead, given)
    if layer.back is not None:
        y = y + recurrence(layer.back, given[::-1])[::-1]
    return torch.from_numpy((y * gate * sigmoid(gate)) @ layer.out.weight.detach().numpy().T)


@pytest.mark.parametrize("length", [1, 2, 3, 16, 37, 101])
def test_the_scan_is_the_loop_and_so_are_its_gradients(length: int) -> None:
    draw = torch.Generator().manual_seed(length)
    shape = (2, length, 3, 5)
    keeps = torch.rand(shape, generator=draw, dtype=torch.float64) ** 4  # from nearly nothing to nearly all
    gives, weigh = (torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(2))
    start = torch.randn(2, 3, 5, generator=draw, dtype=torch.float64)
    given = [each.requires_grad_() for each in (keeps, gives, start)]
    ours, theirs = scan(*given), scan_reference(*given)
    assert float((ours - theirs).detach().abs().max()) < 1e-10
    pairs = (torch.autograd.grad((each * weigh).sum(), given) for each in (ours, theirs))
    for mine, wanted in zip(*pairs, strict=True):
        assert float((mine - wanted).abs().max()) < 1e-10 and float(wanted.abs().max()) > 1e-3


@BOTH_WAYS
@pytest.mark.parametrize("length", [1, 2, 16, 37])
def test_the_layer_is_algorithm_2_of_the_paper(causal: bool, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter, "PIECE", 11)  # so that states pass from one piece to the next
    layer, x = make(causal), inputs(length)
    for given in (layer(x, x), layer(x.requires_grad_(), x)):  # also as in training, piece by piece anew
        for row in range(B):
            assert float((given.detach()[row] - oracle(layer, x.detach()[row])).abs().max()) < 1e-10


@BOTH_WAYS
def test_gradients_are_right(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter, "PIECE", 5)
    layer, x, mask = make(causal), inputs(7).requires_grad_(), Lengths(torch.tensor([7, 4, 0]))
    assert torch.autograd.gradcheck(lambda x: layer(x, x, mask), (x,), fast_mode=True)
    for name, parameter in layer.named_parameters():
        assert torch.autograd.gradcheck(lambda _, x=x.detach(): layer(x, x), (parameter,), fast_mode=True), name


@BOTH_WAYS
def test_what_lies_behind_a_rows_end_influences_nothing(causal: bool) -> None:
    layer, x, lengths = make(causal), inputs(19), torch.tensor([19, 8, 0])
    bad = x.masked_fill((torch.arange(19) >= lengths[:, None])[..., None], math.nan).requires_grad_()
    out = layer(bad, bad, Lengths(lengths))
    assert out.isfinite().all()
    assert float((out.detach()[1, :8] - oracle(layer, x[1, :8])).abs().max()) < 1e-10
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
    assert float((torch.cat(parts, dim=1) - whole).abs().max()) < 1e-10
    assert state.numbers.shape == (B, 2 * D, N) and state.recent.shape == (B, 2, 2 * D)  # they do not grow


def test_hypotheses_are_reordered_with_their_past() -> None:
    layer, x, rows = make(), inputs(17), torch.tensor([2, 0, 2, 1])
    with torch.no_grad():
        state = layer.start(B, x)
        layer.read(x[:, :9], state)
        chosen = state.select(rows)
        layer.read(x[:, 9:], state)  # the old state goes on by itself
        after = torch.cat([layer.step(x[rows][:, at : at + 1], chosen) for at in range(9, 17)], dim=1)
        assert torch.allclose(after, layer(x, x)[rows][:, 9:], atol=1e-10)
        beams = layer.step(x[:, :1].view(1, B, D), layer.start(B, x))  # one source of three hypotheses
        assert torch.allclose(beams.view(B, 1, D), layer(x, x)[:, :1], atol=1e-10)


@BOTH_WAYS
def test_a_recorder_sees_what_each_channel_mixes(causal: bool) -> None:
    layer, x = make(causal), inputs(13)
    for mask in (None, Lengths(torch.tensor([13, 6, 0]))):
        with record(layer) as seen, torch.no_grad():
            layer(x, x, mask)
        (call,) = seen.calls
        weights = call.weights()
        assert weights.shape == (B, 2 * D if causal else 4 * D, 13, 13) and seen.check() < 1e-9
        assert not call.sums_to_one and bool(weights.triu(1).any()) == (not causal)
        assert mask is None or not weights[1, :, :, 6:].any()


def test_the_input_chooses_what_is_kept() -> None:
    """With a long step the state is the newest input; with none, nothing is written and the past stays."""
    reader = SelectiveReader(1, 1, 1, 1, 0.1, 0.2).double()
    with torch.no_grad():
        poles, past = reader.poles(), torch.full((1, 1, 1), 7.0, dtype=torch.float64)
        ones = torch.ones(1, 1, 1, dtype=torch.float64)
        kept, _ = chapter._piece(ones * 3, ones * 1e-12, ones, ones, poles, past)
        assert float(kept) == pytest.approx(7, abs=1e-9)
        gone, _ = chapter._piece(ones * 3, ones * 50, ones, ones, poles, past)
        assert float(gone) == pytest.approx(150, abs=1e-9)


def test_single_precision_stays_close_over_a_long_text_and_at_extreme_steps() -> None:
    torch.manual_seed(0)
    layer, x = Selective(D, causal=True).eval(), inputs(700).float()
    with torch.no_grad():
        layer.ahead.step_bias[:3] = torch.tensor([-30.0, 30.0, 90.0])  # never, at once, at once
        state = layer.start(B, x)
        parts = [layer.read(x[:, :300], state), *(layer.step(x[:, at : at + 1], state) for at in range(300, 700))]
        stepped, whole = torch.cat(parts, dim=1), layer(x, x)
        exact, wide = layer.double(), x.double()
        wanted = exact(wide, wide)
        for given in (stepped, whole):
            assert torch.allclose(given.double(), wanted, atol=2e-5, rtol=1e-5)


def test_gradients_are_finite_in_single_precision_where_products_vanish() -> None:
    layer, x = Selective(D, causal=True), inputs(300).float()
    with torch.no_grad():
        layer.ahead.step_bias.fill_(20.0)
    layer(x, x).square().sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in layer.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_with_weights_in_half_precision_the_state_is_in_single(dtype: torch.dtype) -> None:
    layer, x = make().to(dtype), inputs(11).to(dtype)
    with torch.no_grad():
        whole, past = layer(x, x), layer.start(B, x)
        steps = torch.cat([layer.step(each, past) for each in x.split(1, dim=1)], dim=1)
        double = x.double()
        exact = layer.double()(double, double)
    assert whole.dtype == steps.dtype == dtype and past.numbers.dtype == torch.float32
    assert torch.allclose(whole.double(), exact, atol=0.02) and torch.allclose(steps.double(), exact, atol=0.02)


def test_under_autocast_the_recurrence_stays_in_single_precision() -> None:
    layer, x = Selective(D, causal=True).eval(), inputs(29).float()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        out = layer(x, x)
        assert out.dtype == torch.bfloat16
        assert torch.allclose(layer.read(x, layer.start(B, x)).float(), out.float(), atol=1e-2)
    assert torch.allclose(out.float(), layer(x, x), atol=0.05)


def test_it_starts_as_the_paper_says() -> None:
    reader = Selective(251, causal=True).ahead
    assert reader.rank == 16 and torch.allclose(reader.poles()[17], -torch.arange(1.0, 17))
    steps = torch.nn.functional.softplus(reader.step_bias.detach())
    assert steps.min() * 1.0001 >= 0.001 and steps.min() < 0.0013 and 0.08 < steps.max() <= 0.1001
    assert torch.equal(reader.skip, torch.ones(502))


def test_optimisers_and_the_initialiser_know_its_matrices() -> None:
    torch.manual_seed(0)
    layer = Selective(64, causal=True)
    assert set(hidden_matrices(layer)) == {"into.weight", "ahead.step_up", "ahead.selects.weight", "out.weight"}
    block = Block(layer, None, torch.nn.Identity(), lambda: Residual(make_norm("layer", 64, 1e-5), 0.0, order="pre"))
    before = layer.ahead.step_bias.detach().clone()
    initialise_normal(block, residual_scale=0.1)
    assert float(layer.out.weight.detach().std()) == pytest.approx(0.002, rel=0.1)
    assert torch.equal(layer.ahead.step_bias, before)


def test_what_it_cannot_do_is_refused_in_words() -> None:
    x = inputs(7)
    with pytest.raises(UsageError, match="reads one sequence"):
        make()(x, inputs(7, 1))
    with pytest.raises(UsageError, match="mask of the kind Dense"):
        make()(x, x, Dense(torch.ones(7, 7).bool()))
    with pytest.raises(UsageError, match="token by token"):
        make(causal=False).start(B, x)
    with pytest.raises(UsageError, match="exchange them"):
        Selective(D, causal=True, slowest=0.5, fastest=0.1)
