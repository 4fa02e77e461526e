"""Steps over gathered weights give what the modules give, and what is recorded is what the modules did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.blocks.norm import RMSNorm
from regard.models.config import GPT1Config, GPT2Config, GPT3Config, GPTConfig, LlamaConfig
from regard.models.fast_step import step_weights
from regard.models.gpt import GPT

V = 23
KINDS: dict[str, GPTConfig] = {
    "gpt1": GPT1Config(layers=2, width=12, heads=3, feed_forward=20),
    "gpt2": GPT2Config(layers=2, width=12, heads=3, feed_forward=20),
    "gpt2 without biases": GPT2Config(layers=2, width=12, heads=3, feed_forward=20, bias=False),
    "gpt2 without norms": GPT2Config(layers=2, width=12, heads=3, feed_forward=20, norm="none", tied=False),
    "gpt3": GPT3Config(layers=4, width=12, heads=3, feed_forward=20, band=3),
    "llama": LlamaConfig(layers=2, width=24, heads=6, groups=2, feed_forward=20),
    "llama, one key for all heads": LlamaConfig(layers=2, width=24, heads=6, groups=1, feed_forward=20),
    "llama with biases": LlamaConfig(layers=2, width=24, heads=6, feed_forward=20, bias=True),
}


def build(config: GPTConfig, **changes: Any) -> GPT:
    torch.manual_seed(3)
    model = GPT(config.model_copy(update=changes), V).double().eval()  # type: ignore[arg-type]
    for parameter in model.parameters():  # norms and biases that do something
        nn.init.normal_(parameter, std=0.4)
    return model


def stepped(model: GPT, ids: Tensor, prompt: int, *, by_modules: bool) -> Tensor:
    """Logits of each step behind a prompt; a recorder sends a model through its modules."""
    logits, state = model.start(None, ids[:, :prompt])
    steps = [logits]
    for column in ids[:, prompt:].split(1, dim=1):
        if by_modules:
            with record(model):
                logits, state = model.step(column, state)
        else:
            logits, state = model.step(column, state)
        steps.append(logits)
    assert (state.weights is None) == by_modules
    return torch.cat(steps, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("prompt", [1, 5, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_gathered_weights_step_as_the_modules_do(kind: str, prompt: int) -> None:
    model = build(KINDS[kind])
    ids = torch.randint(V, (3, 41), generator=torch.Generator().manual_seed(prompt))
    fast, slow = (stepped(model, ids, prompt, by_modules=how) for how in (False, True))
    whole = model.output(model.read(ids))[:, prompt - 1 :]
    assert fast.std() > 0.1
    assert torch.allclose(fast, slow, rtol=0, atol=1e-11)
    assert torch.allclose(fast, whole, rtol=0, atol=1e-11)


@torch.no_grad()
def test_hypotheses_that_branch_take_the_weights_along() -> None:
    model = build(KINDS["llama"])
    ids = torch.randint(V, (2, 6), generator=torch.Generator().manual_seed(1))
    _, state = model.start(None, ids[:, :4])
    _, state = model.step(ids[:, 4:5], state)
    gathered = state.weights
    state = model.reorder(state, torch.tensor([[0, 0], [0, 0]]))
    logits, state = model.step(torch.tensor([[7, 8], [9, 10]]), state)
    assert state.weights is gathered is not None
    for row, column, token in ((0, 0, 7), (0, 1, 8), (1, 0, 9), (1, 1, 10)):
        alone = torch.cat([ids[row, :5], torch.tensor([token])])[None]
        assert torch.allclose(logits[row, column], model.output(model.read(alone))[0, -1], rtol=0, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_packed_weights_step_as_the_modules_do(kind: str) -> None:
    """In float32, wide enough and with enough rows, oneDNN packs them; also when most rows have ended."""
    config = KINDS[kind].model_copy(update={"width": 192, "heads": 6, "groups": 3, "feed_forward": 768})
    torch.manual_seed(5)
    model = GPT(config, 800).eval()
    ids = torch.randint(800, (6, 12), generator=torch.Generator().manual_seed(2))
    whole = model.output(model.read(ids))  # (6, 12, V)
    _, state = model.start(None, ids[:, :8])
    for place in range(8, 12):
        logits, state = model.step(ids[:, place : place + 1], state)
        assert torch.allclose(logits[:, 0], whole[:, place], rtol=0, atol=1e-5)
        if place == 9:
            rows = torch.tensor([1, 4])
            ids, whole, state = ids[rows], whole[rows], model.keep(state, rows)


def test_what_the_gathering_does_not_know_goes_through_modules() -> None:
    model = build(KINDS["llama"], experts=3)
    assert step_weights(list(model.blocks), model.norm, model.output, 1) is None
    ids = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = stepped(model, ids, 4, by_modules=True)
        _, state = model.start(None, ids[:, :4])
        plain, _ = model.step(ids[:, 4:5], state)
        assert torch.allclose(plain[:, 0], logits[:, 1], rtol=0, atol=1e-11)


def test_a_step_that_is_differentiated_goes_through_modules() -> None:
    model = build(KINDS["gpt2"])
    with torch.no_grad():
        _, state = model.start(None, torch.tensor([[1, 2]]))
    logits, state = model.step(torch.tensor([[3]]), state)
    assert state.weights is None
    logits.sum().backward()
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if "blocks.1" in name)


@torch.no_grad()
def test_weights_that_change_between_two_texts_are_seen() -> None:
    """Nothing is kept on the model: a text that starts after an update has the new weights."""
    model, ids = build(KINDS["gpt2"]), torch.tensor([[4, 5, 6]])
    before = stepped(model, ids, 1, by_modules=False)
    model.blocks[0].attention.query.weight.mul_(2)  # type: ignore[union-attr,operator]
    after = stepped(model, ids, 1, by_modules=False)
    assert not torch.allclose(before, after)
    assert torch.allclose(after, model.output(model.read(ids)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 33), (1, 1)])
@pytest.mark.parametrize("epsilon", [1e-5, 0.3])
def test_the_fast_root_mean_square_norm_is_torchs_own(shape: tuple[int, ...], epsilon: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x, wanted = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    found = []
    for kind in (nn.RMSNorm, RMSNorm):
        norm = kind(shape[-1], eps=epsilon).double()
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(-1, 2, shape[-1]))
        y = x.clone().requires_grad_()
        out = norm(y)
        out.backward(wanted)
        found.append((out.detach(), y.grad, norm.weight.grad))
    for own, torchs in zip(*found, strict=True):
        assert own is not None and torchs is not None
        assert torch.allclose(own, torchs, rtol=0, atol=1e-12)


def test_the_fast_norm_passes_the_gradient_check() -> None:
    norm = RMSNorm(6, eps=1e-3).double()
    nn.init.normal_(norm.weight)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (x,))
