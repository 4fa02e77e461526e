"""Reversible blocks against autograd over the same equations: outputs, gradients, noise, memory, decoding."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Causal, Lengths, MultiHead, record
from regard.attention.kernels import Placement
from regard.attention.kernels.reformer import Reformer
from regard.attention.relative import Rotary
from regard.blocks import Block, Experts, FeedForward, GatedFeedForward, Residual, Stack, balance_terms, make_norm
from regard.blocks.state_space import StateSpace
from regard.data.batch import text_batch
from regard.errors import UsageError
from regard.models.bert import Bert
from regard.models.config import BertConfig, LlamaConfig
from regard.models.gpt import GPT
from regard.noise import dropout, noise, step_of_training

B, T, D, H, L = 2, 11, 12, 3, 3


def make(layers: int = L, rate: float = 0.0, attend: Callable[[int], Any] | None = None, inner: float = 0.0) -> Stack:
    """Blocks in float64 with one rotary table for all, and every parameter at random."""
    rotary = Rotary(D // H)

    def heads(number: int) -> MultiHead:
        return MultiHead(D, H, role="causal", rotary=rotary, dropout=inner)

    def block(number: int) -> Block:
        feed_forward = GatedFeedForward(D, 17, rate=inner) if number % 2 else FeedForward(D, 17, rate=inner)
        attention = (attend or heads)(number)
        return Block(attention, None, feed_forward, lambda: Residual(make_norm("layer", D, 1e-5), rate, order="pre"))

    stack = Stack((block(number) for number in range(layers)), reversible=True).double()
    generator = torch.Generator().manual_seed(7)
    for parameter in stack.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = 0.3 * values + (parameter.dim() == 1)
    return stack


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plainly(stack: Stack, x: Tensor, mask: Any) -> Tensor:
    """The equations, one after another, for autograd; norms and sub-layers are the blocks' own."""
    first, second = x, x
    for block in stack.each():
        around = block.around_attention
        y = around.norm(second)
        first = first + dropout(block.attention(y, y, mask), around.rate if stack.training else 0.0)
        around = block.around_feed_forward
        second = second + dropout(block.feed_forward(around.norm(first)), around.rate if stack.training else 0.0)
    return 0.5 * first + 0.5 * second


def gradients(run: Callable[[], Tensor], stack: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The output, and the gradient of the input and of every parameter."""
    stack.zero_grad()
    x.grad = None
    out = run()
    (out * inputs(9)).sum().backward()
    found = {name: parameter.grad for name, parameter in stack.named_parameters()}
    assert x.grad is not None and all(each is not None for each in found.values())
    return {"out": out.detach(), "x": x.grad} | {name: each.clone() for name, each in found.items() if each is not None}


def assert_equal(given: dict[str, Tensor], wanted: dict[str, Tensor], atol: float = 1e-9) -> None:
    assert given.keys() == wanted.keys()
    for name, each in given.items():
        assert torch.allclose(each, wanted[name], atol=atol, rtol=1e-9), name
        assert each.abs().max() > 1e-6, name


def kernel(number: int) -> MultiHead:
    return MultiHead(D, H, role="causal", kernel=Reformer(Placement(H, D // H, True, longest=20, seed=number), 3, 4, 2))


@pytest.mark.parametrize(
    "mask", [Causal(), Causal() & Lengths(torch.tensor([T, 4])), None], ids=["causal", "both", "all"]
)
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_outputs_and_all_gradients_are_those_of_autograd(mask: Any, rate: float) -> None:
    stack, x = make(rate=rate, inner=rate), inputs().requires_grad_()
    with noise(3, 5, 1):
        wanted = gradients(lambda: plainly(stack, x, mask), stack, x)
    with noise(3, 5, 1):
        given = gradients(lambda: stack(x, mask), stack, x)
    assert_equal(given, wanted)
    with noise(3, 5, 1):
        out = stack(x, mask)
    (out * inputs(9)).sum().backward()  # outside of the noise, on top of what is there
    for name, parameter in stack.named_parameters():
        assert parameter.grad is not None and torch.allclose(parameter.grad, 2 * wanted[name], atol=1e-9), name


def test_torchs_own_dropout_is_replayed_too() -> None:
    stack, x = make(rate=0.25), inputs().requires_grad_()
    torch.manual_seed(4)
    wanted = gradients(lambda: plainly(stack, x, Causal()), stack, x)
    after = torch.rand(3)
    torch.manual_seed(4)
    assert_equal(gradients(lambda: stack(x, Causal()), stack, x), wanted)
    assert torch.equal(torch.rand(3), after)  # and what comes next is not disturbed


def test_noise_goes_on_behind_the_blocks_as_if_nothing_were_replayed() -> None:
    stack, x = make(rate=0.25), inputs().requires_grad_()
    ones, found = torch.ones(97), []
    for run in (lambda: stack(x, Causal()), lambda: plainly(stack, x, Causal())):
        with noise(1, 2):
            run().sum().backward()
            found.append(dropout(ones, 0.5))
    assert torch.equal(*found)


def test_kernels_draw_the_same_rotations_again() -> None:
    """A kernel that draws anew at every step of training must find that step in the gradient."""
    stack, x = make(attend=kernel), inputs().requires_grad_()
    found = []
    for step in (5, 6):
        with noise(3, step, 0):
            wanted = gradients(lambda: plainly(stack, x, Causal()), stack, x)
            out = stack(x, Causal())
        assert step_of_training() is None
        stack.zero_grad()
        x.grad = None
        (out * inputs(9)).sum().backward()
        given = {name: each.grad for name, each in stack.named_parameters() if each.grad is not None}
        assert x.grad is not None
        assert_equal({"out": out.detach(), "x": x.grad} | given, wanted)
        found.append(wanted["x"])
    assert not torch.allclose(*found)


def test_a_state_space_layer_may_stand_in_a_reversible_block() -> None:
    stack = make(attend=lambda number: StateSpace(D, causal=True, state=3))
    x = inputs().requires_grad_()
    wanted = gradients(lambda: plainly(stack, x, Causal()), stack, x)
    assert_equal(gradients(lambda: stack(x, Causal()), stack, x), wanted)


def test_parameters_that_blocks_share_get_the_sum() -> None:
    shared = MultiHead(D, H, role="causal")
    stack, x = make(attend=lambda number: shared), inputs().requires_grad_()
    wanted = gradients(lambda: plainly(stack, x, Causal()), stack, x)
    assert_equal(gradients(lambda: stack(x, Causal()), stack, x), wanted)


def test_hooks_see_the_whole_gradient_once() -> None:
    stack, x = make(), inputs().requires_grad_()
    wanted = gradients(lambda: plainly(stack, x, Causal()), stack, x)
    weight, seen = stack[1].attention.out.weight, []
    weight.register_hook(lambda gradient: (seen.append(gradient), 2 * gradient)[1])
    given = gradients(lambda: stack(x, Causal()), stack, x)
    assert len(seen) == 1 and torch.allclose(seen[0], wanted["1.attention.out.weight"], atol=1e-9)
    assert torch.allclose(given["1.attention.out.weight"], 2 * wanted["1.attention.out.weight"], atol=1e-9)
    asked = torch.autograd.grad((stack(x, Causal()) * inputs(9)).sum(), [x, stack[0].feed_forward.up.weight])
    assert torch.allclose(asked[0], wanted["x"], atol=1e-9)
    assert torch.allclose(asked[1], wanted["0.feed_forward.up.weight"], atol=1e-9)


def test_what_is_frozen_gets_no_gradient() -> None:
    stack, x = make(), inputs()
    stack[0].requires_grad_(False)
    (stack(x, Causal()) * inputs(9)).sum().backward()
    given = {name: each.grad for name, each in stack.named_parameters()}
    (stack := make())[0].requires_grad_(False)
    (plainly(stack, x, Causal()) * inputs(9)).sum().backward()
    for name, each in stack.named_parameters():
        assert (given[name] is None) == (each.grad is None) == name.startswith("0."), name
        if each.grad is not None:
            assert torch.allclose(given[name], each.grad, atol=1e-9)


def kept(layers: int, reversible: bool) -> int:
    """Bytes of activations that are kept for the gradient; weights do not count."""
    stack, x = make(layers), inputs().requires_grad_()
    own = {parameter.untyped_storage().data_ptr() for parameter in stack.parameters()}
    storages: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = stack(x, Causal()) if reversible else plainly(stack, x, Causal())
    assert out.requires_grad
    return sum(tensor.untyped_storage().nbytes() for place, tensor in storages.items() if place not in own)


def test_what_is_kept_does_not_grow_with_depth() -> None:
    assert kept(2, True) == kept(7, True) <= 4 * inputs().nbytes
    assert kept(7, False) > 2.5 * kept(2, False)


def alive() -> list[Tensor]:
    """All activations that Python holds."""
    gc.collect()
    found = [each for each in gc.get_objects() if issubclass(type(each), Tensor)]
    return [each for each in found if each.is_floating_point() and each.numel() >= B * T * D]


def made_by_forward(layers: int) -> int:
    stack, x = make(layers), inputs().requires_grad_()
    before = len(alive())
    out = stack(x, Causal())
    found = len(alive()) - before
    out.sum().backward()
    return found


def test_nothing_else_is_alive_between_forward_and_backward_however_deep() -> None:
    """What a Function keeps beside its saved tensors would escape their hooks."""
    assert 0 < made_by_forward(2) == made_by_forward(6)


def test_recorders_see_each_attention_once() -> None:
    stack, x = make(rate=0.25), inputs().requires_grad_()
    with noise(1, 2), record(stack) as seen:
        stack(x, Causal()).sum().backward()
    assert [call.path for call in seen.calls] == [f"{number}.attention" for number in range(L)]
    assert seen.check() < 1e-9


def test_without_gradients_the_same_comes_out() -> None:
    stack, x = make().eval(), inputs()
    with torch.no_grad():
        assert torch.allclose(stack(x, Causal()), plainly(stack, x, Causal()), atol=1e-12)
    assert torch.allclose(stack(x, Causal()), plainly(stack, x, Causal()), atol=1e-12)


def test_autocast_holds_in_the_second_computation() -> None:
    stack, x = make().float(), inputs().float().requires_grad_()
    grads = []
    for run in (lambda: stack(x, Causal()), lambda: plainly(stack, x, Causal())):
        stack.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = run()
        assert out.dtype == torch.float32
        (out * inputs(9).float()).sum().backward()
        grads.append(torch.cat([each.grad.flatten() for each in stack.parameters() if each.grad is not None]))
    assert torch.nn.functional.cosine_similarity(*grads, dim=0) > 0.9999
    with torch.no_grad():
        assert (out - stack(x, Causal())).abs().max() > 1e-6  # bfloat16 it was


@pytest.mark.parametrize("attend", [None, kernel, lambda number: StateSpace(D, causal=True, state=3)])
def test_step_by_step_equals_the_whole(attend: Callable[[int], Any] | None) -> None:
    stack, x = make(attend=attend).eval(), inputs()
    with torch.no_grad():
        whole = stack(x, Causal())
        states = stack.start(None, None, x)
        parts = [stack.read(x[:, :4], states), *(stack.step(x[:, place : place + 1], states) for place in range(4, T))]
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-9)


CONFIG: dict[str, Any] = {
    "layers": 3,
    "width": 24,
    "heads": 2,
    "feed_forward": 37,
    "max_length": 71,
    "reversible": True,
}


@pytest.mark.parametrize("attention", ["exact", "reformer"])
def test_a_language_model_of_reversible_blocks_learns_and_writes(attention: str) -> None:
    torch.manual_seed(1)
    model = GPT(LlamaConfig(**CONFIG, dropout=0.1, attention=attention), 29)
    batch = text_batch([[1, 4, 6, 8, 5, 2], [1, 7, 3, 2]])
    optimiser, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for step in range(12):
        with noise(0, step, 0):
            loss = model(batch).objective(batch.counts)
        optimiser.zero_grad()
        loss.backward()
        assert all(each.grad is not None for each in model.parameters())
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    model = model.double().eval()
    ids = torch.randint(29, (3, 13), generator=torch.Generator().manual_seed(2))
    for context in (torch.no_grad(), nullcontext()):  # with and without the weights gathered for steps
        with context:
            whole = model.output(model.read(ids))
            logits, state = model.start(None, ids[:, :5])
            assert torch.allclose(logits[:, 0], whole[:, 4], atol=1e-9)
            for place in range(5, 13):
                logits, state = model.step(ids[:, place : place + 1], state)
                assert torch.allclose(logits[:, 0], whole[:, place], atol=1e-9)


def block_with(**changes: Any) -> Block:
    parts: dict[str, Any] = {
        "cross": None,
        "feed_forward": FeedForward(D, 7),
        "order": "pre",
        "residual": True,
    } | changes

    def around() -> Residual:
        return Residual(make_norm("layer", D, 1e-5), 0.0, order=parts["order"], residual=parts["residual"])

    return Block(MultiHead(D, H, role="causal"), parts["cross"], parts["feed_forward"], around)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"order": "post"}, "model.norm = pre"),
        ({"order": "none"}, "model.norm = pre"),
        ({"residual": False}, "model.residual = true"),
        ({"cross": MultiHead(D, H, role="cross")}, "model.reversible = false"),
        ({"feed_forward": Experts(D, 3, 2, lambda: FeedForward(D, 7))}, "model.experts = 0"),
    ],
)
def test_what_cannot_be_reversed_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Stack([block_with(**changes)], reversible=True)
    Stack([block_with(**changes)])


def test_models_refuse_it_when_they_are_built() -> None:
    with pytest.raises(UsageError, match=r"model\.experts = 0"):
        GPT(LlamaConfig(**CONFIG, experts=3), 29)
    with pytest.raises(UsageError, match=r"model\.norm = pre"):
        Bert(BertConfig(**CONFIG), 29)
    with balance_terms() as terms:
        GPT(LlamaConfig(**CONFIG), 29)(text_batch([[1, 4, 2]]))
    assert not terms
