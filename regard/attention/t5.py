"""Positions by buckets of distance (Raffel et al. 2020, section 2.1): one learned number for each bucket and head.

Near distances have a bucket each, farther ones share buckets whose size grows with the logarithm, and from FARTHEST on
all are one: any length can be read. T5 does not divide products by √E, its weights were made for that; ours are divided
as everywhere, and the number is added after.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.distances import text_distances
from regard.attention.relative import Relative

BUCKETS = 32
FARTHEST = 128  # from here on all is one bucket
SPREAD = 0.02  # of a fresh table


def bucket_of(distance: int, *, causal: bool) -> int:
    """The bucket of s - t: half of the buckets for exact distances, half up to FARTHEST by the logarithm.

    If both sides are seen, each has half of all buckets; if not, what comes later is as the query itself.
    """
    count = BUCKETS if causal else BUCKETS // 2
    first = 0 if causal or distance <= 0 else count
    far = max(0, -distance) if causal else abs(distance)
    exact = count // 2
    if far < exact:
        return first + far
    share = 0  # log(far / exact) / log(FARTHEST / exact) in steps of 1 / exact, rounded down; in integers, so exactly
    while share < exact - 1 and far**exact * exact ** (share + 1) >= FARTHEST ** (share + 1) * exact**exact:
        share += 1
    return first + exact + share


class T5(Relative):
    """A table of one number for each bucket and head."""

    buckets: Tensor

    def __init__(self, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(BUCKETS, heads))
        nn.init.normal_(self.table, std=SPREAD)
        known = range(-FARTHEST, 1 if causal else FARTHEST + 1)
        self.right = 0 if causal else FARTHEST
        found = torch.tensor([bucket_of(distance, causal=causal) for distance in known])
        self.register_buffer("buckets", found, persistent=False)

    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        apart = text_distances(q.size(-2), keys, start, q.device).clamp(-FARTHEST, self.right)  # (T, S)
        each = self.table.T[:, self.buckets].to(q.dtype)  # (H, distances)
        chosen = each.index_select(1, (apart + FARTHEST).flatten())
        return chosen.view(1, -1, *apart.shape)  # (1, H, T, S)
