"""Token embeddings: ids -> vectors scaled by √D (Vaswani et al. 2017, section 3.4), then positions, then dropout."""

from __future__ import annotations

import math

from torch import Tensor, nn

from regard.noise import dropout


class TokenEmbedding(nn.Module):
    """ids (B, T) -> vectors (B, T, D). The table may be shared with another embedding and with the output layer."""

    def __init__(self, table: nn.Embedding, positions: nn.Module, rate: float) -> None:
        super().__init__()
        self.table, self.positions, self.rate = table, positions, rate
        self.scale = math.sqrt(table.embedding_dim)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        x = self.positions(self.table(ids) * self.scale, start)  # (B, T, D)
        return dropout(x, self.rate) if self.training else x


def embedding_table(vocabulary: int, width: int) -> nn.Embedding:
    """Rows of standard deviation 1/√D, so that they have unit size once scaled, and so do logits of a tied output."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
