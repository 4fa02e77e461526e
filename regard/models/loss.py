"""What a model returns in training: named parts, each a sum and a count, so that the loop divides once.

Sums, not means: micro-batches and processes add up to exactly the gradient of one large batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Part:
    """A summed loss over `count` items. Weight 0: reported, not trained on."""

    sum: Tensor
    count: int
    weight: float = 1.0


@dataclass(frozen=True)
class Loss:
    parts: dict[str, Part]

    def objective(self, totals: dict[str, int]) -> Tensor:
        """What to differentiate: each part divided by the count of the whole batch, all micro-batches and processes."""
        terms = [part.weight * part.sum / totals[name] for name, part in self.parts.items() if part.weight]
        return sum(terms[1:], start=terms[0])
