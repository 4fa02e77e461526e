"""The position-wise feed-forward layer (Vaswani et al. 2017, eq. 2), and with a gate (Shazeer 2020):

FFN(x)    = activation(x W_1 + b_1) W_2 + b_2
SwiGLU(x) = (swish(x W_g) ∘ x W_u) W_d
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from regard.noise import branch_of_noise, dropout, of_branch

# gelu is exact (Hendrycks & Gimpel 2016, with erf); gelu-tanh is the approximation that GPT-2's weights were trained with.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "swish": silu,
    "gelu": gelu,
    "gelu-tanh": partial(gelu, approximate="tanh"),
}


class FeedForward(nn.Module):
    """(B, T, D) -> (B, T, F) -> (B, T, D), the same for every position."""

    def __init__(
        self, width: int, inner: int, *, activation: str = "relu", rate: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner, bias=bias), nn.Linear(inner, width, bias=bias)
        self.activation, self.rate = ACTIVATIONS[activation], rate

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x))  # (B, T, F)
        return self.down(dropout(inner, self.rate) if self.training else inner)


class GatedFeedForward(nn.Module):
    """The same with a gate: what goes up is multiplied by the swish of another product. Both products are one."""

    def __init__(self, width: int, inner: int, *, rate: float = 0.0, bias: bool = False) -> None:
        super().__init__()
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=bias), nn.Linear(inner, width, bias=bias)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # each (B, T, F)
        inner = silu(gate) * up
        return self.down(dropout(inner, self.rate) if self.training else inner)


def make_feed_forward(width: int, inner: int, *, activation: str, rate: float = 0.0, bias: bool = True) -> nn.Module:
    """The feed-forward layer that a configuration names."""
    if activation == "swiglu":
        return GatedFeedForward(width, inner, rate=rate, bias=bias)
    return FeedForward(width, inner, activation=activation, rate=rate, bias=bias)


_terms: ContextVar[list[Tensor] | None] = ContextVar("balance terms", default=None)


@contextmanager
def balance_terms() -> Iterator[list[Tensor]]:
    """Inside this block every mixture adds its balance term to the list."""
    found: list[Tensor] = []
    token = _terms.set(found)
    try:
        yield found
    finally:
        _terms.reset(token)


class Experts(nn.Module):
    """(B, T, D) -> (B, T, D); `make` builds one expert, `used` of them see each token."""

    def __init__(self, width: int, experts: int, used: int, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        if not 1 <= used <= experts:
            raise ValueError(f"{used} experts for each token of {experts}; choose from 1 to {experts}")
        self.used = used
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(make() for _ in range(experts))

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The probability of every expert for tokens (N, D), (N, experts); which are chosen, and their weights, (N, used).

        Of several the weights are the softmax of their own scores (Shazeer et al. 2017, eq. 3 to 5), of one its
        probability, without which the router would learn nothing (Fedus et al. 2022, eq. 1 and 2).
        """
        scores = self.router(tokens)  # (N, experts)
        values, chosen = scores.topk(self.used, dim=-1)  # (N, used)
        every = scores.softmax(dim=-1)  # (N, experts)
        shares = (every.gather(1, chosen) if self.used == 1 else values.softmax(dim=-1)).to(tokens.dtype)  # (N, used)
        return every, chosen, shares

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.size(-1))  # (N, D)
        every, chosen, shares = self.route(tokens)
        self._report_balance(every, chosen)
        out, branch = torch.zeros_like(tokens), branch_of_noise() if self.training else None
        for number, expert in enumerate(self.experts):
            rows, places = (chosen == number).nonzero(as_tuple=True)
            if len(rows):
                with of_branch(branch, number, rows, len(tokens)):
                    out = out.index_add(0, rows, shares[rows, places, None] * expert(tokens[rows]))
        return out.view_as(x)

    def _report_balance(self, every: Tensor, chosen: Tensor) -> None:
        found = _terms.get()
        if found is None:
            return
        count = every.size(-1)
        sent = torch.bincount(chosen.flatten(), minlength=count) / chosen.numel()  # (experts,)
        found.append(count * (sent * every.mean(dim=0)).sum())
