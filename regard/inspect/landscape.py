"""The loss around a trained model: along directions of filters' own lengths, and how sharp the place is.

Filter normalisation (Li et al. 2018, "Visualizing the loss landscape of neural nets", section 4): a random direction d has
for each filter, the weights of one output of a layer, a part of the same norm as the filter itself,

    d_ij  <-  d_ij / ‖d_ij‖ · ‖θ_ij‖          L(α, β) = L(θ + α d + β e),

so that steps mean the same in models whose weights have other scales. Rows of matrices, kernels of convolutions and
vectors of tokens are filters; biases and the weights of norms stay as they are. Two numbers for sharpness:

    rise(r)     the mean of L(θ ± r d) - L(θ) over some directions, at the filter-normalised distance r
    eigenvalues the largest and the smallest of the Hessian of the loss over all weights that learn, by Lanczos' iteration
                with products H v ≈ (∇L(θ + h v) - ∇L(θ - h v)) / 2h in float64. (Power iteration finds neither where
                they are about as large with other signs, as at a saddle.) Where the smallest is far below zero, the
                place is no minimum, and the surface not convex (Li et al. 2018, section 6).

The model is as in evaluation, and the loss is what it learns from, the mean over fixed examples. Its weights are changed
in place, and are afterwards what they were, to the bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.look.landscape import Eigenvalue, Eigenvalues, Surface
from regard.models.operations import in_evaluation

Direction = dict[str, Tensor]  # by the name of a parameter
Advance = Callable[[int, int], None]
RADII = (0.1, 0.25, 0.5, 1.0)
STEP = 1e-4  # h of a Hessian-vector product, for v of length one
ENOUGH = 1e-3  # ‖H v - λ v‖ as a share of the largest eigenvalue, below which it is found


def surface(
    name: str,
    model: nn.Module,
    batches: Sequence[Any],
    *,
    points: int = 21,
    reach: float = 1.0,
    directions: int = 5,
    iterations: int = 20,
    seed: int = 1,
    advance: Advance = lambda done, total: None,
) -> Surface:
    """The loss on these batches in one and two directions, and its sharpness. No `iterations`: no eigenvalues."""
    places = np.linspace(-reach, reach, points)
    total, done = points**2 + 2 * directions * len(RADII) + 2 * iterations, 0

    def seen(value: float) -> float:
        nonlocal done
        done += 1
        advance(done, total)
        return value

    first, second, *others = (filter_direction(model, seed + number) for number in range(max(2, directions)))
    loss = loss_on(model, batches)
    grid = np.array([[seen(loss_at(model, batches, (first, a), (second, b))) for a in places] for b in places])
    line = np.array([loss_at(model, batches, (first, a)) for a in places])
    some = [first, second, *others][:directions]
    rises = {
        radius: float(
            np.mean([seen(loss_at(model, batches, (d, sign * radius))) for d in some for sign in (1, -1)]) - loss
        )
        for radius in RADII
    }
    found = extreme_eigenvalues(model, batches, iterations, seed, lambda: seen(0.0)) if iterations else None
    count = sum(int(dict(batch.counts)["loss"]) for batch in batches)
    return Surface(name, loss, count, places, line, grid, rises, len(some), found)


# --- The loss, and directions


def _objective(model: nn.Module, batches: Sequence[Any], batch: Any) -> Tensor:
    """A batch's part of the mean loss over all of them."""
    totals: dict[str, int] = {}
    for each in batches:
        for name, count in each.counts.items():
            totals[name] = totals.get(name, 0) + count
    found: Tensor = model(batch).objective(totals)
    return found


def loss_on(model: nn.Module, batches: Sequence[Any]) -> float:
    """The mean loss over all examples, the model being as in evaluation."""
    with in_evaluation(model), torch.no_grad():
        return float(sum(float(_objective(model, batches, batch)) for batch in batches))


def filter_direction(model: nn.Module, seed: int) -> Direction:
    """A random direction whose part in each filter is as long as the filter; nothing in biases and norms."""
    random, found = torch.Generator().manual_seed(seed), Direction()
    for name, weight in model.named_parameters():
        if weight.dim() < 2 or not weight.requires_grad:
            continue
        noise = torch.randn(weight.shape, generator=random, dtype=torch.float64)
        own = weight.detach().double().cpu().flatten(1).norm(dim=1)  # (filters,)
        scale = own / noise.flatten(1).norm(dim=1)
        found[name] = (noise * scale.view(-1, *[1] * (weight.dim() - 1))).to(weight)
    return found


@contextmanager
def moved(model: nn.Module, *steps: tuple[Direction, float]) -> Iterator[None]:
    """Inside, the weights are θ + Σ α d."""
    weights = dict(model.named_parameters())
    before = {name: weights[name].detach().clone() for direction, _ in steps for name in direction}
    try:
        with torch.no_grad():
            for direction, distance in steps:
                for name, part in direction.items():
                    weights[name].add_(part, alpha=float(distance))
        yield
    finally:
        with torch.no_grad():
            for name, value in before.items():
                weights[name].copy_(value)


def loss_at(model: nn.Module, batches: Sequence[Any], *steps: tuple[Direction, float]) -> float:
    """L(θ + Σ α d)."""
    with moved(model, *steps):
        return loss_on(model, batches)


# --- The Hessian


def extreme_eigenvalues(
    model: nn.Module,
    batches: Sequence[Any],
    iterations: int,
    seed: int = 1,
    applied: Callable[[], object] = lambda: None,
) -> Eigenvalues:
    """The largest and the smallest eigenvalue of the Hessian over the weights that learn; of a copy in float64."""
    exact, data = copy.deepcopy(model).double(), [in_double(batch) for batch in batches]
    weights = [(name, weight.shape) for name, weight in exact.named_parameters() if weight.requires_grad]

    def apply(flat: Tensor) -> Tensor:
        parts = torch.split(flat, [shape.numel() for _, shape in weights])
        vector = {name: part.view(shape) for (name, shape), part in zip(weights, parts, strict=True)}
        product = hessian_product(exact, data, vector)
        applied()
        return torch.cat([product[name].flatten() for name, _ in weights])

    size, device = sum(shape.numel() for _, shape in weights), next(exact.parameters()).device
    start = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)
    return lanczos(apply, start, iterations)


def lanczos(apply: Callable[[Tensor], Tensor], start: Tensor, iterations: int) -> Eigenvalues:
    """The extreme eigenvalues of a symmetric matrix A that is only applied (Lanczos 1950): A q_j in the basis of q_0 .. q_j.

    Each new vector is made orthogonal to all before it, twice, for rounding loses that. The residual ‖A v - λ v‖ of an
    eigenvalue of the small tridiagonal matrix is the norm of what is left times the last part of its vector.
    """
    basis = [start / start.norm()]
    diagonal, beside = list[float](), list[float]()
    while True:
        product = apply(basis[-1])
        diagonal.append(float(product @ basis[-1]))
        for _ in range(2):
            for each in basis:
                product = product - (product @ each) * each
        beside.append(float(product.norm()))
        small = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
        values, vectors = np.linalg.eigh(small)
        residuals = beside[-1] * np.abs(vectors[-1])
        found = Eigenvalues(
            Eigenvalue(float(values[-1]), float(residuals[-1])),
            Eigenvalue(float(values[0]), float(residuals[0])),
            len(basis),
        )
        enough = ENOUGH * float(np.abs(values).max())
        if len(basis) >= min(iterations, len(start)) or max(residuals[0], residuals[-1]) <= enough:
            return found
        basis.append(product / beside[-1])


def hessian_product(model: nn.Module, batches: Sequence[Any], vector: Direction) -> Direction:
    """H v by central differences of the gradient; v is of length one."""
    ahead, behind = (_gradient_at(model, batches, vector, step) for step in (STEP, -STEP))
    return {name: (ahead[name] - behind[name]) / (2 * STEP) for name in vector}


def _gradient_at(model: nn.Module, batches: Sequence[Any], vector: Direction, step: float) -> Direction:
    weights = dict(model.named_parameters())
    with moved(model, (vector, step)), in_evaluation(model):
        model.zero_grad(set_to_none=True)
        for batch in batches:
            torch.autograd.backward(_objective(model, batches, batch))
        found = {name: weights[name].grad for name in vector}
        model.zero_grad(set_to_none=True)
    return {name: torch.zeros_like(weights[name]) if each is None else each for name, each in found.items()}


def in_double(batch: Any) -> Any:
    """The batch with its pixels and other real numbers in float64."""
    if not is_dataclass(batch) or isinstance(batch, type):
        return batch
    values = {each.name: getattr(batch, each.name) for each in fields(batch) if each.init}
    real = {
        name: value.double()
        for name, value in values.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    return replace(batch, **real)
