"""Attention with linear biases (Press et al. 2022): the farther a key, the lower its score; nothing is learned.

    score_ts = q_t · k_s / √E - m_h |t - s|,   m_h = 2^(-8h / H) for heads h = 1 .. H

The paper is causal. Where both sides are seen, ours is symmetric, so that left and right are not told apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.distances import text_distances
from regard.attention.relative import Relative


def slopes(heads: int) -> list[float]:
    """m of each head: a geometric row if their number is a power of two.

    If not, the row of the next smaller power of two, then every second of the next larger one's, as the paper's code.
    """
    below = 2 ** (heads.bit_length() - 1)
    own = [2 ** (-8 * head / below) for head in range(1, below + 1)]
    between = [2 ** (-4 * head / below) for head in range(1, 2 * below + 1, 2)]
    return own + between[: heads - below]


class ALiBi(Relative):
    """No parameters; slopes are computed from the number of heads."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = slopes(heads)

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        exact = torch.promote_types(q.dtype, torch.float32)
        apart = text_distances(q.size(-2), keys, start, q.device).abs().to(exact)  # (T, S)
        steep = torch.tensor(self.slopes, dtype=exact, device=q.device)[:, None, None]
        return (-steep * apart).to(q.dtype)[None]  # (1, H, T, S)
