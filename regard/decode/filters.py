"""What may be said next: small callables from logits to logits, applied one after another; -inf is never said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.decode.choice import top
from regard.decode.config import DecodeConfig
from regard.decode.ranking import Live

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
    """No end token before `tokens` others."""

    end: Tensor
    tokens: int

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        return logits.index_fill_(-1, self.end, -math.inf) if live.length < self.tokens else logits


@dataclass(frozen=True)
class Temperature:
    """Probabilities become p^(1 / temperature), normalised again."""

    temperature: float

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        return logits / self.temperature


@dataclass(frozen=True)
class TopK:
    """Only the k most likely tokens (Fan et al. 2018, section 5.4); of equals, the lower ids."""

    k: int

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        return _only(logits, *top(logits, min(self.k, logits.size(-1))))


@dataclass(frozen=True)
class TopP:
    """The nucleus: the fewest most likely tokens that have probability p together (Holtzman et al. 2020, eq. 2)."""

    p: float

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        vocabulary = logits.size(-1)
        norm = logits.logsumexp(dim=-1, keepdim=True)  # (B, W, 1)
        for count in (min(HEAD, vocabulary), vocabulary):
            values, ids = top(logits, count)  # (B, W, count)
            probabilities = (values - norm).exp()
            upto = probabilities.cumsum(dim=-1)
            if bool((upto[..., -1] >= self.p).all()):
                break
        outside = upto - probabilities >= self.p
        outside[..., 0] = False  # the most likely token stays, whatever rounding says
        return _only(logits, values.masked_fill(outside, -math.inf), ids)


@dataclass(frozen=True)
class MinP:
    """The tokens whose probability is at least a share of the likeliest one's (Nguyen et al. 2025)."""

    share: float

    def __call__(self, logits: Tensor, live: Live, /) -> Tensor:
        least = logits.amax(dim=-1, keepdim=True) + math.log(self.share)
        return logits.masked_fill(logits < least, -math.inf)


def _only(logits: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    return torch.full_like(logits, -math.inf).scatter(-1, ids, values)


def filters_of(
    options: DecodeConfig,
    ends: Sequence[int],
    forbidden: Sequence[int],
    constraints: Sequence[Filter],
    device: torch.device,
) -> list[Filter]:
    """The rules these options ask for. Those that forbid come first, so that top-k counts what is left."""
    filters: list[Filter] = []
    if forbidden:
        filters.append(Forbid(torch.tensor(sorted(set(forbidden)), device=device)))
    if options.min_length:
        filters.append(MinLength(torch.tensor(list(ends), device=device), options.min_length))
    filters.extend(constraints)
    if options.sample and options.temperature != 1:
        filters.append(Temperature(options.temperature))
    if options.sample and options.top_k:
        filters.append(TopK(options.top_k))
    if options.sample and options.top_p < 1:
        filters.append(TopP(options.top_p))
    if options.sample and options.min_p:
        filters.append(MinP(options.min_p))
    return filters
