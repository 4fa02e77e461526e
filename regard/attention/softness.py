"""How softly a decoder looks at its source, changed while a model runs: a temperature, or only the best key (hard).

    with softness(hard=True):
        model.translate("...")

A model is trained with the softness it has; changing it afterwards shows what softness buys. Like the recorder it lives
in a context variable, reaches every family, and costs one comparison when it is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.attend import masked_softmax
from regard.attention.masks import Mask


@dataclass(frozen=True)
class Softness:
    temperature: float = 1.0
    hard: bool = False

    def weights(self, scores: Tensor, mask: Mask | None) -> Tensor:
        """softmax(scores / temperature), or all of the weight on the best key: (B, H, T, S)."""
        weights = masked_softmax(scores / self.temperature, mask)
        return best_only(weights) if self.hard else weights


def best_only(weights: Tensor) -> Tensor:
    """One for the greatest weight of a row (the first of equals), zero for the others; an empty row stays empty."""
    best = torch.zeros_like(weights).scatter_(-1, weights.argmax(dim=-1, keepdim=True), 1.0)
    return best * (weights.sum(dim=-1, keepdim=True) > 0)


_softness: ContextVar[Softness | None] = ContextVar("softness", default=None)


@contextmanager
def softness(temperature: float = 1.0, hard: bool = False) -> Iterator[None]:
    """Inside this block, decoders look at their sources with this softness. Weights are not dropped out then."""
    if temperature <= 0:
        raise ValueError(f"a temperature is more than 0, not {temperature:g}; for the best key only, say hard=True")
    changed = Softness(temperature, hard) if hard or temperature != 1.0 else None
    token = _softness.set(changed)
    try:
        yield
    finally:
        _softness.reset(token)


def softness_of(role: str) -> Softness | None:
    """What was changed, for attention in this role: only the look from a decoder to its source can be."""
    return _softness.get() if role == "cross" else None
