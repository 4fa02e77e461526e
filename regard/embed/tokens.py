"""Token embeddings: ids -> vectors, perhaps scaled by √D (Vaswani et al. 2017, section 3.4), then positions, then dropout.

BERT's also know to which of two texts a token belongs, and are normed (Devlin et al. 2019, figure 2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.noise import dropout


class TokenEmbedding(nn.Module):
    """ids (B, T) -> vectors (B, T, D). The table may be shared with another embedding and with the output layer."""

    def __init__(
        self,
        table: nn.Embedding,
        positions: nn.Module,
        rate: float,
        *,
        scaled: bool = True,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.table, self.positions, self.rate = table, positions, rate
        self.scale = math.sqrt(table.embedding_dim) if scaled else 1.0
        self.segments, self.norm = segments, norm

    def forward(self, ids: Tensor, start: int = 0, segments: Tensor | None = None) -> Tensor:
        x = self.table(ids)  # (B, T, D)
        x = self.positions(x * self.scale if self.scale != 1.0 else x, start)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        return dropout(x, self.rate) if self.training else x


def embedding_table(vocabulary: int, width: int) -> nn.Embedding:
    """Rows of standard deviation 1/√D, so that they have unit size once scaled, and so do logits of a tied output."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
