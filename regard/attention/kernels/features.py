"""Features φ of queries and keys, of which attention in linear time takes products φ(q)·φ(k) for weights.

    elu:     φ(x) = elu(x) + 1                                            (Katharopoulos et al. 2020, eq. 7)
    random:  φ(x) = exp(w·x - |x|²/2) / √M, M directions w, x over E^¼    (Choromanski et al. 2021, lemma 1: FAVOR+)

The mean of the random φ(q)·φ(k) over directions is exp(q·k / √E), what softmax weighs with. Both are positive, so each is
told by its logarithm: the exponential is taken where it is known what it is divided by (`prefix.py`).
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Features(Protocol):
    """A positive feature map, and its gradient."""

    def count(self, width: int) -> int:
        """M, for vectors of this width."""
        ...

    def logs(self, x: Tensor) -> Tensor:
        """ln φ of vectors (.., E): (.., M)."""
        ...

    def back(self, x: Tensor, d_logs: Tensor) -> Tensor:
        """The gradient of x, given that of `logs(x)`."""
        ...


class Elu:
    """ln (elu(x) + 1): x itself below zero, ln (1 + x) above."""

    def count(self, width: int) -> int:
        return width

    def logs(self, x: Tensor) -> Tensor:
        return x.clamp(max=0) + x.clamp(min=0).log1p()

    def back(self, x: Tensor, d_logs: Tensor) -> Tensor:
        return d_logs / (x.clamp(min=0) + 1)


class Exponentials:
    """ln φ(x) = w·x / E^¼ - |x|² / 2√E - ln √M, for directions w (M, E)."""

    def __init__(self, directions: Tensor) -> None:
        count, width = directions.shape
        ones, constants = directions.new_ones(count, 1), directions.new_full((count, 1), -math.log(count) / 2)
        self.scale = 1 / math.sqrt(width)
        self.matrix = torch.cat([directions / width**0.25, ones, constants], dim=1)  # (M, E + 2)

    def count(self, width: int) -> int:
        return len(self.matrix)

    def logs(self, x: Tensor) -> Tensor:
        squares = (x * x).sum(dim=-1, keepdim=True) * (-self.scale / 2)
        return torch.cat([x, squares, torch.ones_like(squares)], dim=-1) @ self.matrix.T

    def back(self, x: Tensor, d_logs: Tensor) -> Tensor:
        d = d_logs @ self.matrix[:, :-1]  # (.., E + 1)
        return torch.addcmul(d[..., :-1], x, d[..., -1:], value=-self.scale)


def directions(count: int, width: int, *key: int, orthogonal: bool = True) -> Tensor:
    """`count` Gaussian directions of a head's width, a function of `key` alone: (M, E), in float64.

    Orthogonal ones (section 3.3 of the paper) stand at right angles to the others of their block of E, each as long as an
    independent Gaussian vector: each alone is still Gaussian, so nothing is biased, and together they err less.
    """
    generator = np.random.default_rng(key)
    drawn = generator.standard_normal((count, width))
    if not orthogonal:
        return torch.from_numpy(drawn)
    lengths = np.linalg.norm(drawn, axis=1, keepdims=True)
    blocks = [_rotation(generator, width) for _ in range(-(-count // width))]
    return torch.from_numpy(np.concatenate(blocks)[:count] * lengths)


def _rotation(generator: np.random.Generator, width: int) -> np.ndarray:
    """A random orthogonal matrix, uniform: QR alone is not, until the signs of R's diagonal are made positive."""
    q, r = np.linalg.qr(generator.standard_normal((width, width)))
    return q * np.sign(np.diagonal(r))


def usual_count(width: int) -> int:
    """Of order E ln E (theorem 4 of the paper), as a multiple of 8."""
    return max(8, round(width * math.log(width) / 8) * 8)
