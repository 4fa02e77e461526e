"""Batch norm of pictures (Ioffe & Szegedy 2015, algorithms 1 and 2), by channel:

    y = (x - mean) / √(variance + ε) · weight + bias

In training mean and variance are the batch's own, and running ones follow them: m ← 0.9 m + 0.1 (the batch's), the
variance with n - 1 below the sum. In evaluation the running ones are used, so that a picture is seen alike in any
company. In training it is not: micro-batches do not add up to exactly the gradient of one large batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from regard.errors import RegardError


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
