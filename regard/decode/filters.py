"""Rules about the next token of a search: what is never written, no end too early, and the shape of what is drawn from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.decode.choice import top
from regard.decode.live import Bools, Floats, Ints, Live

HEAD = 256  # tokens looked at first for top-p; nearly always they have the probability asked for


class Filter(Protocol):
    """A rule about the next token. `live` tells the tokens so far and the source of each row.

    It writes nothing but -inf into the tensor it is given (a copy of all logits at each step would be slow), or gives
    a new one: the search still needs the model's own logits of the tokens that are left.
    """

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor: ...  # (B, W, V) -> (B, W, V)


@dataclass(frozen=True)
class Forbid:
    """Tokens that are never produced, such as padding and begin."""

    ids: Tensor

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        return logits.index_fill_(-1, self.ids, -math.inf)


@dataclass(frozen=True)
class MinLength:
    """No end token before as many others as a source wants."""

    end: Tensor

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        early = live.lengths < live.wants.min_length  # (B,)
        if np.count_nonzero(early) == len(early):
            return logits.index_fill_(-1, self.end, -math.inf)
        if early.any():
            rows = torch.from_numpy(early.nonzero()[0]).to(logits.device)
            logits[rows[:, None], :, self.end] = -math.inf
        return logits


class Shape(ABC):
    """A rule that reshapes what is drawn from, for those sources that want it, each by its own number."""

    @abstractmethod
    def wanted(self, live: Live) -> tuple[Floats | Ints, Bools]:
        """The number of each source, and which have one: both (B,)."""

    @abstractmethod
    def shaped(self, logits: Tensor, numbers: Tensor) -> Tensor:
        """New logits (B, W, V) by numbers (B, 1, 1)."""

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        numbers, chosen = self.wanted(live)
        if not chosen.any():
            return logits
        by = torch.from_numpy(numbers[chosen]).to(logits.device)[:, None, None]
        if chosen.all():
            return self.shaped(logits, by)
        rows = torch.from_numpy(chosen.nonzero()[0]).to(logits.device)
        return logits.index_copy(0, rows, self.shaped(logits[rows], by))


class TemperatureFilter(Shape):
    """Probabilities become p^(1 / temperature), normalised again."""

    def wanted(self, live: Live) -> tuple[Floats, Bools]:
        return live.wants.temperature, live.wants.temperature != 1

    def shaped(self, logits: Tensor, numbers: Tensor) -> Tensor:
        return logits / numbers.to(logits.dtype)


class TopK(Shape):
    """Only the k most likely tokens (Fan et al. 2018, section 5.4); of equals, the lower ids."""

    def wanted(self, live: Live) -> tuple[Ints, Bools]:
        return live.wants.top_k, live.wants.top_k > 0

    def shaped(self, logits: Tensor, numbers: Tensor) -> Tensor:
        values, ids = top(logits, min(int(numbers.max()), logits.size(-1)))  # (B, W, K)
        beyond = torch.arange(ids.size(-1), device=ids.device) >= numbers  # (B, 1, K)
        return _only(logits, values.masked_fill(beyond, -math.inf), ids)


class TopP(Shape):
    """The nucleus: the fewest most likely tokens that have probability p together (Holtzman et al. 2020, eq. 2)."""

    def wanted(self, live: Live) -> tuple[Floats, Bools]:
        return live.wants.top_p, live.wants.top_p < 1

    def shaped(self, logits: Tensor, numbers: Tensor) -> Tensor:
        vocabulary = logits.size(-1)
        norm = logits.logsumexp(dim=-1, keepdim=True)  # (B, W, 1)
        for count in (min(HEAD, vocabulary), vocabulary):
            values, ids = top(logits, count)  # (B, W, count)
            probabilities = (values - norm).exp()
            upto = probabilities.cumsum(dim=-1)
            if bool((upto[..., -1:] >= numbers).all()):
                break
        outside = upto - probabilities >= numbers
        outside[..., 0] = False  # the most likely token stays, whatever rounding says
        return _only(logits, values.masked_fill(outside, -math.inf), ids)


class MinP(Shape):
    """The tokens whose probability is at least a share of the likeliest one's (Nguyen et al. 2025)."""

    def wanted(self, live: Live) -> tuple[Floats, Bools]:
        return live.wants.min_p, live.wants.min_p > 0

    def shaped(self, logits: Tensor, numbers: Tensor) -> Tensor:
        least = logits.amax(dim=-1, keepdim=True) + numbers.log().to(logits.dtype)
        return logits.masked_fill(logits < least, -math.inf)


@dataclass(frozen=True)
class Drawn:
    """The rules of draws, where any source draws."""

    rules: tuple[Shape, ...]

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        if live.wants.any_drawn:
            for rule in self.rules:
                logits = rule(logits, live)
        return logits


def _only(logits: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    return torch.full_like(logits, -math.inf).scatter(-1, ids, values)


def filters_of(
    ends: Sequence[int], forbidden: Sequence[int], constraints: Sequence[Filter], device: torch.device
) -> list[Filter]:
    """All rules there are. Those that forbid come first, so that top-k counts what is left."""
    never = [Forbid(torch.tensor(sorted(set(forbidden)), device=device))] if forbidden else []
    late = MinLength(torch.tensor(list(ends), device=device))
    return [*never, late, *constraints, Drawn((TemperatureFilter(), TopK(), TopP(), MinP()))]
