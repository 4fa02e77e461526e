"""Masks as symbols: what a query may look at, said in words, joined with `&`, made into booleans as late as possible.

A mask is True where a query may attend. Staying symbolic lets the fast path keep `is_causal` and spares long
sequences a (T, S) matrix. This is the only file that turns a mask into a tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Mask(ABC):
    """The base of every mask. `dense` broadcasts to (B, H, T, S)."""

    always_somewhere = False  # True when no query can be left with nothing to look at

    @abstractmethod
    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        """The mask as booleans for this many queries and keys."""

    def __and__(self, other: Mask) -> Mask:
        return Both(self, other)

    def keep(self, rows: Tensor) -> Mask:
        """The same mask for some rows of the batch only."""
        return self


@dataclass(frozen=True)
class Causal(Mask):
    """Query t sees keys 0 .. t + offset, itself included. In step-by-step decoding `offset` is what came before."""

    offset: int = 0

    @property
    def always_somewhere(self) -> bool:  # type: ignore[override]
        return self.offset >= 0

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(self.offset)  # (T, S)


@dataclass(frozen=True)
class Window(Mask):
    """Query t sees keys t - left .. t + right."""

    left: int
    right: int

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        distance = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]  # (T, S)
        return (distance >= -self.left) & (distance <= self.right)


@dataclass(frozen=True, eq=False)
class Lengths(Mask):
    """Row b sees its first `lengths[b]` keys: what padding means. `lengths` has shape (B,)."""

    lengths: Tensor

    @property
    def always_somewhere(self) -> bool:  # type: ignore[override]
        return not torch.compiler.is_compiling() and bool((self.lengths > 0).all())  # a value would cut a graph in two

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        inside = torch.arange(keys, device=device) < self.lengths.to(device)[:, None]  # (B, S)
        return inside[:, None, None, :]  # (B, 1, 1, S)

    def keep(self, rows: Tensor) -> Mask:
        return Lengths(self.lengths[rows])


@dataclass(frozen=True, eq=False)
class Blocks(Mask):
    """A query sees keys of its own block: `queries_in` (B, T) and `keys_in` (B, S) number the blocks (documents)."""

    queries_in: Tensor
    keys_in: Tensor

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        same = self.queries_in[:, :, None] == self.keys_in[:, None, :]  # (B, T, S)
        return same[:, None].to(device)  # (B, 1, T, S)

    def keep(self, rows: Tensor) -> Mask:
        return Blocks(self.queries_in[rows], self.keys_in[rows])


@dataclass(frozen=True, eq=False)
class Edges(Mask):
    """A graph as a mask: query `target[e]` sees key `source[e]`, for each of E edges, and `queries` may look in all."""

    source: Tensor  # (E,)
    target: Tensor  # (E,)
    queries: int

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        allowed = torch.zeros(queries, keys, dtype=torch.bool, device=device)
        allowed[self.target.to(device), self.source.to(device)] = True
        return allowed  # (T, S)

    def some(self, queries: range) -> tuple[Edges, Tensor]:
        """The edges into some of the queries, these counted anew, and which of all edges they are: booleans (E,)."""
        places = torch.full((self.queries,), -1, dtype=torch.long, device=self.target.device)
        places[list(queries)] = torch.arange(len(queries), device=places.device)
        there = places[self.target] >= 0
        return Edges(self.source[there], places[self.target[there]], len(queries)), there


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """Any pattern, given as booleans that broadcast to (B, H, T, S)."""

    allowed: Tensor

    def __post_init__(self) -> None:
        if self.allowed.dtype != torch.bool:
            raise ValueError(f"a mask is boolean, True where a query may attend; this one is {self.allowed.dtype}")

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        allowed = self.allowed[None] if self.allowed.dim() == 1 else self.allowed  # (S,) holds for every query
        return allowed.to(device)

    def keep(self, rows: Tensor) -> Mask:
        return Dense(self.allowed[rows]) if self.allowed.dim() == 4 and len(self.allowed) > 1 else self


@dataclass(frozen=True, eq=False)
class Both(Mask):
    """The intersection of two masks."""

    first: Mask
    second: Mask

    def dense(self, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return self.first.dense(queries, keys, device) & self.second.dense(queries, keys, device)

    def keep(self, rows: Tensor) -> Mask:
        return Both(self.first.keep(rows), self.second.keep(rows))


def as_mask(mask: Mask | Tensor | None) -> Mask | None:
    """A plain boolean tensor is accepted wherever a mask is."""
    return Dense(mask) if isinstance(mask, Tensor) else mask
