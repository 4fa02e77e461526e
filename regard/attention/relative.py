"""What every relative position is: something that scores know about the way from a query to a key.

A `Relative` adds to the scores (`bias`); `RelativeValues` also add to what is seen (`values`). The way from query t to
key s is its distance in the text, (s - t), or what the data give instead: `distances` (B, T, S), such as steps in a tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Relative(nn.Module, ABC):
    """Positions that a `MultiHead` asks when it scores."""

    @abstractmethod
    def bias(self, q: Tensor, keys: int, start: int = 0, distances: Tensor | None = None) -> Tensor:
        """What is added to the scores, already scaled: it broadcasts to (B, H, T, S).

        q is (B, H, T, E), its first query at position `start`; the keys stand at 0 .. keys - 1.
        """


class RelativeValues(Relative):
    """Positions that also add to what is seen."""

    @abstractmethod
    def values(self, weights: Tensor, start: int = 0, distances: Tensor | None = None) -> Tensor:
        """What is added to the weighted values, for weights (B, H, T, S): (B, H, T, E)."""
