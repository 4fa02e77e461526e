"""Norms of vectors: layer norm (Ba et al. 2016) and root-mean-square norm (Zhang & Sennrich 2019)."""

from __future__ import annotations

from torch import nn


def make_norm(kind: str, width: int, epsilon: float = 1e-5) -> nn.Module:
    """layer: (x - mean) / √(variance + ε) · w + b;   rms: x / √(mean of x² + ε) · w."""
    return nn.RMSNorm(width, eps=epsilon) if kind == "rms" else nn.LayerNorm(width, eps=epsilon)
