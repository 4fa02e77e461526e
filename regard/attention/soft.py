"""Attention of one head with any score, the recurrent decoders' way (Bahdanau et al. 2015, eq. 5 and 6):

    weights = softmax(score(q, k) / temperature),   context = Σ weights · annotation

and the same with a learned query: attention pooling, which makes one vector of a sequence. A decoder looks everywhere, or in a
window around a position p (Luong et al. 2015, section 3.2):

    local-m   p = t: the same position as in the target, at most the last one of the source
    local-p   p = S sigmoid(v · tanh(W q)): a predicted position; weights fall off around it by exp(-(s - p)² / 2 (D/2)²)

The window is s from p - D to p + D. With local-p the rows of the weights no longer sum to one, as in the paper.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.attend import masked_softmax
from regard.attention.cache import MemoryKeys
from regard.attention.call import Role, ShownWeights
from regard.attention.changes import changed
from regard.attention.masks import Dense, Mask
from regard.attention.record import report
from regard.attention.scores import Score
from regard.errors import UsageError, nearest


@dataclass(frozen=True)
class LocalKeys:
    """The keys that may be looked at, and the factor (B, T, S) by which weights fall off; None: they do not."""

    mask: Mask | None
    factor: Tensor | None = None


class Place(nn.Module):
    """The base: queries (B, T, Q) at target positions `times` (T,) or (1,) -> where they may look."""

    weakens = False  # whether weights are less than a softmax

    @abstractmethod
    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> LocalKeys: ...


class Everywhere(Place):
    """Global attention."""

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> LocalKeys:
        return LocalKeys(memory.mask)


class SamePosition(Place):
    """local-m."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> LocalKeys:
        real = _real(memory)  # (B, 1, S)
        last = real.sum(dim=-1, keepdim=True) - 1  # (B, 1, 1)
        middle = torch.minimum(times.view(1, -1, 1), last)  # (B, T, 1)
        return LocalKeys(_window(memory, middle, self.reach))


class PredictedPosition(Place):
    """local-p. `mask` and window have no gradient; the fall-off has, and through it the prediction is learned."""

    weakens = True

    def __init__(self, query_width: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.inner, self.outer = nn.Linear(query_width, query_width, bias=False), nn.Linear(query_width, 1, bias=False)

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> LocalKeys:
        length = _real(memory).sum(dim=-1, keepdim=True)  # (B, 1, 1)
        middle = length * self.outer(self.inner(q).tanh()).sigmoid()  # (B, T, 1)
        places = torch.arange(memory.keys.size(1), device=q.device)  # (S,)
        factor = torch.exp(-((places - middle) ** 2) / (2 * (self.reach / 2) ** 2))  # (B, T, S)
        return LocalKeys(_window(memory, middle.detach(), self.reach), factor)


PLACES = ("global", "local-m", "local-p")


def make_place(name: str, query_width: int, reach: int) -> Place:
    """global, local-m or local-p."""
    if name not in PLACES:
        raise UsageError(f"no place {name}", nearest(name, PLACES))
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


@dataclass(frozen=True)
class Look:
    """The contexts and weights of some queries: several at once, or those of one step."""

    context: Tensor  # (B, T, K)
    weights: Tensor  # (B, T, S)
    mask: Mask | None  # what they were allowed to see

    @classmethod
    def stacked(cls, steps: Sequence[Look]) -> Look:
        """Steps of one query each, as one look of all queries."""
        weights = torch.cat([step.weights for step in steps], dim=1)
        mask = steps[0].mask
        if mask is not None and any(step.mask is not mask for step in steps):  # a window that moves
            each = [step.mask.dense(1, weights.size(-1), weights.device) for step in steps if step.mask is not None]
            mask = Dense(torch.cat(each, dim=2))  # (B, 1, T, S)
        return cls(torch.cat([step.context for step in steps], dim=1), weights, mask)


class SoftAttention(nn.Module):
    """Queries (B, T, Q) look at annotations (B, S, K). `place` says how far: everywhere, or in a window."""

    def __init__(
        self, score: Score, *, place: Place | None = None, temperature: float = 1.0, role: Role = "cross"
    ) -> None:
        super().__init__()
        self.score, self.place, self.temperature, self.role = score, place or Everywhere(), temperature, role

    def project(self, vectors: Tensor, mask: Mask | None) -> MemoryKeys:
        """Compute a source's keys once, however often it is looked at."""
        return MemoryKeys(self.score.keys(vectors), vectors, mask)

    def forward(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> Tensor:
        """Contexts (B, T, K) of queries (B, T, Q) at the target positions `times` (T,) or (1,), seen by the recorder."""
        look = self.look(q, memory, times)
        self.report(q, memory, look)
        return look.context

    def look(self, q: Tensor, memory: MemoryKeys, times: Tensor) -> Look:
        """`forward`, not seen by the recorder: a loop over steps reports all of them at its end."""
        near = self.place(q, memory, times)
        mask = self._known(near.mask, memory)
        change = changed(self, self.role)
        temperature = self.temperature * (1.0 if change is None else change.temperature)
        scores = self.score.at(q, memory.keys, times)  # (B, T, S)
        weights = masked_softmax(scores[:, None] / temperature, mask)[:, 0]  # (B, T, S)
        if near.factor is not None:
            weights = weights * near.factor
        if change is not None:  # all queries stand at one time, or each at its own
            weights = change.pinned(change.sharpened(weights)[:, None], int(times[0]), times.numel() == 1, memory.mask)[
                :, 0
            ]
        return self.seen(weights, memory.values, mask)

    def seen(self, weights: Tensor, values: Tensor, mask: Mask | None) -> Look:
        """Mix values (B, S, K) by weights (B, T, S); zeros where someone removed the head."""
        context, change = weights @ values, changed(self, self.role)
        return Look(context if change is None else change.kept(context[:, None])[:, 0], weights, mask)

    def _known(self, mask: Mask | None, memory: MemoryKeys) -> Mask | None:
        """Without the positions that the score does not know."""
        longest, places = self.score.longest, memory.keys.size(1)
        if longest is None or places <= longest:
            return mask
        known = Dense((torch.arange(places, device=memory.keys.device) < longest).view(1, 1, 1, -1))
        return known if mask is None else mask & known

    def report(self, q: Tensor, memory: MemoryKeys, look: Look) -> None:
        """Report a look to the recorder: one head, the steps stacked into one map."""
        heads = [x[:, None] for x in (q, memory.keys, memory.values, look.context)]  # each (B, 1, T or S, ...)
        weights, whole = look.weights[:, None].detach(), not self.place.weakens
        change = changed(self, self.role)
        removed = () if change is None else change.removed(1)
        shown: ShownWeights = {
            "mask": look.mask,
            "reported": weights,
            "sums_to_one": whole,
            "stands_for": lambda: weights,
        }
        q, k, v, out = heads
        report(self, self.role, q, k, v, out, removed=removed, **shown)  # with its score, its map is the exact one


class AttentionPool(nn.Module):
    """One vector of a sequence: annotations (B, S, K) -> (B, K), weighed by a learned query."""

    def __init__(self, score: Score, query_width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(query_width) / query_width**0.5)
        self.attention = SoftAttention(score, role="pool")

    def forward(self, vectors: Tensor, mask: Mask | None = None) -> Tensor:
        memory = self.attention.project(vectors, mask)
        q = self.query.expand(len(vectors), 1, -1)  # (B, 1, Q)
        return self.attention(q, memory, torch.zeros(1, device=vectors.device)).squeeze(1)
