"""Short attention by products: output and gradient are those of the plain formula, whatever the mask; so is its precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.attention import Causal, Lengths, Mask, attend, attend_reference
from regard.attention.attend import attend_short

MASKS: dict[str, Tensor | None] = {
    "none": None,
    "causal": torch.ones(5, 7, dtype=torch.bool).tril(2),
    "lengths": (torch.arange(7) < torch.tensor([7, 3])[:, None])[:, None, None],
    "by head": torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.7,
}
for mask in MASKS.values():
    if mask is not None:
        mask[..., 0] = True  # no row is empty


def plain(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """softmax(q kᵀ · scale) v, row by row."""
    rows = []
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            scores = q[b, h] @ k[b, h].T * scale
            if allowed is not None:
                scores = scores.masked_fill(~allowed.expand(*q.shape[:3], k.size(2))[b, h], -math.inf)
            rows.append(torch.exp(scores - scores.logsumexp(dim=-1, keepdim=True)) @ v[b, h])
    return torch.stack(rows).view(*q.shape[:3], v.size(-1))


def drawn() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("name", MASKS)
def test_output_and_gradients_are_those_of_the_formula(name: str) -> None:
    wanted = torch.randn(2, 3, 5, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    found = []
    for function in (attend_short, plain):
        inputs = drawn()
        out = function(*inputs, MASKS[name], 0.7)
        found.append([out, *torch.autograd.grad(out, inputs, wanted)])
    for mine, expected in zip(*found, strict=True):
        assert torch.allclose(mine, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MASKS)
def test_the_gradient_check_passes(name: str) -> None:
    assert torch.autograd.gradcheck(lambda q, k, v: attend_short(q, k, v, MASKS[name], 0.5), drawn())


@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([9, 4]))])
def test_inputs_that_are_views_of_one_projection_give_it_one_gradient(mask: Mask | None) -> None:
    """As queries, keys and values come from one matrix."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 9, 3 * 8, generator=generator, dtype=torch.float64, requires_grad=True)
    found = []
    for function in (attend, attend_reference):
        q, k, v = x.unflatten(-1, (6, 4)).transpose(1, 2).split(2, dim=1)
        out = function(q, k, v, mask=mask).transpose(1, 2).flatten(2)
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        found.append((out.detach(), gradient))
    for mine, expected in zip(*found, strict=True):
        assert torch.allclose(mine, expected, rtol=0, atol=1e-12)


def test_under_autocast_it_learns_in_half_precision() -> None:
    q, k, v = (tensor.detach().float().requires_grad_() for tensor in drawn())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = [tensor.bfloat16() for tensor in (q, k, v)]
        out = attend_short(*half, MASKS["causal"], 0.5)
        out.float().sum().backward()
    exact = plain(q, k, v, MASKS["causal"], 0.5)
    assert torch.allclose(out.float(), exact, atol=0.05)
    assert all(tensor.grad is not None and torch.isfinite(tensor.grad).all() for tensor in (q, k, v))


@pytest.mark.parametrize("how", ["products", "bias", "reference"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_half_precision_are_not_rounded_before_the_softmax(dtype: torch.dtype, how: str) -> None:
    """Scores were rounded to the half precision's numbers: outputs in bfloat16 were off by 0.17, where all but that
    costs 0.008. The reference is the formula in float64, of the same numbers.
    """
    generator = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(2, 3, 101, 16, generator=generator).to(dtype) for _ in range(3))
    q = q * 10
    bias = torch.randn(101, 101, generator=generator) if how == "bias" else None
    scores = q.double() @ k.double().mT / 4 + (0.0 if bias is None else bias.double())
    expected = scores.softmax(dim=-1) @ v.double()
    found = (attend_reference if how == "reference" else attend)(q, k, v, bias=bias)
    assert found.dtype == dtype
    assert float((found.double() - expected).abs().max()) < 2 * torch.finfo(dtype).eps  # 0.016, and 0.002


@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([9, 4]))])
@pytest.mark.parametrize("half", [(), (0, 1), (2,), (0, 1, 2)])
def test_under_autocast_inputs_of_any_types_learn(half: tuple[int, ...], mask: Mask | None) -> None:
    """Of float32 queries, keys and values the forward pass gave bfloat16, and the backward pass failed: "expected m1 and
    m2 to have the same dtype". Backwards inside the block and outside.
    """
    generator = torch.Generator().manual_seed(9)
    inputs = [torch.randn(2, 3, 9, 8, generator=generator, requires_grad=True) for _ in range(3)]
    expected = torch.autograd.grad(attend_reference(*inputs, mask=mask).square().sum(), inputs)
    for inside in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            given = [x.bfloat16() if place in half else x for place, x in enumerate(inputs)]
            loss = attend(*given, mask=mask).float().square().sum()
            found = torch.autograd.grad(loss, inputs) if inside else None
        found = found or torch.autograd.grad(loss, inputs)
        for mine, exact in zip(found, expected, strict=True):
            assert torch.allclose(mine, exact, atol=0.1 if half else 1e-5)


def test_a_second_derivative_is_refused_and_not_wrong() -> None:
    q, k, v = drawn()
    (first,) = torch.autograd.grad(attend_short(q, k, v, None, 1.0).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        first.sum().backward()
