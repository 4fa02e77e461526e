"""Scores: how well a query (a decoder's state) and a key (an annotation of the source) agree.

    cosine      β cos(q, k)            Graves et al. 2014, eq. 5 and 6: content-based, with a learned strength β
    additive    v · tanh(W q + U k)    Bahdanau et al. 2015, section A.1.2
    location    (W q)_s                Luong et al. 2015, eq. 8: the position s alone decides, whatever stands there
    general     q · W k                Luong et al. 2015, section 3.1
    dot         q · k                  Luong et al. 2015, section 3.1
    scaled-dot  q · k / √E             Vaswani et al. 2017, section 3.2.1
    mlp         F(q) · G(k) / √E       Parikh et al. 2016, eq. 1: keys and queries by networks, not by matrices
    offset      -(s - t + b)² / 2σ²    b back from the query's own place t, whatever stands there (a Gaussian window:
                                       Graves 2013, eq. 48): a choice that is fixed, "always 10 back", or learned

Each is a part that any attention of one head takes: queries (B, T, Q) and keys (B, S, K) give scores (B, T, S).
`keys` is what can be computed of the source once, before the first query is known.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from regard.errors import UsageError, nearest
from regard.plugins import adding


class Score(nn.Module):
    """The base of every score; `keys` of a source is the source itself unless a score projects it."""

    longest: int | None = None  # positions that can be scored; None: all

    def keys(self, memory: Tensor) -> Tensor:
        return memory

    @abstractmethod
    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        """Queries (B, T, Q) and keys (B, S, K) -> (B, T, S)."""

    def at(self, q: Tensor, keys: Tensor, times: Tensor) -> Tensor:
        """`forward` of queries that stand at the positions `times` (T,) or (1,), for scores that know them."""
        return self(q, keys)


class Dot(Score):
    """q · k, times a constant."""

    def __init__(self, query_width: int, key_width: int, scale: float = 1.0) -> None:
        super().__init__()
        _must_be_equal("a dot product", query_width, key_width)
        self.scale = scale

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        return (q * self.scale) @ keys.mT  # (B, T, S)


class Cosine(Score):
    """β cos(q, k); β is learned as its logarithm, so that it stays positive. A zero vector has cosine zero."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        _must_be_equal("a cosine", query_width, key_width)
        self.log_strength = nn.Parameter(torch.zeros(1))

    def keys(self, memory: Tensor) -> Tensor:
        return normalize(memory, dim=-1)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        return (normalize(q, dim=-1) * self.log_strength.exp()) @ keys.mT  # (B, T, S)


class General(Score):
    """q · W k."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.key = nn.Linear(key_width, query_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)  # (B, S, Q)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        return q @ keys.mT  # (B, T, S)


class Additive(Score):
    """v · tanh(W q + U k): a layer of `width` units for every pair of query and key."""

    def __init__(self, query_width: int, key_width: int, width: int | None = None) -> None:
        super().__init__()
        width = width or query_width
        self.query = nn.Linear(query_width, width, bias=False)
        self.key = nn.Linear(key_width, width, bias=False)
        self.value = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)  # (B, S, A)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        pairs = self.query(q)[:, :, None] + keys[:, None]  # (B, T, S, A)
        return self.value(pairs.tanh()).squeeze(-1)  # (B, T, S)


class Location(Score):
    """(W q)_s for position s. There is none from `longest` on: those are not to be looked at, as in the paper."""

    def __init__(self, query_width: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.position = nn.Linear(query_width, longest, bias=False)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        weight = self.position.weight[: keys.size(1)]  # (S, Q), or fewer rows
        return pad(q @ weight.mT, (0, keys.size(1) - len(weight)))  # (B, T, S)


class Network(Score):
    """F(q) · G(k) / √E with F(x) = W_2 tanh(W_1 x + b_1) + b_2, and G alike: what is asked and what is found are computed."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.query, self.key = _network(query_width, query_width), _network(key_width, query_width)
        self.scale = 1 / math.sqrt(query_width)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)  # (B, S, Q)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        return (self.query(q) * self.scale) @ keys.mT  # (B, T, S)


def _network(width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, outputs), nn.Tanh(), nn.Linear(outputs, outputs))


class Offset(Score):
    """-(s - t + b)² / 2σ². Learned, b starts `back` and σ at 1; fixed, σ is so small that the neighbours get 1/3000.

    Where b back is before the beginning, the first position is the nearest.
    """

    def __init__(self, back: float = 0.0, *, learned: bool = True) -> None:
        super().__init__()
        self.back = nn.Parameter(torch.tensor([float(back)]), requires_grad=learned)
        self.log_width = nn.Parameter(torch.tensor([0.0 if learned else math.log(0.25)]), requires_grad=learned)

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        return self.at(q, keys, torch.zeros(1, device=q.device))

    def at(self, q: Tensor, keys: Tensor, times: Tensor) -> Tensor:
        places = torch.arange(keys.size(1), device=q.device)
        away = places - times[:, None] + self.back  # (T or 1, S)
        scores = -(away**2) / (2 * (2 * self.log_width).exp())
        return scores.to(q.dtype).expand(len(q), q.size(1), -1)  # (B, T, S)


ScoreFactory = Callable[[int, int, int], Score]  # width of queries, width of keys, most positions -> a score

# A new one of ours also goes into `ScoreName` of `models/configs/attention.py`, which has no torch.
SCORES: dict[str, ScoreFactory] = {
    "cosine": lambda query_width, key_width, longest: Cosine(query_width, key_width),
    "additive": lambda query_width, key_width, longest: Additive(query_width, key_width),
    "location": lambda query_width, key_width, longest: Location(query_width, longest),
    "general": lambda query_width, key_width, longest: General(query_width, key_width),
    "dot": lambda query_width, key_width, longest: Dot(query_width, key_width),
    "scaled-dot": lambda query_width, key_width, longest: Dot(query_width, key_width, 1 / math.sqrt(query_width)),
    "mlp": lambda query_width, key_width, longest: Network(query_width, key_width),
    "offset": lambda query_width, key_width, longest: Offset(),
}


def add_score(name: str, factory: ScoreFactory) -> None:
    """Add a score of your own to those that `make_score` knows; a name that is taken is refused."""
    adding("score", name, SCORES)
    SCORES[name] = factory


def make_score(
    name: str, query_width: int, key_width: int, longest: int = 256, *, back: float = 0.0, back_learned: bool = True
) -> Score:
    """Build the score of this name for queries and keys of these widths; `back` and `back_learned` are the offset's."""
    if name not in SCORES:
        raise UsageError(f"no score {name}", nearest(name, SCORES))
    if name == "offset":
        return Offset(back, learned=back_learned)
    return SCORES[name](query_width, key_width, longest)


def _must_be_equal(what: str, query_width: int, key_width: int) -> None:
    if query_width != key_width:
        raise UsageError(
            f"{what} needs queries and keys of one width, but they are {query_width} and {key_width} wide; "
            "make them equal, or choose the score general or additive"
        )
