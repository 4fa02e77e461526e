"""Muon: a matrix moves along its momentum made orthogonal, so that every direction of it learns at the same pace.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks". With momentum M and gradient G of a matrix:

    M <- μ M + G,   O = orthogonal(G + μ M),   W <- (1 - lr · decay) W - lr · 0.2 √max(rows, columns) · O

The factor gives O the root mean square that an update of Adam usually has, so that one learning rate serves both
(Liu et al. 2025, "Muon is scalable for LLM training", section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.blocks.initialise import PARTS
from regard.models.protocols import HasHiddenMatrices

MOMENTUM = 0.95
A, B, C = 3.4445, -4.7750, 2.0315  # Jordan et al. 2024: steep at zero; singular values end between about 0.7 and 1.2
ITERATIONS = 5
WIDE = 1.5  # columns for each row, from which on iterating on the square of a matrix takes fewer products
GROUP = 2**17  # elements that go through all iterations together: 8 matrices of 128 x 128 take 45 ms where 48 take 55
OUTSIDE = ("output.weight", "head.weight", "follows.weight", "table")  # output layers and learned positions


def orthogonal_reference(x: Tensor) -> Tensor:
    """About U Vᵀ of x = U S Vᵀ, by Newton-Schulz: X <- a X + b (X Xᵀ) X + c (X Xᵀ)² X. x is (..., rows, columns)."""
    x = x / _size(x)  # no singular value is above 1
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = A * x + (B * square + C * square @ square) @ x
    return x


def orthogonal(x: Tensor) -> Tensor:
    """`orthogonal_reference` with fewer products: x (N, rows, columns), rows <= columns.

    In bf16 the square is computed anew in each iteration: rounding makes a square that is carried along indefinite, and the
    iterations diverge.
    """
    x = x / _size(x)
    if x.size(-1) > WIDE * x.size(-2) and x.dtype is not torch.bfloat16:
        return torch.bmm(_product(torch.bmm(x, x.mT)), x)
    few = max(1, GROUP // (x.size(-1) * x.size(-2)))
    return torch.cat([_iterate(group) for group in x.split(few)])


def _iterate(x: Tensor) -> Tensor:
    """All iterations on a few matrices (N, rows, columns), which stay in the processor's cache meanwhile."""
    square = x.new_empty(len(x), x.size(1), x.size(1))  # (N, rows, rows)
    factor, other = torch.empty_like(square), torch.empty_like(x)
    for _ in range(ITERATIONS):
        torch.bmm(x, x.mT, out=square)
        torch.baddbmm(square, square, square, beta=B, alpha=C, out=factor)
        x, other = torch.baddbmm(x, factor, x, beta=A, out=other), x
    return x


def _product(square: Tensor) -> Tensor:
    """The product of the factors M = a + b S + c S² of all iterations, where S = X Xᵀ becomes M S M: (N, rows, rows)."""
    total = None
    for number in range(ITERATIONS):
        factor = torch.baddbmm(square, square, square, beta=B, alpha=C)
        factor.diagonal(dim1=-2, dim2=-1).add_(A)
        total = factor if total is None else torch.bmm(factor, total)
        if number < ITERATIONS - 1:
            square = torch.bmm(factor, torch.bmm(factor, square))
    assert total is not None
    return total


def _size(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp_min(1e-12)  # zeros stay zeros


@dataclass(frozen=True)
class Matrices:
    """One parameter on its way through an update."""

    parameter: Tensor
    update: Tensor  # (parts, rows, columns)
    rate: float
    decay: float

    @property
    def tall(self) -> bool:
        return self.update.size(1) > self.update.size(2)

    def wide(self) -> Tensor:
        return self.update.mT if self.tall else self.update

    def apply(self, direction: Tensor) -> None:
        """Move along a direction that has the shape of `wide()`."""
        scale = 0.2 * math.sqrt(direction.size(-1))
        direction = direction.mT if self.tall else direction
        weight = self.parameter.unflatten(0, (len(direction), -1))  # a view
        if self.decay:
            weight.mul_(1 - self.rate * self.decay)
        weight.add_(direction, alpha=-self.rate * scale)


class Muon(torch.optim.Optimizer):
    """Muon for the groups `hidden`, whose parameters are all matrices, and an Adam for the rest: one optimiser to its user.

    Each of the groups tells in `parts` into how many matrices each of its parameters is cut. `half`: directions are found
    in bf16, as by Jordan et al., which moves them by 2% where the iterations themselves are off by up to 30% (48 matrices
    of 128 x 128, one core with AVX512-BF16: 40 ms become 19).
    """

    def __init__(self, hidden: list[dict[str, Any]], rest: torch.optim.AdamW, *, half: bool = False) -> None:
        self.rest, self.half = rest, half
        super().__init__([*rest.param_groups, *hidden], {"lr": 0.0})
        self.hidden = self.param_groups[len(rest.param_groups) :]
        rest.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.rest.step()
        for alike in _of_equal_shape(self._matrices()):
            stack = torch.cat([each.wide() for each in alike])  # (N, rows, columns)
            half = self.half and stack.dtype is torch.float32
            found = orthogonal(stack.bfloat16() if half else stack).split([len(each.update) for each in alike])
            for each, direction in zip(alike, found, strict=True):
                each.apply(direction)

    def _matrices(self) -> Iterable[Matrices]:
        for group in self.hidden:
            for parameter, parts in zip(group["params"], group["parts"], strict=True):
                if parameter.grad is not None:
                    update = self._with_momentum(parameter, parameter.grad).unflatten(0, (parts, -1))
                    yield Matrices(parameter, update, group["lr"], group["weight_decay"])

    def _with_momentum(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Nesterov's look ahead: the gradient and the momentum that already has it."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        momentum = torch.add(gradient, state["momentum"], alpha=MOMENTUM, out=state["momentum"])
        return torch.add(gradient, momentum, alpha=MOMENTUM)


def _of_equal_shape(matrices: Iterable[Matrices]) -> Iterable[Sequence[Matrices]]:
    """Those that can be stacked, lying or standing: a product of many is faster than many products."""
    found: dict[tuple[int, int], list[Matrices]] = {}
    for each in matrices:
        rows, columns = each.wide().shape[1:]
        found.setdefault((rows, columns), []).append(each)
    return found.values()


def hidden_matrices(model: nn.Module) -> list[str]:
    """Names of the parameters that Muon moves: those the model tells, or all matrices between embeddings and output."""
    if isinstance(model, HasHiddenMatrices):
        return list(model.hidden_matrices())
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() == 2 and id(parameter) not in tables and not name.endswith(OUTSIDE)
    ]


def parts_of(name: str) -> int:
    """How many matrices the parameter of that name holds."""
    layer = name.removesuffix(".weight").rpartition(".")[2]
    return PARTS.get(layer, 1)
