"""Norms of vectors: layer norm (Ba et al. 2016) and root-mean-square norm (Zhang & Sennrich 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm


class RMSNorm(nn.RMSNorm):
    """x / √(mean of x² + ε) · w: torch's own, whose backward pass is several times faster here on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        slow = x.device.type != "cpu" or torch.compiler.is_compiling() or x.dtype != self.weight.dtype
        if slow or not (torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)):
            return rms_norm(x, list(self.normalized_shape), self.weight, self.eps)
        return _RMSNorm.apply(x, self.weight, self.eps)


class _RMSNorm(torch.autograd.Function):
    """With r = 1 / √(mean of x² + ε), n = x r and h = w ∘ g of the gradient g:  dx = r (h - n mean(h ∘ n)).

    That is what layer norm's fused kernel computes for a mean of zero, but for the mean of h that it takes off, which is
    put back: mean(h) = g · w / D.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        width = x.size(-1)
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
        inverse = size.square_().div_(width).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, inverse, weight)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, inverse, weight = ctx.saved_tensors
        gradient, width = gradients[0], x.size(-1)
        dx, dw, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, x, [width], torch.zeros_like(inverse), inverse, weight, None, [True, True, False]
        )
        mean = (gradient @ weight)[..., None].div_(width)  # (..., 1)
        return dx.add_(mean * inverse), dw, None


def make_norm(kind: str, width: int, epsilon: float = 1e-5) -> nn.Module:
    """layer: (x - mean) / √(variance + ε) · w + b;   rms: x / √(mean of x² + ε) · w."""
    return RMSNorm(width, eps=epsilon) if kind == "rms" else nn.LayerNorm(width, eps=epsilon)
