"""Reformer's attention by hashing (Kitaev et al. 2020, section 2): a query looks at keys with the same hash.

Queries and keys are the same vectors; keys have length one: k_j = q_j / |q_j|. A query sees itself only if there is
nothing else to see. With P_r(i) the keys that query i sees in round r of hashing, and P(i) all of them, each once,

    out_i = Σ_{j ∈ P(i)} exp(q_i · k_j / √E - z_i) v_j,   z_i = log Σ_{j ∈ P(i)} exp(q_i · k_j / √E)

Rounds are joined by their z; the paper divides a key that N rounds have found by N (appendix A, eq. 5 and 6), here the
first of these rounds counts it, which is the same sum.

The paper sorts positions by bucket, cuts that line into chunks of m, and lets a chunk see itself and the one before.
Where the cuts fall then depends on all positions, later ones too. Here P_r(i) is the last m of i's own bucket, i
among them (to both sides: those fewer than m away). They always lie within the same two (three) chunks, so the cost is the
paper's, and what a query sees depends on nothing that comes after it: a step of decoding sees just the same.
For the same reason the number of buckets, two for every chunk, is that of the longest text and not of this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.cache import StepCache
from regard.attention.kernels.hashing import attend_in_buckets, buckets_of, factors_of, ranks_of
from regard.attention.kernels.kernel import Kernel, Placement, Support
from regard.errors import UsageError
from regard.noise import step_of_training

TINY = 1e-12  # of |q|², where a query is nothing


@dataclass
class ReformerState:
    """All keys and values, and for each bucket a ring of its last positions."""

    past: StepCache
    rings: Tensor  # (N, H, R, buckets, chunk): positions; -1: none yet
    sizes: Tensor  # (N, H, R, buckets): how many positions fell into each

    @property
    def filled(self) -> int:
        return self.past.filled

    def select(self, rows: Tensor) -> ReformerState:
        return ReformerState(self.past.select(rows), self.rings.index_select(0, rows), self.sizes.index_select(0, rows))


class Reformer(Kernel):
    """`buckets` of a hash, even; 0: two for every chunk of the longest text; 1: no hashing, all share one bucket."""

    name = "reformer"
    supports = Support(causal=True, both_sides=True, padding=True, cache=True)
    shares_keys = True

    def __init__(self, placement: Placement, chunk: int = 32, buckets: int = 0, rounds: int = 2) -> None:
        super().__init__(placement)
        if buckets > 1 and buckets % 2:
            raise UsageError(f"a hash has an even number of buckets, not {buckets}; choose {buckets + 1}")
        self.chunk, self.rounds = chunk, rounds
        self.factors = factors_of(buckets or 2 * math.ceil(placement.longest / chunk))
        self.buckets = math.prod(self.factors)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        """`k` is q: keys are made of it here."""
        wide, values = _wide(q), _wide(v)
        if lengths is not None:
            padded = ~_real(q, lengths)[..., None]  # (B, H, T, 1)
            wide, values = wide.masked_fill(padded, 0.0), values.masked_fill(padded, 0.0)
        buckets = self.hashed(wide, lengths)  # (R, B, H, T)
        with torch.autocast(q.device.type, enabled=False):
            out = attend_in_buckets(wide, keys_of(wide), values, buckets, self.buckets + 1, self.chunk, self.causal)
        return out.to(v.dtype)

    def hashed(self, q: Tensor, lengths: Tensor | None) -> Tensor:
        """The bucket of each position in each round, (R, B, H, T); what is padded has one of its own, the last."""
        draw = (step_of_training() if self.training else None) or 0
        found = buckets_of(q, (self.placement.seed, draw), self.factors, self.rounds)
        return found if lengths is None else found.masked_fill(~_real(q, lengths), self.buckets)

    def weights(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._softmax(_wide(q), self.seen(q, lengths), lengths)

    def exact(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return softmax(q kᵀ / √E) where queries are their own keys, of length one, and do not see themselves."""
        q = _wide(q)
        return self._softmax(q, self._allowed(q, lengths), lengths)

    def visible(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Tensor | None:
        """Real positions see all, padded ones nothing: which pairs are left out is no matter of places."""
        if lengths is None:
            return None
        return (torch.arange(queries, device=device) < lengths.to(device)[:, None])[:, None, :, None]  # (B, 1, T, 1)

    def hit_rate(self, q: Tensor, lengths: Tensor | None = None) -> float:
        """The share of exact attention's weight, over all the same keys, that lies on what is seen: 1 is all of it."""
        q = _wide(q)
        real = _real(q, lengths)
        share = (self._softmax(q, self._allowed(q, lengths), lengths) * self._or_itself(self.seen(q, lengths))).sum(-1)
        return float(share[real].mean())

    def seen(self, q: Tensor, lengths: Tensor | None = None) -> Tensor:
        """From the definition: which other positions each query sees, booleans (B, H, T, T)."""
        found = torch.zeros(*q.shape[:3], q.size(2), dtype=torch.bool, device=q.device)
        for buckets in self.hashed(_wide(q), lengths):  # (B, H, T)
            ranks = ranks_of(buckets)
            near = (ranks[..., :, None] - ranks[..., None, :]).abs() < self.chunk
            found |= near & (buckets[..., :, None] == buckets[..., None, :])
        return found & self._allowed(q, lengths)

    def _allowed(self, q: Tensor, lengths: Tensor | None) -> Tensor:
        """Where exact attention looks: at all that is real, and not later if causal, but itself."""
        size = q.size(2)
        all_pairs = torch.ones(size, size, dtype=torch.bool, device=q.device)
        others = all_pairs.tril(-1) if self.causal else ~torch.eye(size, dtype=torch.bool, device=q.device)
        real = _real(q, lengths)
        return others & real[..., None, :] & real[..., :, None]  # (B, H, T, T)

    def _or_itself(self, seen: Tensor) -> Tensor:
        itself = torch.eye(seen.size(-1), dtype=torch.bool, device=seen.device)
        return seen | (itself & ~seen.any(dim=-1, keepdim=True))

    def _softmax(self, q: Tensor, seen: Tensor, lengths: Tensor | None) -> Tensor:
        scores = q @ keys_of(q).mT / math.sqrt(q.size(-1))  # (B, H, T, T)
        weights = scores.masked_fill(~self._or_itself(seen), -math.inf).softmax(dim=-1)
        return weights.masked_fill(~_real(q, lengths)[..., None], 0.0)

    def start(self, rows: int, like: Tensor) -> ReformerState:
        heads, width = self.placement.heads, self.placement.head_width
        sizes = torch.zeros(rows, heads, self.rounds, self.buckets, dtype=torch.long, device=like.device)
        rings = torch.full((*sizes.shape, self.chunk), -1, dtype=torch.long, device=like.device)
        return ReformerState(StepCache.empty(rows, heads, width, like), rings, sizes)

    def read(self, q: Tensor, k: Tensor, v: Tensor, state: ReformerState) -> Tensor:
        if state.filled:
            return super().read(q, k, v, state)
        buckets = self.hashed(_wide(q), None).movedim(0, 2)  # (N, H, R, T)
        state.past.append(keys_of(_wide(q)), v)
        state.sizes.scatter_add_(-1, buckets, torch.ones_like(buckets))
        ranks = ranks_of(buckets)
        late = ranks >= state.sizes.gather(-1, buckets) - self.chunk  # what the rings still hold
        rows, heads, rounds, places = late.nonzero(as_tuple=True)
        state.rings[rows, heads, rounds, buckets[late], ranks[late] % self.chunk] = places
        return self(q, k, v)

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: ReformerState) -> Tensor:
        here = state.filled
        bucket = self.hashed(_wide(q), None).movedim(0, 2)  # (N, H, R, 1)
        state.past.append(keys_of(_wide(q)), v)
        size = state.sizes.gather(-1, bucket)
        state.sizes.scatter_(-1, bucket, size + 1)
        ring = bucket[..., None].expand(*bucket.shape, self.chunk)
        found = state.rings.gather(3, ring).scatter_(4, (size % self.chunk)[..., None], here)
        state.rings.scatter_(3, ring, found)
        places = found.flatten(2)  # (N, H, R * chunk)
        twice = (places[..., :, None] == places[..., None, :]).tril(-1).any(dim=-1)
        seen = (places >= 0) & (places != here) & ~twice
        places = torch.where(seen.any(dim=-1, keepdim=True), places, here).clamp(min=0)  # or itself, once
        seen[..., 0] |= ~seen.any(dim=-1)
        keys, values = (x.gather(2, places[..., None].expand(*places.shape, q.size(-1))) for x in state.past.seen())
        scores = (keys @ q.mT.to(keys.dtype)).mT / math.sqrt(q.size(-1))  # (N, H, 1, R * chunk)
        return (scores.masked_fill(~seen[:, :, None], -math.inf).softmax(dim=-1) @ values).to(v.dtype)


def keys_of(q: Tensor) -> Tensor:
    """q / |q|, which keeps hashing honest: what points alike scores high."""
    return q * torch.rsqrt(q.square().sum(dim=-1, keepdim=True) + TINY)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _real(q: Tensor, lengths: Tensor | None) -> Tensor:
    """Which positions are no padding: (B, H, T)."""
    if lengths is None:
        return torch.ones(q.shape[:3], dtype=torch.bool, device=q.device)
    return (torch.arange(q.size(2), device=q.device) < lengths.to(q.device)[:, None])[:, None].expand(q.shape[:3])
