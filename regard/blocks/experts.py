"""A mixture of experts in the place of a feed-forward layer (Shazeer et al. 2017; the routing of Jiang et al. 2024):

    y = Σ over the k best experts i of  softmax(top-k of x W_r)_i · expert_i(x)

With k = 1 that softmax would always be 1, and nothing would teach the router: there the share of the one expert is its
probability among all (Fedus et al. 2022, eq. 2).
Each token pays for k experts, whatever their number. Left alone, routers come to use few experts; the balance term
(Fedus et al. 2022, eq. 4), experts · Σ share of tokens_i · mean probability_i, is 1 when all are used alike and grows
when they are not. Whoever trains collects it with `balance_terms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

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

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.size(-1))  # (N, D)
        scores = self.router(tokens)  # (N, experts)
        values, chosen = scores.topk(self.used, dim=-1)  # (N, used)
        every = scores.softmax(dim=-1)  # (N, experts)
        shares = (every.gather(1, chosen) if self.used == 1 else values.softmax(dim=-1)).to(x.dtype)  # (N, used)
        self._tell_balance(every, chosen)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, places = (chosen == number).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, shares[rows, places, None] * expert(tokens[rows]))
        return out.view_as(x)

    def _tell_balance(self, every: Tensor, chosen: Tensor) -> None:
        found = _terms.get()
        if found is None:
            return
        count = every.size(-1)
        sent = torch.bincount(chosen.flatten(), minlength=count) / chosen.numel()  # (experts,)
        found.append(count * (sent * every.mean(dim=0)).sum())
