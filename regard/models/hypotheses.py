"""Where hypotheses lie in a state: those of source b, W of them, are the rows b W to b W + W - 1."""

from __future__ import annotations

import torch
from torch import Tensor


def rows_of_parents(parents: Tensor, hypotheses: int) -> Tensor:
    """Rows of the parents (B, W') of new hypotheses, which count within their source: (B * W',)."""
    first = hypotheses * torch.arange(len(parents), device=parents.device)[:, None]
    return (parents + first).flatten()


def rows_of_sources(sources: Tensor, hypotheses: int) -> Tensor:
    """Rows of all hypotheses of these sources (B',): (B' * W,)."""
    return (sources[:, None] * hypotheses + torch.arange(hypotheses, device=sources.device)).flatten()
