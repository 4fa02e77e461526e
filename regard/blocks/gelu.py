"""GELU (Hendrycks & Gimpel 2016), x Φ(x), with its derivative computed on the way: on a CPU, erf is what takes the time.

torch computes Φ in the forward pass and again in the backward pass. Here the derivative, Φ(x) + x φ(x), is made while Φ is
at hand, and the backward pass is one product.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SQRT_HALF, DENSITY = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def gelu(x: Tensor) -> Tensor:
    """x Φ(x): torch's own, or on a CPU in training the one below."""
    if x.device.type == "cpu" and torch.is_grad_enabled() and x.requires_grad and not torch.compiler.is_compiling():
        return _Gelu.apply(x)
    return functional.gelu(x)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        below = torch.erf(x * SQRT_HALF).add_(1).mul_(0.5)  # Φ(x): the share of a normal distribution that lies below x
        density = (x * x).mul_(-0.5).exp_().mul_(DENSITY)  # φ(x)
        ctx.save_for_backward(torch.addcmul(below, x, density))
        return below.mul_(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (derivative,) = ctx.saved_tensors
        return gradients[0] * derivative
