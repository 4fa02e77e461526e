"""Norms: layer norm (Ba et al. 2016), RMS norm (Zhang & Sennrich 2019), and batch norm (Ioffe & Szegedy 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
    """layer: (x - mean) / √(variance + ε) · w + b;   rms: x / √(mean of x² + ε) · w;   batch: as layer, over positions."""
    if kind == "batch":
        return SequenceBatchNorm(width, epsilon=epsilon)
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


_lengths: ContextVar[Tensor | None] = ContextVar("lengths of the rows that are read", default=None)


@contextmanager
def reading_rows(lengths: Tensor | None) -> Iterator[None]:
    """Inside this block batch norm takes its statistics from the first `lengths` (B,) positions of each row."""
    token = _lengths.set(lengths)
    try:
        yield
    finally:
        _lengths.reset(token)


class SequenceBatchNorm(BatchNorm):
    """(B, T, D) -> (B, T, D): each channel by its mean and variance over all real positions of the batch.

    Where layer norm looks at one position, this looks at all (Shen et al. 2020, "PowerNorm", section 3, on why it is worse
    here): in training texts of a batch, and what comes later in a text, change each other. In use the running statistics
    stand for them, and each position is by itself again.
    """

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = self._statistics(x)
        scale = torch.rsqrt(variance + self.epsilon) * self.weight
        return (x * scale + (self.bias - mean * scale)).to(x.dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (D,) of the real positions; the running ones move towards them."""
        lengths, rows = _lengths.get(), x.flatten(0, -2)  # (N, D)
        if lengths is not None and x.dim() == 3 and len(lengths) == len(x):
            rows = x[torch.arange(x.size(1), device=x.device) < lengths.to(x.device)[:, None]]
        if len(rows) < 2:
            raise RegardError("batch norm cannot learn from one token: it has no variance", "use a larger batch")
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        with torch.no_grad():
            self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
            self.variance.lerp_((variance * len(rows) / (len(rows) - 1)).to(self.mean.dtype), self.momentum)
        return mean, variance
