"""Recurrent cells, layers and encoders against torch's own modules with the same weights, gradients included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import regard.noise
from regard.blocks.recurrent import GATES, STEPS, Recurrent, RecurrentEncoder, RecurrentLayer, backwards, read_to_end
from regard.noise import noise

B, S, INPUTS, HIDDEN = 5, 11, 7, 3  # hidden: of each direction
LENGTHS = [5, 11, 1, 7, 3]
CELLS = pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
WHOLE: dict[str, Any] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
SINGLE: dict[str, Any] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
PARTS = {"weight_x": "weight_ih", "weight_h": "weight_hh", "bias_x": "bias_ih", "bias_h": "bias_hh"}  # ours: torch's
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unsettled(module: nn.Module) -> Any:
    """In float64, every number random, biases too, so that none can be forgotten or swapped."""
    torch.manual_seed(7)
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.6)
    return module.eval()


def state_of(cell: str, rows: int, layers: int = 1, width: int = HIDDEN) -> list[tuple[Tensor, ...]]:
    """A state of each layer that is not zero: (h,) or (h, c)."""
    parts = 2 if cell == "lstm" else 1
    return [
        tuple(random(rows, width, seed=10 * layer + part).requires_grad_() for part in range(parts))
        for layer in range(layers)
    ]


def as_torch(cell: str, states: Sequence[tuple[Tensor, ...]]) -> Any:
    """What torch's module takes: (layers, B, hidden), of an LSTM two of them."""
    stacked = [torch.stack(part) for part in zip(*states, strict=True)]
    return tuple(stacked) if cell == "lstm" else stacked[0]


def layers_of(module: nn.Module) -> Iterator[tuple[str, RecurrentLayer]]:
    """Every layer beside what torch calls it: l0, l0_reverse, l1, ..."""
    if isinstance(module, RecurrentLayer):
        yield "l0", module
        return
    for number, layer in enumerate(module.layers):  # type: ignore[arg-type]
        if isinstance(layer, RecurrentLayer):
            yield f"l{number}", layer
            continue
        yield f"l{number}", layer.forth
        if hasattr(layer, "back"):
            yield f"l{number}_reverse", layer.back


def twin_of(module: nn.Module, cell: str, **options: Any) -> Any:
    """torch's module with the same weights; all of ours are in it, and it has no others."""
    layers = dict(layers_of(module))
    first = layers["l0"]
    twin = WHOLE[cell](first.weight_x.size(1), first.hidden, **options).double().eval()
    with torch.no_grad():
        for name, layer in layers.items():
            for ours, theirs in PARTS.items():
                twin.get_parameter(f"{theirs}_{name}").copy_(layer.get_parameter(ours))
    counted = sum(p.numel() for p in twin.parameters())
    assert counted == sum(p.numel() for layer in layers.values() for p in layer.parameters())
    return twin


def assert_equal_gradients(module: nn.Module, twin: nn.Module, inputs: Sequence[tuple[Tensor, Tensor]] = ()) -> None:
    for name, layer in layers_of(module):
        for ours, theirs in PARTS.items():
            found, expected = layer.get_parameter(ours).grad, twin.get_parameter(f"{theirs}_{name}").grad
            assert found is not None and expected is not None and expected.any(), (name, ours)
            assert torch.allclose(found, expected, rtol=0, atol=1e-11), (name, ours)
    for one, other in inputs:
        assert one.grad is not None and other.grad is not None and other.grad.any()
        assert torch.allclose(one.grad, other.grad, rtol=0, atol=1e-11)


def weighed(tensors: Sequence[Tensor]) -> Tensor:
    """One number that depends on each of theirs in its own way."""
    return torch.stack([(tensor * random(*tensor.shape, seed=91 + n)).sum() for n, tensor in enumerate(tensors)]).sum()


def copies(states: Sequence[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    return [tuple(part.detach().clone().requires_grad_() for part in state) for state in states]


def flat(states: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [part for state in states for part in state]


# --- One step


@CELLS
def test_a_step_is_torch_s_cell(cell: str) -> None:
    """Iterated over a sequence: the states of every step, and the gradients of all weights, inputs and states."""
    layer = unsettled(RecurrentLayer(cell, INPUTS, HIDDEN))
    twin = SINGLE[cell](INPUTS, HIDDEN).double()
    with torch.no_grad():
        for ours, theirs in PARTS.items():
            twin.get_parameter(theirs).copy_(layer.get_parameter(ours))
    x = random(S, B, INPUTS, seed=1).requires_grad_()
    y = x.detach().clone().requires_grad_()
    first = state_of(cell, B)
    other = copies(first)
    state, expected = first[0], other[0]
    all_states, all_expected = [], []
    for t in range(S):
        inputs = x[t] @ layer.weight_x.T + layer.bias_x
        state = STEPS[cell](inputs, state, layer.weight_h, layer.bias_h)
        after = twin(y[t], expected if cell == "lstm" else expected[0])
        expected = after if cell == "lstm" else (after,)
        assert len(state) == len(expected) == (2 if cell == "lstm" else 1)
        for one, theirs_now in zip(state, expected, strict=True):
            assert torch.allclose(one, theirs_now, **EXACT)
        all_states.append(state)
        all_expected.append(expected)
    weighed(flat(all_states)).backward()
    weighed(flat(all_expected)).backward()
    for ours, theirs in PARTS.items():
        assert torch.allclose(layer.get_parameter(ours).grad, twin.get_parameter(theirs).grad, rtol=0, atol=1e-11)
    for one, theirs_now in [(x, y), *zip(first[0], other[0], strict=True)]:
        assert torch.allclose(one.grad, theirs_now.grad, rtol=0, atol=1e-11)  # type: ignore[arg-type]


@CELLS
def test_a_layer_is_torch_s_module_whole_and_in_steps(cell: str) -> None:
    layer = unsettled(RecurrentLayer(cell, INPUTS, HIDDEN))
    twin = twin_of(layer, cell)
    x, first = random(S, B, INPUTS, seed=1).requires_grad_(), state_of(cell, B)
    y, other = x.detach().clone().requires_grad_(), copies(first)
    expected, after = twin(y, as_torch(cell, other))
    last = [part[0] for part in (after if cell == "lstm" else (after,))]

    out, state = layer(x, first[0])
    assert out.shape == (S, B, HIDDEN)
    assert torch.allclose(out, expected, **EXACT)
    assert all(torch.allclose(*pair, **EXACT) for pair in zip(state, last, strict=True))
    weighed([out, *state]).backward()
    weighed([expected, *last]).backward()
    inputs = [(x, y), *zip(first[0], other[0], strict=True)]
    assert_equal_gradients(layer, twin, inputs)

    layer.zero_grad()
    for tensor in (x, *first[0]):
        tensor.grad = None
    gates, state, steps = layer.gates(x), first[0], []
    for t in range(S):
        state = layer.step(gates[t], state)
        steps.append(state[0])
    assert torch.allclose(torch.stack(steps), expected, **EXACT)
    assert all(torch.allclose(*pair, **EXACT) for pair in zip(state, last, strict=True))
    weighed([torch.stack(steps), *state]).backward()
    assert_equal_gradients(layer, twin, inputs)


@CELLS
def test_a_fresh_layer(cell: str) -> None:
    """Each gate by itself: Glorot-uniform from the input, orthogonal from the state; only a forget gate is biased."""
    torch.manual_seed(3)
    layer = RecurrentLayer(cell, 31, 23)
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[cell]
    assert GATES[cell] == gates and len(layer.weight_x) == len(layer.weight_h) == gates * 23
    bound = (6 / (31 + 23)) ** 0.5
    for number in range(gates):
        rows = slice(23 * number, 23 * (number + 1))
        assert 0.95 * bound < layer.weight_x[rows].abs().max().item() <= bound
        assert torch.allclose(layer.weight_h[rows] @ layer.weight_h[rows].T, torch.eye(23), rtol=0, atol=1e-5)
        assert (layer.bias_x[rows] == float(cell == "lstm" and number == 1)).all()
    assert not layer.bias_h.any()
    assert [tuple(part.shape) for part in layer.zeros(5)] == [(5, 23)] * (2 if cell == "lstm" else 1)
    assert not any(part.any() for part in layer.zeros(5))


# --- Stacks


@CELLS
@pytest.mark.parametrize("layers", [1, 3])
def test_a_stack_is_torch_s_module_whole_and_in_steps(cell: str, layers: int) -> None:
    stack = unsettled(Recurrent(cell, INPUTS, HIDDEN, layers, rate=0.5))
    twin = twin_of(stack, cell, num_layers=layers, batch_first=True)
    x, first = random(B, S, INPUTS, seed=1).requires_grad_(), state_of(cell, B, layers)
    y, other = x.detach().clone().requires_grad_(), copies(first)
    expected, after = twin(y, as_torch(cell, other))
    last = list(zip(*(after if cell == "lstm" else (after,)), strict=True))  # of each layer (h,) or (h, c)

    def assert_same(out: Tensor, states: list[tuple[Tensor, ...]]) -> None:
        assert torch.allclose(out, expected, **EXACT)
        assert len(states) == len(last) == layers
        assert all(torch.allclose(*pair, **EXACT) for pair in zip(flat(states), flat(last), strict=True))

    out, states = stack(x, first)
    assert_same(out, states)
    weighed([out, *flat(states)]).backward()
    weighed([expected, *flat(last)]).backward()
    assert_equal_gradients(stack, twin, [(x, y), *zip(flat(first), flat(other), strict=True)])

    gates, states, steps = stack.gates(x), first, []
    for t in range(S):
        h, states = stack.step(gates[:, t], states)
        steps.append(h)
    assert_same(torch.stack(steps, dim=1), states)

    zeros, _ = twin(y)
    assert torch.allclose(stack(x, stack.zeros(B))[0], zeros, **EXACT)


@CELLS
def test_what_is_fed_joins_the_input_of_the_first_layer(cell: str) -> None:
    """A cell that reads [x, fed] has the columns of both matrices side by side."""
    fed = 13
    stack = unsettled(Recurrent(cell, INPUTS, HIDDEN, 2, rate=0.0, fed=fed))
    joined = unsettled(Recurrent(cell, INPUTS + fed, HIDDEN, 2, rate=0.0))
    with torch.no_grad():
        for ours, theirs in zip(stack.layers, joined.layers, strict=True):
            for part in PARTS:
                if ours.get_parameter(part).shape == theirs.get_parameter(part).shape:
                    theirs.get_parameter(part).copy_(ours.get_parameter(part))
        joined.layers[0].weight_x.copy_(torch.cat([stack.layers[0].weight_x, stack.feed.weight], dim=1))
    twin = twin_of(joined, cell, num_layers=2)
    x, more, first = random(B, INPUTS, seed=1), random(B, fed, seed=2), state_of(cell, B, 2)
    expected, _ = twin(torch.cat([x, more], dim=-1)[None], as_torch(cell, first))
    assert stack.feed.bias is None
    assert torch.allclose(stack.step(stack.gates(x), first, more)[0], expected[0], **EXACT)


@CELLS
@pytest.mark.parametrize("layers", [1, 3])
def test_dropout_stands_between_layers_and_only_in_training(
    cell: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in torch: neither before the first layer nor behind the last, nor from a state to the next."""
    drawn: list[tuple[tuple[int, ...], float]] = []
    keep = regard.noise.keep_mask

    def counted(stream: Any, x: Tensor, rate: float) -> Tensor:
        drawn.append((tuple(x.shape), rate))
        return keep(stream, x, rate)

    monkeypatch.setattr(regard.noise, "keep_mask", counted)
    stack = unsettled(Recurrent(cell, INPUTS, HIDDEN, layers, rate=0.3))
    encoder = unsettled(RecurrentEncoder(cell, INPUTS, 2 * HIDDEN, layers, 0.3, bidirectional=True))
    x, states = random(B, S, INPUTS, seed=1), stack.zeros(B)
    for training in (False, True):
        stack.train(training), encoder.train(training)
        with noise(3):
            whole = stack(x, states)[0]
            stack.step(stack.gates(x[:, 0]), states)
            encoder(x, torch.tensor(LENGTHS))
        between = (layers - 1) * training
        expected = [((B, S, HIDDEN), 0.3), ((B, HIDDEN), 0.3), ((B, S, 2 * HIDDEN), 0.3)]
        assert sorted(drawn) == sorted(expected * between)
        with noise(3):
            assert torch.equal(stack(x, states)[0], whole)
        with noise(4):
            assert torch.equal(stack(x, states)[0], whole) == (not between)
        drawn.clear()


# --- Encoders


def packed(twin: Any, x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
    """torch's module over packed sequences: annotations (B, S, ·) and the last h, c, (layers · directions, B, ·)."""
    batch = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    out, last = twin(batch)
    annotations, _ = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
    return annotations, list(last) if isinstance(last, tuple) else [last]


@CELLS
@pytest.mark.parametrize("lengths", [LENGTHS, [S] * B, [5, 7, 2, 7, 3]], ids=["padded", "whole", "all padded"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one direction", "both"])
def test_an_encoder_is_torch_s_module_on_packed_sequences(
    cell: str, bidirectional: bool, layers: int, lengths: list[int]
) -> None:
    """Annotations of real positions, the last h and c of each layer and direction, and all gradients."""
    directions = 2 if bidirectional else 1
    encoder = unsettled(
        RecurrentEncoder(cell, INPUTS, directions * HIDDEN, layers, rate=0.4, bidirectional=bidirectional)
    )
    twin = twin_of(encoder, cell, num_layers=layers, bidirectional=bidirectional, batch_first=True)
    real = torch.arange(S) < torch.tensor(lengths)[:, None]
    x = random(B, S, INPUTS, seed=1).masked_fill(~real[..., None], 17.0).requires_grad_()
    y = x.detach().clone().requires_grad_()

    annotations, states = encoder(x, torch.tensor(lengths))
    expected, last = packed(twin, y, lengths)
    assert annotations.shape == (B, S, directions * HIDDEN)
    assert torch.allclose(annotations[real], expected[real], **EXACT)
    assert len(states) == layers and all(len(state) == len(last) for state in states)
    for number, state in enumerate(states):
        for part, theirs in zip(state, last, strict=True):
            side_by_side = theirs[directions * number : directions * (number + 1)].transpose(0, 1).flatten(1)
            assert torch.allclose(part, side_by_side, **EXACT)

    ends = [theirs.unflatten(0, (layers, directions)).transpose(1, 2).flatten(2) for theirs in last]
    weighed([annotations[real], *(torch.stack(part) for part in zip(*states, strict=True))]).backward()
    weighed([expected[real], *ends]).backward()
    assert_equal_gradients(encoder, twin, [(x, y)])
    assert x.grad is not None and not x.grad[~real].any() and x.grad[real].any(dim=-1).all()


@CELLS
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one direction", "both"])
def test_each_row_alone_is_the_row_in_the_batch(cell: str, bidirectional: bool) -> None:
    encoder = unsettled(RecurrentEncoder(cell, INPUTS, 2 * HIDDEN, 2, rate=0.0, bidirectional=bidirectional))
    x = random(B, S, INPUTS, seed=1)
    annotations, states = encoder(x, torch.tensor(LENGTHS))
    for b, length in enumerate(LENGTHS):
        alone, ended = encoder(x[b : b + 1, :length], torch.tensor([length]))
        assert torch.allclose(annotations[b : b + 1, :length], alone, **EXACT)
        for one, other in zip(flat(states), flat(ended), strict=True):
            assert torch.allclose(one[b : b + 1], other, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_lstm_holds_its_cell_over_padding_to_the_last_bit(dtype: torch.dtype) -> None:
    """However much padding: the cell at the end of a short sequence is the one that it had there."""
    layer = unsettled(RecurrentLayer("lstm", INPUTS, HIDDEN)).to(dtype)
    x = random(53, 2, INPUTS, seed=1).to(dtype)
    _, (h, c) = read_to_end(layer, x, torch.tensor([3, 53]))
    _, (_, few) = read_to_end(layer, x[:5], torch.tensor([3, 5]))
    out, (h3, c3) = layer(x[:3, :1], layer.zeros(1))
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    assert torch.equal(few[0], c[0])
    assert torch.allclose(c[:1], c3, rtol=0, atol=tolerance) and torch.allclose(h[:1], h3, rtol=0, atol=tolerance)
    assert torch.equal(out[-1], h3)


def test_each_direction_of_an_encoder_has_half_of_its_width() -> None:
    """The second layer reads both halves of the first."""
    encoder = RecurrentEncoder("gru", INPUTS, 2 * HIDDEN, 2, rate=0.0, bidirectional=True)
    shapes = {name: tuple(layer.weight_x.shape) for name, layer in layers_of(encoder)}
    one, two = (3 * HIDDEN, INPUTS), (3 * HIDDEN, 2 * HIDDEN)
    assert shapes == {"l0": one, "l0_reverse": one, "l1": two, "l1_reverse": two}


def test_backwards_by_hand() -> None:
    """Only what is real is turned; padding stays behind it."""
    x = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0], [9, 0, 0, 0, -1]]).T  # (5, 3)
    turned = torch.tensor([[5, 4, 3, 2, 1], [8, 7, 6, 0, 0], [9, 0, 0, 0, -1]]).T
    assert torch.equal(backwards(x, torch.tensor([5, 3, 1])), turned)
    assert torch.equal(backwards(turned, torch.tensor([5, 3, 1])), x)
    assert torch.equal(backwards(x, None), x.flip(0))
    assert torch.equal(backwards(x, torch.tensor([5, 5, 5])), x.flip(0))
    vectors = torch.stack([x, -x], dim=-1)
    assert torch.equal(backwards(vectors, torch.tensor([5, 3, 1])), torch.stack([turned, -turned], dim=-1))
