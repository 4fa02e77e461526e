"""Norms: layer norm (Ba et al. 2016), RMS norm (Zhang & Sennrich 2019), and batch norm of pictures (Ioffe & Szegedy 2015)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, rms_norm

from regard.errors import RegardError


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


class BatchNorm(nn.Module):
    """(B, C, H, W) -> (B, C, H, W). The running statistics are saved with the weights."""

    mean: Tensor  # (C,)
    variance: Tensor  # (C,)

    def __init__(self, channels: int, *, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels, dtype=torch.float32))
        self.register_buffer("variance", torch.ones(channels, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.size(1):
            raise RegardError(
                "batch norm cannot learn from one picture of 1 x 1: one number has no variance; "
                "use a larger batch, larger pictures or fewer stages"
            )
        return batch_norm(
            x, self.mean, self.variance, self.weight, self.bias, self.training, self.momentum, self.epsilon
        )
