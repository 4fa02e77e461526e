"""How far a decoder's state may look (Luong et al. 2015, section 3.2): everywhere, or in a window around a position p.

    local-m   p = t: the same position as in the target, at most the last one of the source
    local-p   p = S sigmoid(v · tanh(W q)): a predicted position; weights fall off around it by exp(-(s - p)² / 2 (D/2)²)

The window is s from p - D to p + D. With local-p the rows of the weights no longer sum to one, as in the paper.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.cache import MemoryKeys
from regard.attention.masks import Dense, Mask
from regard.errors import UsageError, nearest


@dataclass(frozen=True)
class Near:
    """What may be looked at, and by how much weights fall off: factor (B, T, S), or None for not at all."""

    mask: Mask | None
    factor: Tensor | None = None


class Place(nn.Module):
    """The base: queries (B, T, Q) at target positions `times` (T,) or (1,) -> where they may look."""

    weakens = False  # whether weights are less than a softmax

    @abstractmethod
    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> Near: ...


class Everywhere(Place):
    """Global attention."""

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> Near:
        return Near(memory.mask)


class SamePosition(Place):
    """local-m."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> Near:
        real = _real(memory)  # (B, 1, S)
        last = real.sum(dim=-1, keepdim=True) - 1  # (B, 1, 1)
        middle = torch.minimum(times.view(1, -1, 1), last)  # (B, T, 1)
        return Near(_window(memory, middle, self.reach))


class PredictedPosition(Place):
    """local-p. `mask` and window have no gradient; the fall-off has, and through it the prediction is learned."""

    weakens = True

    def __init__(self, query_width: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.inner, self.outer = nn.Linear(query_width, query_width, bias=False), nn.Linear(query_width, 1, bias=False)

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> Near:
        length = _real(memory).sum(dim=-1, keepdim=True)  # (B, 1, 1)
        middle = length * self.outer(self.inner(q).tanh()).sigmoid()  # (B, T, 1)
        places = torch.arange(memory.keys.size(1), device=q.device)  # (S,)
        factor = torch.exp(-((places - middle) ** 2) / (2 * (self.reach / 2) ** 2))  # (B, T, S)
        return Near(_window(memory, middle.detach(), self.reach), factor)


PLACES = ("global", "local-m", "local-p")


def make_place(name: str, query_width: int, reach: int) -> Place:
    """global, local-m or local-p."""
    if name not in PLACES:
        raise UsageError(f"no place {name}{nearest(name, PLACES)}")
    if name == "local-m":
        return SamePosition(reach)
    return PredictedPosition(query_width, reach) if name == "local-p" else Everywhere()


def _real(memory: MemoryKeys) -> Tensor:
    """Which positions of each source are real: booleans (B, 1, S)."""
    rows, places = memory.keys.shape[:2]
    if memory.mask is None:
        return torch.ones(rows, 1, places, dtype=torch.bool, device=memory.keys.device)
    return memory.mask.dense(1, places, memory.keys.device)[:, 0]


def _window(memory: MemoryKeys, middle: Tensor, reach: int) -> Mask:
    """Real positions at most `reach` from `middle` (B, T, 1)."""
    places = torch.arange(memory.keys.size(1), device=middle.device)
    return Dense((((places - middle).abs() <= reach) & _real(memory))[:, None])  # (B, 1, T, S)
