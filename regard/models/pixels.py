"""What models of pictures share: tokens on a grid, and the grid as a sequence again.

Token 0 begins a picture, token 1 is its label, token 2 + i is pixel i, row by row. What is known of pixels 0 to i - 1 predicts
pixel i, and stands in the sequence where pixel i - 1 was read.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.models.configs.pixels import BEFORE, PixelsConfig


class PixelEmbedding(nn.Module):
    """Ids (B, T) -> the grid of pixels (B, H, W, C) that T tokens reach into, and the number of each label."""

    def __init__(self, config: PixelsConfig, vocabulary: int, channels: int) -> None:
        super().__init__()
        first = vocabulary if config.labels_from is None else min(config.labels_from, vocabulary)
        self.first_label, self.labels = first, 1 + vocabulary - first
        self.columns = config.columns
        self.table = nn.Embedding(vocabulary, channels)
        self.row_table = nn.Parameter(torch.empty(config.rows, channels))
        self.column_table = nn.Parameter(torch.empty(config.columns, channels))
        for weight in (self.table.weight, self.row_table, self.column_table):
            nn.init.normal_(weight, std=0.5)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        pixels, rows = ids[:, BEFORE:], self.rows_of(ids.size(1))
        found = pad(self.table(pixels), (0, 0, 0, rows * self.columns - pixels.size(1)))  # behind: not yet written
        found = found.view(len(ids), rows, self.columns, -1) + self.places(rows)
        return found, self.labels_of(ids)

    def rows_of(self, tokens: int) -> int:
        """The rows that the next pixels behind so many tokens lie in, from the first on."""
        return max(1, -(-(tokens + 1 - BEFORE) // self.columns))

    def places(self, rows: int) -> Tensor:
        """What tells each place: (H, W, C)."""
        numbers = torch.arange(rows, device=self.row_table.device).clamp(
            max=len(self.row_table) - 1
        )  # behind: the last
        return self.row_table[numbers, None] + self.column_table

    def place(self, number: int) -> Tensor:
        """What tells one place, by its number: (C,)."""
        return self.row_table[number // self.columns] + self.column_table[number % self.columns]

    def labels_of(self, ids: Tensor) -> Tensor | None:
        """The label of each picture of tokens (B, T): see `label_numbers`."""
        if ids.size(1) < BEFORE:
            return None if self.labels == 1 else ids.new_zeros(len(ids))
        return self.label_numbers(ids[:, 1])

    def label_numbers(self, tokens: Tensor) -> Tensor | None:
        """Labels (B,) counted from 1, 0 for what is no label; None if there are no labels at all."""
        return None if self.labels == 1 else (tokens - self.first_label + 1).clamp(min=0)


def as_sequence(grid: Tensor, ids: Tensor) -> Tensor:
    """Vectors of places (B, H, W, D) in the order of the tokens that they follow: (B, T, D); none is told behind begin."""
    return pad(grid.flatten(1, 2)[:, : ids.size(1) - 1], (0, 0, 1, 0))
