"""Linear attention (Katharopoulos et al. 2020) and Performer (Choromanski et al. 2021): φ(q)·φ(k) in place of exp(q·k)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.attend import masked_softmax
from regard.attention.kernels.features import (
    Elu,
    Exponentials,
    Features,
    FeatureSums,
    attend_all,
    attend_before,
    directions,
    go_on,
    usual_count,
)
from regard.attention.kernels.kernel import Kernel, Placement, Support
from regard.attention.masks import Causal, Lengths, Mask
from regard.noise import step_of_training


@dataclass
class FeatureState:
    """Sums over all that was read: as large after a thousand positions as after one."""

    top: Tensor  # (N, H, 1, M): see `FeatureSums`
    sums: Tensor  # (N, H, M, E + 1)
    filled: int = 0

    def select(self, rows: Tensor) -> FeatureState:
        return FeatureState(self.top.index_select(0, rows), self.sums.index_select(0, rows), self.filled)


class ByFeatures(Kernel):
    """A kernel whose weights are φ(q)·φ(k) over their sum. Exponentials and sums are float32 at least."""

    supports = Support(causal=True, both_sides=True, padding=True, cross=True, cache=True)

    @abstractmethod
    def features(self, like: Tensor) -> Features:
        """φ, with the type and device of `like`."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        look = attend_before if self.causal else attend_all
        hidden = None
        if lengths is not None:
            hidden = ~Lengths(lengths).dense(1, k.size(2), k.device).mT  # (B, 1, S, 1)
            k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
            hidden = hidden.expand(*k.shape[:3], 1).flatten(0, 1)  # (B * H, S, 1)
        with torch.autocast(q.device.type, enabled=False):
            out = look(_flat(q), _flat(k), _flat(v), self.features(_wide(q)), hidden)
        return out.unflatten(0, q.shape[:2]).to(v.dtype)

    def weights(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        """By the definition, all pairs, in float64: the scores are ln φ(q)·φ(k)."""
        with torch.autocast(q.device.type, enabled=False):
            features = self.features(q.double())
            log_q, log_k = features.logs(q.double()), features.logs(k.double())
            high_q, high_k = log_q.amax(dim=-1, keepdim=True), log_k.amax(dim=-1, keepdim=True)
            scores = ((log_q - high_q).exp() @ (log_k - high_k).exp().mT).log() + high_k.mT  # (B, H, T, S)
        return masked_softmax(scores, self._mask(lengths)).to(q.dtype)

    def start(self, rows: int, like: Tensor) -> FeatureState:
        if not self.causal:
            self.refuse("go on token by token when it looks to both sides")
        like, heads, width = _wide(like), self.placement.heads, self.placement.head_width
        past = FeatureSums.empty(rows * heads, self.features(like).count(width), width, like)
        return FeatureState(*(part.unflatten(0, (rows, heads)) for part in past))

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: FeatureState) -> Tensor:
        return self.read(q, k, v, state)

    def read(self, q: Tensor, k: Tensor, v: Tensor, state: FeatureState) -> Tensor:
        past = FeatureSums(state.top.flatten(0, 1), state.sums.flatten(0, 1))
        with torch.autocast(q.device.type, enabled=False):
            out, past = go_on(_flat(q), _flat(k), _flat(v), self.features(_wide(q)), past)
        state.top, state.sums = (part.unflatten(0, q.shape[:2]) for part in past)
        state.filled += q.size(2)
        return out.unflatten(0, q.shape[:2]).to(v.dtype)

    def _mask(self, lengths: Tensor | None) -> Mask | None:
        if lengths is None:
            return Causal() if self.causal else None
        return Causal() & Lengths(lengths) if self.causal else Lengths(lengths)


class Linear(ByFeatures):
    """φ(x) = elu(x) + 1, as wide as a head."""

    name = "linear"

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)

    def features(self, like: Tensor) -> Features:
        return Elu()


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _flat(x: Tensor) -> Tensor:
    return _wide(x).flatten(0, 1)  # (B * H, T, E)


class Performer(ByFeatures):
    """`features`: M, 0 for the paper's order of E ln E. `redraw`: after how many steps of training, 0 for never.

    Directions are a function of the block's seed and of `draw`, a number that is saved with the weights.
    """

    name = "performer"
    draw: Tensor

    def __init__(self, placement: Placement, features: int = 0, redraw: int = 1000) -> None:
        super().__init__(placement)
        self.count, self.redraw = features or usual_count(placement.head_width), redraw
        self.register_buffer("draw", torch.zeros((), dtype=torch.int64))
        self._drawn: dict[tuple[int, torch.dtype, torch.device], Features] = {}

    def features(self, like: Tensor) -> Features:
        step = step_of_training()
        if self.training and self.redraw and step is not None:
            self.draw.fill_(step // self.redraw)
        key = (int(self.draw), like.dtype, like.device)
        if key not in self._drawn:
            drawn = directions(self.count, self.placement.head_width, self.placement.seed, key[0])
            self._drawn = {known: kept for known, kept in self._drawn.items() if known[0] == key[0]}
            self._drawn[key] = Exponentials(drawn.to(like))
        return self._drawn[key]
