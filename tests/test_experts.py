"""A mixture of experts against a loop over tokens, and the balance term against its formula."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.blocks import Experts, FeedForward, GatedFeedForward, balance_terms
from regard.data.batch import TextBatch, text_batch
from regard.models.config import GPT2Config, LlamaConfig
from regard.models.gpt import GPT

B, T, D, F, N = 3, 7, 10, 11, 5  # N experts
EXACT = 1e-7  # shares of tokens are counted in float32, whatever the model is in


def mixture(used: int, experts: int = N) -> Experts:
    torch.manual_seed(used)
    model = Experts(D, experts, used, lambda: GatedFeedForward(D, F)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


def vectors(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def softmax(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores) / np.exp(scores).sum()


def scores_of(model: Experts, x: Tensor) -> np.ndarray:
    return (x.flatten(0, -2) @ model.router.weight.T).detach().numpy()  # (tokens, experts)


def by_hand(model: Experts, x: Tensor) -> Tensor:
    """Jiang et al. 2024, section 2.1, for one token after the other: the softmax is over the chosen alone.

    Of a single expert it is over all (Fedus et al. 2022, eq. 1 and 2).
    """
    out = torch.zeros_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        scores = (model.router.weight @ x[place]).detach().numpy()
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[: model.used]
        shares = softmax(scores[best]) if model.used > 1 else softmax(scores)[best]
        for share, number in zip(shares, best, strict=True):
            out[place] += share * model.experts[number](x[place])
    return out


@torch.no_grad()
@pytest.mark.parametrize("used", range(1, N + 1))
def test_a_mixture_is_a_loop_over_tokens(used: int) -> None:
    model, x = mixture(used), vectors(B, T, D)
    assert torch.allclose(model(x), by_hand(model, x), rtol=0, atol=1e-12)
    assert torch.allclose(model(x[:1, :1]), by_hand(model, x[:1, :1]), rtol=0, atol=1e-12)


@torch.no_grad()
def test_all_experts_are_a_softmax_mixture() -> None:
    """Jacobs et al. 1991: without a choice, every expert by its probability."""
    model, x = mixture(N), vectors(B, T, D)
    shares = (x @ model.router.weight.T).softmax(dim=-1)  # (B, T, N)
    expected = sum(shares[..., i, None] * expert(x) for i, expert in enumerate(model.experts))
    assert torch.allclose(model(x), expected, rtol=0, atol=1e-12)


def test_a_single_expert_is_weighed_by_its_probability_among_all() -> None:
    """Fedus et al. 2022, eq. 2: so that the router learns from the loss; with one expert in all, a mixture is that expert."""
    model, x = mixture(1), vectors(B, T, D)
    chances = torch.tensor(scores_of(model, x)).softmax(dim=-1)
    best = chances.argmax(dim=1).view(B, T)
    out = model(x)
    for number, place in enumerate(np.ndindex(B, T)):
        expected = chances[number].max() * model.experts[best[place]](x[place])
        assert torch.allclose(out[place], expected, rtol=0, atol=1e-12)
    out.sum().backward()
    assert model.router.weight.grad is not None and model.router.weight.grad.abs().max() > 1e-3
    alone = mixture(1, experts=1)
    assert torch.allclose(alone(x), alone.experts[0](x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("used", [0, N + 1])
def test_as_many_experts_as_there_are(used: int) -> None:
    with pytest.raises(ValueError, match=f"{used} experts for each token of {N}; choose from 1 to {N}"):
        mixture(used)


# --- Gradients


def test_gradients_are_those_of_the_loop() -> None:
    model, x, direction = mixture(2), vectors(B, T, D), vectors(B, T, D, seed=2)
    parameters = list(model.parameters())
    found = torch.autograd.grad((model(x) * direction).sum(), parameters, allow_unused=True)
    values = [[(y * direction[place]).sum() for y in experts_of(model, x[place])] for place in np.ndindex(B, T)]
    total = torch.zeros(())
    for place, each in zip(np.ndindex(B, T), values, strict=True):
        scores = model.router.weight @ x[place]
        best = scores.argsort(descending=True)[:2]
        first = 1 / (1 + torch.exp(scores[best[1]] - scores[best[0]]))  # the softmax of two numbers
        total = total + first * each[int(best[0])] + (1 - first) * each[int(best[1])]
    expected = torch.autograd.grad(total, parameters, allow_unused=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours is not None and theirs is not None and ours.abs().max() > 0
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-11)


def experts_of(model: Experts, x: Tensor) -> list[Tensor]:
    return [expert(x) for expert in model.experts]


def test_only_used_experts_learn() -> None:
    model, x = mixture(2), vectors(1, 2, D)
    chosen = set(np.argsort(-scores_of(model, x), axis=1)[:, :2].flatten().tolist())
    assert 2 <= len(chosen) < N
    (model(x) ** 2).sum().backward()
    assert model.router.weight.grad is not None
    learning = {i for i in range(N) if model.router.weight.grad[i].any()}
    assert learning == chosen
    for number, expert in enumerate(model.experts):
        gradients = [parameter.grad is not None and bool(parameter.grad.any()) for parameter in expert.parameters()]
        assert gradients == [number in chosen] * len(gradients)


# --- Balance


def balance_of(model: Experts, x: Tensor) -> float:
    """Fedus et al. 2022, eq. 4 to 6: N Σ f_i P_i, f over all choices so that it sums to 1."""
    scores = scores_of(model, x)
    sent, likely = np.zeros(len(model.experts)), np.zeros(len(model.experts))
    for row in scores:
        likely += softmax(row) / len(scores)
        for number in np.argsort(-row)[: model.used]:
            sent[number] += 1 / (len(scores) * model.used)
    return float(len(model.experts) * (sent * likely).sum())


@pytest.mark.parametrize("used", range(1, N + 1))
def test_balance_is_its_formula(used: int) -> None:
    model, x = mixture(used), vectors(B, T, D)
    with balance_terms() as found:
        model(x)
        model(x[:1])
    assert [term.item() for term in found] == pytest.approx([balance_of(model, x), balance_of(model, x[:1])], abs=EXACT)


def test_balance_is_one_where_all_are_used_alike() -> None:
    """Each token goes to an expert of its own, as the router is a multiple of the identity; then to one for all."""
    model = Experts(N, N, 1, nn.Identity).double()
    model.router.weight.data = 9 * torch.eye(N, dtype=torch.float64)
    with balance_terms() as found:
        model(torch.eye(N, dtype=torch.float64)[None])
        model(torch.eye(N, dtype=torch.float64)[None, :1].expand(1, N, N))
    assert found[0].item() == pytest.approx(1.0, abs=EXACT)
    assert found[1].item() == pytest.approx(N / (1 + (N - 1) * np.exp(-9)), abs=EXACT)


def test_balance_teaches_the_router_to_spread() -> None:
    """Going down the balance term alone, from a router that sends all to one expert, brings it near 1."""
    model = mixture(1)
    x = vectors(1, 101, D) + 1
    model.router.weight.data = vectors(N, D, seed=3) * 0.1
    model.router.weight.data[2] += 0.5
    terms = []
    for _ in range(150):
        with balance_terms() as found:
            model(x)
        (gradient,) = torch.autograd.grad(found[0], [model.router.weight])
        model.router.weight.data -= 0.3 * gradient
        terms.append(found[0].item())
    assert terms[0] > 2
    assert min(terms[-20:]) < 1.2


def test_terms_are_told_only_to_who_asks() -> None:
    """Outside nothing is kept; blocks inside one another and other threads have lists of their own."""
    model, x = mixture(2), vectors(B, T, D)
    with balance_terms() as outer:
        with balance_terms() as inner:
            model(x)
        other = threading.Thread(target=model, args=(x,))
        other.start()
        other.join()
        assert (len(outer), len(inner)) == (0, 1)
        model(x)
        assert (len(outer), len(inner)) == (1, 1)
    model(x)
    assert (len(outer), len(inner)) == (1, 1)


# --- In a language model

VOCABULARY = 13


def language_model(kind: type[GPT2Config] | type[LlamaConfig] = LlamaConfig, **changes: Any) -> GPT:
    torch.manual_seed(6)
    sizes: dict[str, Any] = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 7, "experts": 4, "experts_used": 2}
    model = GPT(kind(**sizes | changes), VOCABULARY, smoothing=0.1).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def batch() -> TextBatch:
    generator = np.random.default_rng(4)
    return text_batch([generator.integers(0, VOCABULARY, 9) for _ in range(3)])


@pytest.mark.parametrize("weight", [0.0, 0.01, 2.5])
@pytest.mark.parametrize("kind", [GPT2Config, LlamaConfig])
def test_the_loss_of_a_batch_has_the_mean_balance_with_its_weight(kind: Any, weight: float) -> None:
    """Divided by the count, as the loop does, the loss is cross-entropy + weight · (mean of the blocks' terms)."""
    model, data, inputs = language_model(kind, balance=weight).train(), batch(), []
    for block in model.blocks:
        block.feed_forward.register_forward_hook(lambda module, given, _: inputs.append((module, given[0])))
    part = model(data).parts["loss"]
    expected = sum(balance_of(module, x) for module, x in inputs) / 2
    assert len(inputs) == 2
    logits = model.output(model.read(data.ids[:, :-1]))
    entropy = cross_entropy(logits.flatten(0, 1), data.ids[:, 1:].flatten(), label_smoothing=0.1)
    assert (part.sum / part.count).item() == pytest.approx(
        entropy.item() + weight * expected, abs=weight * EXACT + 1e-12
    )
    assert model(data).parts["nll"].sum.item() == pytest.approx(
        cross_entropy(logits.flatten(0, 1), data.ids[:, 1:].flatten(), reduction="sum").item(), rel=1e-12
    )


def test_balance_reaches_routers_through_the_loss() -> None:
    gradients = []
    for weight in (0.0, 1.0):
        model = language_model(balance=weight).train()
        part = model(batch()).parts["loss"]
        (part.sum / part.count).backward()
        gradients.append([block.feed_forward.router.weight.grad for block in model.blocks])
    model = language_model()
    with balance_terms() as terms:
        model.read(batch().ids[:, :-1])
    (sum(terms) / len(terms)).backward()
    for without, with_, block in zip(*gradients, model.blocks, strict=True):
        assert torch.allclose(with_ - without, block.feed_forward.router.weight.grad, rtol=0, atol=1e-12)
        assert block.feed_forward.router.weight.grad.abs().max() > 1e-6


def test_a_model_without_experts_has_no_balance() -> None:
    model = language_model(experts=0, balance=5.0).eval()
    parts = model(batch()).parts
    assert parts["loss"].sum.item() == pytest.approx(parts["nll"].sum.item(), rel=1e-12)
    assert all(isinstance(block.feed_forward, GatedFeedForward) for block in model.blocks)
    plain = language_model(GPT2Config, experts=0)
    assert all(isinstance(block.feed_forward, FeedForward) for block in plain.blocks)
