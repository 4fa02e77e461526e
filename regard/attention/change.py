"""Kinds of changes of one attention, as a person names them, and what they do to its weights and its output.

Remove       what the head saw becomes zeros (Michel et al. 2019, eq. 2 with ξ = 0)
Pin          one row of weights is what a person says
Temperature  softmax(scores / temperature), or all of the weight on the best key (hard)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from regard.attention.attend import masked_softmax
from regard.attention.call import Role
from regard.attention.masks import Mask
from regard.errors import UsageError


@dataclass(frozen=True)
class Change:
    """Which attention is changed: in this role, in this layer of that role (from 0), at this module path. None is any."""

    role: Role | None = None
    layer: int | None = None
    path: str | None = None

    def meets(self, path: str, role: Role, layer: int) -> bool:
        return self.role in (None, role) and self.layer in (None, layer) and self.path in (None, path)

    def __str__(self) -> str:
        """What a person gave."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values if value is not None)})"


@dataclass(frozen=True)
class Remove(Change):
    """Take away one head, or (None) all heads of an attention."""

    head: int | None = None


@dataclass(frozen=True)
class Pin(Change):
    """The query at place `row` looks as `weights` says: a number for each key, or the number of the only key.

    Keys behind those that are named get none, so that one row serves whole texts, padded ones, and steps of decoding.
    """

    row: int = 0
    weights: int | Sequence[float] = 0
    head: int | None = None

    def __post_init__(self) -> None:
        if self.row < 0:
            raise UsageError(f"cannot pin row {self.row}: queries are counted from 0")

    def as_row(self, like: Tensor) -> Tensor:
        """The weights (S,), like scores (..., S)."""
        keys, row = like.size(-1), like.new_zeros(like.size(-1))
        if isinstance(self.weights, int):
            if not 0 <= self.weights < keys:
                raise UsageError(f"cannot pin a row to key {self.weights}: there are {keys}, from 0 to {keys - 1}")
            row[self.weights] = 1.0
            return row
        given = torch.as_tensor(self.weights, dtype=like.dtype, device=like.device)
        if given[keys:].any():
            raise UsageError(f"a row is pinned to {len(given)} weights, but there are {keys} keys")
        row[: len(given)] = given[:keys]
        return row


@dataclass(frozen=True)
class Temperature(Change):
    """Divide scores by `value` before the softmax; with `hard`, only the best key is seen."""

    value: float = 1.0
    hard: bool = False

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise UsageError(f"a temperature is more than 0, not {self.value:g}; for the best key only, say hard=True")


@dataclass(frozen=True)
class Changed:
    """All that is changed in one attention. With each pin, whom to tell that its row was there."""

    removals: tuple[Remove, ...] = ()
    pins: tuple[tuple[Pin, Callable[[], None]], ...] = ()
    temperature: float = 1.0
    hard: bool = False

    @property
    def of_weights(self) -> bool:
        """Whether the weights are others, which needs an attention that has them."""
        return bool(self.pins) or self.hard or self.temperature != 1.0

    def weights(self, scores: Tensor, mask: Mask | None, place: int, together: bool = False) -> Tensor:
        """Of scores (B, H, T, S), whose first query stands at `place`; `together`: all of them stand there."""
        return self.pinned(self.sharpened(masked_softmax(scores / self.temperature, mask)), place, together)

    def sharpened(self, weights: Tensor) -> Tensor:
        return best_only(weights) if self.hard else weights

    def pinned(self, weights: Tensor, place: int, together: bool = False) -> Tensor:
        """Weights (B, H, T, S) with the rows that a person gave."""
        for pin, reached in self.pins:
            row = pin.row - place
            if row < 0 or row >= (1 if together else weights.size(-2)):
                continue
            rows = slice(None) if together else slice(row, row + 1)
            heads = slice(None) if pin.head is None else _head(pin.head, weights.size(1))
            weights = weights.clone()
            weights[:, heads, rows] = pin.as_row(weights)
            reached()
        return weights

    def removed(self, heads: int) -> tuple[int, ...]:
        """Which of so many heads are taken away."""
        named = {_head(each.head, heads) for each in self.removals if each.head is not None}
        return tuple(range(heads)) if any(each.head is None for each in self.removals) else tuple(sorted(named))

    def kept(self, out: Tensor) -> Tensor:
        """What the heads saw (B, H, T, E), without those that are removed."""
        gone = self.removed(out.size(1))
        if not gone:
            return out
        keep = torch.ones(out.size(1), dtype=out.dtype, device=out.device)
        keep[list(gone)] = 0.0
        return out * keep[:, None, None]

    def __or__(self, other: Changed) -> Changed:
        both = (self.removals + other.removals, self.pins + other.pins)
        return Changed(*both, self.temperature * other.temperature, self.hard or other.hard)


def best_only(weights: Tensor) -> Tensor:
    """One for the greatest weight of a row (the first of equals), zero for the others; an empty row stays empty."""
    best = torch.zeros_like(weights).scatter_(-1, weights.argmax(dim=-1, keepdim=True), 1.0)
    return best * (weights.sum(dim=-1, keepdim=True) > 0)


def _head(head: int, heads: int) -> int:
    if not 0 <= head < heads:
        there = f"there are {heads}, numbered from 0 to {heads - 1}" if heads > 1 else "there is one, number 0"
        raise UsageError(f"no head {head}; {there}")
    return head
