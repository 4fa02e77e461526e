"""Token embeddings and positions: ids -> vectors scaled by √D that know their place, then dropout."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.noise import dropout, for_rows


def sinusoid(length: int, width: int, start: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Sinusoidal positions (Vaswani et al. 2017, section 3.5): (length, D).

    PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))
    """
    position = torch.arange(start, start + length, device=device, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float64) * (-math.log(10000.0) / width))
    angle = position * frequency  # (length, D / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :width]


class SinusoidalPositions(nn.Module):
    """Adds the fixed table; any length can be asked for. `size` rows are kept ready, more are computed when needed."""

    table: Tensor

    def __init__(self, width: int, size: int = 1024) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", sinusoid(size, width), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.size(-2)
        known = end <= self.table.size(0)
        table = self.table[start:end] if known else sinusoid(x.size(-2), self.width, start, x.device)
        return x + table.to(x.dtype)

    def rows(self, end: int) -> Tensor:
        """The vectors of positions 0 .. end - 1: (end, D)."""
        return self.table[:end] if end <= len(self.table) else sinusoid(end, self.width, device=self.table.device)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (Gehring et al. 2017; the paper's table 3, row E)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(size, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.rows(start + x.size(-2))[start:]

    def rows(self, end: int) -> Tensor:
        """The vectors of positions 0 .. end - 1: (end, D)."""
        if end > self.table.size(0):
            raise RegardError(
                f"a sequence of {end} tokens is longer than the {self.table.size(0)} learned positions; "
                f"train with model.max_length = {end} or more, or with sinusoidal positions"
            )
        return self.table[:end]


class NoPositions(nn.Module):
    """Adds nothing: the model sees a set, not a sequence."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x


class RandomOffset(nn.Module):
    """In training each row starts at a random position up to `most`, so that later ones are known, too.

    Shen et al. 2023 ("Positional description matters for Transformers arithmetic"); Kiyono et al. 2021 ("SHAPE").
    Of learned positions, a row starts no later than so that its end still has one.
    """

    def __init__(self, inner: SinusoidalPositions | LearnedPositions, most: int) -> None:
        super().__init__()
        self.inner, self.most = inner, most

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        if not self.training:
            return self.inner(x, start)
        end, most = start + x.size(-2), self.most
        if isinstance(self.inner, LearnedPositions):
            most = max(0, min(most, len(self.inner.table) - end))
        offsets = for_rows(lambda *shape: torch.randint(most + 1, shape, device=x.device), len(x), 1)  # (B, 1)
        places = offsets + torch.arange(start, end, device=x.device)  # (B, T)
        return x + self.inner.rows(most + end)[places].to(x.dtype)


class ConcatenatedPositions(nn.Module):
    """Positions p beside the embeddings x, and a matrix back to the width: [x; p] W.

    Adding is the case in which both halves of W are the identity; here what is asked of a word and what of its place need
    not share channels. W starts there, so that both begin alike.
    """

    def __init__(self, inner: nn.Module, width: int) -> None:
        super().__init__()
        self.inner = inner
        self.join = nn.Parameter(torch.eye(width).repeat(2, 1))  # (2 D, D)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        beside = self.inner(torch.zeros_like(x), start)
        return torch.cat([x, beside], dim=-1) @ self.join.to(x.dtype)


def positions(kind: str, width: int, size: int, random_offset: int = 0, where: str = "add") -> nn.Module:
    """The positions of embeddings that a configuration names; `where` is add, concatenate, or qkv: not here."""
    if kind not in ("sinusoidal", "learned") or where == "qkv":
        return NoPositions()
    added = SinusoidalPositions(width, size) if kind == "sinusoidal" else LearnedPositions(width, size + random_offset)
    found = RandomOffset(added, random_offset) if random_offset else added
    return ConcatenatedPositions(found, width) if where == "concatenate" else found


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
        token_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.table, self.positions, self.rate, self.token_rate = table, positions, rate, token_rate
        self.scale = math.sqrt(table.embedding_dim) if scaled else 1.0
        self.segments, self.norm = segments, norm

    def forward(self, ids: Tensor, start: int = 0, segments: Tensor | None = None) -> Tensor:
        x = self.table(ids)  # (B, T, D)
        if self.training and self.token_rate:
            x = x * kept(ids, self.token_rate)[..., None].to(x.dtype)
        x = self.positions(x * self.scale if self.scale != 1.0 else x, start)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        return dropout(x, self.rate) if self.training else x


def kept(ids: Tensor, rate: float) -> Tensor:
    """Whether each token is seen in training; the others have only their place (Gal & Ghahramani 2016, section 4)."""
    return dropout(torch.ones(ids.shape, device=ids.device), rate) > 0


def embedding_table(vocabulary: int, width: int) -> nn.Embedding:
    """Rows of standard deviation 1/√D, so that they have unit size once scaled, and so do logits of a tied output."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
