"""The parts of a block against NumPy and the definitions: norms, residual orders, feed-forward layers, fresh weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.attention import Causal, Lengths, MultiHead, Rotary
from regard.blocks import (
    Block,
    Experts,
    FeedForward,
    GatedFeedForward,
    Residual,
    initialise,
    initialise_normal,
    make_feed_forward,
    make_norm,
)
from regard.embed import TokenEmbedding, positions
from regard.noise import noise

B, T, D, F = 2, 5, 12, 23


def vectors(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def shaken(module: nn.Module) -> nn.Module:
    """In float64, every parameter at random, so that none can be forgotten."""
    for seed, parameter in enumerate(module.double().parameters()):
        parameter.data = vectors(*parameter.shape, seed=seed) * 0.4 + (parameter.dim() == 1)
    return module


# --- Norms


@torch.no_grad()
@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.7])
def test_norms_are_their_formulas(epsilon: float) -> None:
    """Ba et al. 2016, eq. 3; Zhang & Sennrich 2019, eq. 4. A vector after the other, its mean far from zero."""
    layer, rms = (shaken(make_norm(kind, D, epsilon)) for kind in ("layer", "rms"))
    x = vectors(B, T, D) * 3 + 5
    for row in np.ndindex(B, T):
        values = x[row].numpy()
        spread = math.sqrt(sum((values - values.sum() / D) ** 2) / D + epsilon)
        expected = (values - values.sum() / D) / spread * layer.weight.numpy() + layer.bias.numpy()
        assert np.allclose(layer(x)[row], expected, rtol=0, atol=1e-12)
        expected = values / math.sqrt(sum(values**2) / D + epsilon) * rms.weight.numpy()
        assert np.allclose(rms(x)[row], expected, rtol=0, atol=1e-12)
    assert [name for name, _ in rms.named_parameters()] == ["weight"]


def test_what_norms_do_not_see() -> None:
    """Layer norm: shift and size of a vector; root-mean-square norm: its size only."""
    layer, rms = make_norm("layer", D, 1e-12).double(), make_norm("rms", D, 1e-12).double()
    x = vectors(B, T, D)
    assert torch.allclose(layer(3 * x + 7), layer(x), rtol=0, atol=1e-9)
    assert torch.allclose(rms(3 * x), rms(x), rtol=0, atol=1e-9)
    assert (rms(x + 7) - rms(x)).abs().min(dim=-1).values.max() > 0.1


# --- Around a sub-layer


ORDERS: dict[str, Callable[[Tensor, nn.Module, Callable[[Tensor], Tensor]], Tensor]] = {
    "post": lambda x, norm, f: norm(x + f(x)),
    "pre": lambda x, norm, f: x + f(norm(x)),
    "none": lambda x, norm, f: x + f(x),
}
WITHOUT: dict[str, Callable[[Tensor, nn.Module, Callable[[Tensor], Tensor]], Tensor]] = {
    "post": lambda x, norm, f: norm(f(x)),
    "pre": lambda x, norm, f: f(norm(x)),
    "none": lambda x, norm, f: f(x),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_three_orders(order: str) -> None:
    norm, x = shaken(make_norm("layer", D)), vectors(B, T, D)
    around = Residual(norm, 0.0, order=order)
    assert torch.equal(around(x, torch.sin), ORDERS[order](x, norm, torch.sin))
    alone = Residual(norm, 0.0, order=order, residual=False)
    assert torch.equal(alone(x, torch.sin), WITHOUT[order](x, norm, torch.sin))
    assert len(list(around.parameters())) == (0 if order == "none" else 2)


@pytest.mark.parametrize("order", ORDERS)
def test_only_the_sublayer_is_dropped_and_only_in_training(order: str) -> None:
    """With a sub-layer of ones and rate 0.25, what is added is 0 or 4/3; the residual itself is never touched."""
    x = vectors(31, 17, D)
    around = Residual(nn.Identity(), 0.25, order=order)
    with noise(5):
        added = around(x, torch.ones_like) - x
    dropped = added.abs() < 1e-12
    assert torch.allclose(added[~dropped], torch.tensor(4 / 3, dtype=torch.float64), rtol=0, atol=1e-12)
    assert abs(dropped.double().mean().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / x.numel())
    with noise(5):
        alone = Residual(nn.Identity(), 0.25, order=order, residual=False)(x, torch.ones_like)
    assert torch.allclose(alone, added, rtol=0, atol=1e-12)
    assert torch.equal(around.eval()(x, torch.ones_like), x + 1)


# --- Feed-forward layers


def gelu(x: float) -> float:
    """Hendrycks & Gimpel 2016: x Φ(x)."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: float) -> float:
    """The approximation in the same paper, section 2."""
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


SCALARS = {"relu": lambda x: max(x, 0.0), "gelu": gelu, "gelu-tanh": gelu_tanh}


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", SCALARS)
def test_a_feed_forward_layer_is_its_formula(activation: str, bias: bool) -> None:
    layer, x = shaken(make_feed_forward(D, F, activation=activation, bias=bias)), vectors(B, T, D)
    first, second = (0.0, 0.0) if not bias else (layer.up.bias.numpy(), layer.down.bias.numpy())
    inner = np.vectorize(SCALARS[activation])(x.numpy() @ layer.up.weight.numpy().T + first)
    assert np.allclose(layer(x), inner @ layer.down.weight.numpy().T + second, rtol=0, atol=1e-12)
    assert sum(p.numel() for p in layer.parameters()) == 2 * D * F + (F + D if bias else 0)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_swiglu_is_its_formula(bias: bool) -> None:
    """Shazeer 2020, eq. 6: the gate is the first half of the rows, and swish is x σ(x)."""
    layer, x = shaken(make_feed_forward(D, F, activation="swiglu", bias=bias)), vectors(B, T, D)
    assert isinstance(layer, GatedFeedForward)
    gate_up, down = layer.gate_up.weight.numpy(), layer.down.weight.numpy()
    first, second = (np.zeros(2 * F), 0.0) if not bias else (layer.gate_up.bias.numpy(), layer.down.bias.numpy())
    gate, up = x.numpy() @ gate_up[:F].T + first[:F], x.numpy() @ gate_up[F:].T + first[F:]
    expected = (gate / (1 + np.exp(-gate)) * up) @ down.T + second
    assert np.allclose(layer(x), expected, rtol=0, atol=1e-12)
    assert sum(p.numel() for p in layer.parameters()) == 3 * D * F + (2 * F + D if bias else 0)


def test_the_exact_gelu_is_not_its_approximation() -> None:
    """They part by up to 5e-4: whoever confuses them is found by the tests above."""
    x = np.linspace(-4, 4, 101)
    assert 1e-4 < np.abs(np.vectorize(gelu)(x) - np.vectorize(gelu_tanh)(x)).max() < 1e-3


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_the_inner_vector_is_dropped_in_training_only(activation: str) -> None:
    """With the identity above it, the output shows what was dropped: the plain value divided by 3/4, or nothing."""
    layer = shaken(make_feed_forward(D, D, activation=activation, rate=0.25, bias=False))
    layer.down.weight.data = torch.eye(D, dtype=torch.float64)
    x = vectors(67, 19, D)
    plain = layer.eval()(x)
    with noise(3):
        found = layer.train()(x)
    alive = plain != 0
    kept = (found != 0) & alive
    assert torch.allclose(found[kept], plain[kept] * 4 / 3, rtol=1e-12, atol=0)
    assert abs(1 - kept.sum().item() / alive.sum().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / alive.sum().item())


# --- Blocks


def causal_block(order: str, kind: str, **options: Any) -> Block:
    torch.manual_seed(2)
    attention = MultiHead(D, 3, role="causal", **options)
    around = lambda: Residual(make_norm(kind, D), 0.0, order=order)  # noqa: E731
    block = Block(attention, None, make_feed_forward(D, F, activation="swiglu"), around)
    assert isinstance(shaken(block), Block)
    return block


OPTIONS: list[dict[str, Any]] = [{}, {"band": 2, "groups": 1}, {"rotary": True}, {"rotary": True, "band": 3}]


@torch.no_grad()
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_block_is_attention_then_feed_forward(order: str, kind: str, options: dict[str, Any]) -> None:
    """At once, and read in two parts with the rest stepped through."""
    options = options | ({"rotary": Rotary(4)} if options.get("rotary") else {})
    block, x = causal_block(order, kind, **options), vectors(B, T, D)
    arrange, norms = ORDERS[order], (block.around_attention.norm, block.around_feed_forward.norm)
    expected = arrange(x, norms[0], lambda y: block.attention(y, y, Causal()))
    expected = arrange(expected, norms[1], block.feed_forward)
    assert torch.allclose(block(x, Causal()), expected, rtol=0, atol=1e-12)
    for first in range(1, T):
        state = block.start(None, None, x)
        assert state.own.filled == 0 and state.memory is None
        parts = [block.read(x[:, :first], state), block.read(x[:, first : first + 1], state)]
        parts += [block.step(x[:, t : t + 1], state) for t in range(first + 1, T)]
        assert torch.allclose(torch.cat(parts, dim=1), expected, rtol=0, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("order", ORDERS)
def test_a_block_with_memory_looks_at_it_in_between(order: str) -> None:
    torch.manual_seed(4)
    own, cross = MultiHead(D, 3, role="causal"), MultiHead(D, 2, role="cross")
    block = Block(own, cross, FeedForward(D, F), lambda: Residual(make_norm("layer", D), 0.0, order=order))
    shaken(block)
    x, memory, mask = vectors(B, T, D), vectors(B, 7, D, seed=9), Lengths(torch.tensor([4, 7]))
    assert block.around_cross is not None
    arrange = ORDERS[order]
    expected = arrange(x, block.around_attention.norm, lambda y: own(y, y, Causal()))
    expected = arrange(expected, block.around_cross.norm, lambda y: cross(y, memory, mask))
    expected = arrange(expected, block.around_feed_forward.norm, block.feed_forward)
    assert torch.allclose(block(x, Causal(), memory, mask), expected, rtol=0, atol=1e-12)
    state = block.start(memory, mask, x)
    steps = [block.step(x[:, t : t + 1], state) for t in range(T)]
    assert torch.allclose(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-12)


# --- Fresh weights


class Stack(nn.Module):
    """Wide parts of every sort, to be initialised."""

    def __init__(self, width: int = 96, inner: int = 160) -> None:
        super().__init__()
        around = lambda: Residual(make_norm("layer", width), 0.0, order="pre")  # noqa: E731
        self.tokens = TokenEmbedding(nn.Embedding(131, width), positions("learned", width, 127), 0.0)
        self.blocks = nn.ModuleList(
            Block(
                MultiHead(width, 3, role="causal", groups=1),
                MultiHead(width, 3, role="cross"),
                feed_forward,
                around,
            )
            for feed_forward in (
                FeedForward(width, inner),
                GatedFeedForward(width, inner, bias=True),
                Experts(width, 3, 2, lambda: FeedForward(width, inner)),
            )
        )
        self.output = nn.Linear(width, 137)


STREAM = {"out", "down"}  # the last linear layer of each sub-layer: attention's and the feed-forward layer's


def spread(weight: Tensor, std: float) -> None:
    """Normal, with this standard deviation: within five standard errors, and a twentieth beyond two deviations."""
    count = weight.numel()
    assert weight.mean().item() == pytest.approx(0, abs=5 * std / math.sqrt(count))
    assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * count))
    beyond = (weight.abs() > 2 * std).double().mean().item()
    assert beyond == pytest.approx(0.0455, abs=5 * math.sqrt(0.0455 / count))


@pytest.mark.parametrize(("std", "scale"), [(0.02, 1.0), (0.02, 0.25), (0.1, 0.5)])
def test_normal_weights_scaled_where_they_join_the_stream(std: float, scale: float) -> None:
    """Radford et al. 2018, section 4.1, and 2019, section 2.3: in every block, whatever its feed-forward layer."""
    torch.manual_seed(1)
    model = Stack()
    for parameter in model.parameters():
        parameter.data.add_(3.0)
    norms = {name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    initialise_normal(model, std, scale)
    scaled = 0
    for name, parameter in model.named_parameters():
        owner, _, kind = name.rpartition(".")
        if owner in norms:
            assert parameter.min() >= 3.0, "norms keep what they begin with"
        elif kind == "bias":
            assert not parameter.any(), name
        else:
            adds = owner.rpartition(".")[2] in STREAM
            spread(parameter, std * scale if adds else std)
            scaled += adds
    assert scaled == 3 * 2 + 2 + 3  # two attentions and a feed-forward layer each; of experts there are three


def test_glorot_weights_of_each_matrix_by_itself() -> None:
    """Glorot & Bengio 2010, eq. 16: uniform within √(6 / (in + out)), where keys and values are two matrices."""
    torch.manual_seed(1)
    model = Stack()
    initialise(model)
    halves = {"key_value", "gate_up"}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            for part in layer.weight.chunk(2 if name.rpartition(".")[2] in halves else 1):
                bound = math.sqrt(6 / (part.size(0) + part.size(1)))
                assert 0.98 * bound < part.abs().max().item() <= bound, name
                assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=5 / math.sqrt(part.numel()))
            assert layer.bias is None or not layer.bias.any()
