"""The base of every kernel: a way to attend that does not compute all T x S pairs, and what its mathematics allows.

A kernel stands where `attend` stands in `MultiHead`: queries, keys and values in, outputs out. It says in `supports` what it
is able to do, and refuses the rest in words when it is built. `weights` is its effective map: what it really mixes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from regard.attention.masks import Both, Causal, Lengths, Mask
from regard.errors import UsageError


@dataclass(frozen=True)
class Support:
    """The abilities that a kernel's mathematics gives it; `otherwise` is said to whoever asks for more."""

    causal: bool = False  # each query sees itself and what came before
    both_sides: bool = False  # each query sees what came before and what comes after
    padding: bool = False  # rows of a batch end at different places
    cross: bool = False  # queries of one sequence look at another
    cache: bool = False  # goes on token by token, with a state
    bias: bool = False  # positions that add to scores
    otherwise: str = "choose model.attention.kind = exact"


@dataclass(frozen=True)
class Placement:
    """The place of a kernel in a model, for which it is built."""

    heads: int
    head_width: int
    causal: bool = False
    cross: bool = False
    longest: int = 1024  # most positions it will see; only kernels that own something for each of them ask
    seed: int = 0  # of what is drawn once, such as random blocks: another one in each block of a model


class KernelState(Protocol):
    """The state that a kernel keeps between steps of decoding, for each hypothesis."""

    filled: int  # positions that were read

    def select(self, rows: Tensor) -> Self:
        """The state of the hypotheses `rows`, copied."""
        ...


class Kernel(nn.Module, ABC):
    """(B, H, T, E) queries, (B, H, S, E) keys and values -> (B, H, T, E)."""

    name: ClassVar[str]
    supports: ClassVar[Support]
    shares_keys: ClassVar[bool] = False  # keys are made of the queries; there is no projection for them
    sums_to_one: ClassVar[bool] = True  # each row of the effective map

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement, self.causal = placement, placement.causal
        if placement.cross and not self.supports.cross:
            self.refuse("look from one sequence at another")
        if placement.causal and not self.supports.causal:
            self.refuse("be causal")
        if not placement.causal and not placement.cross and not self.supports.both_sides:
            self.refuse("look to both sides")

    def refuse(self, what: str, instead: str = "") -> None:
        """Say what it cannot do, and what to type instead."""
        ways = f"{instead}, or {self.supports.otherwise}" if instead else self.supports.otherwise
        raise UsageError(f"{self.name} attention cannot {what}; {ways}")

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Attend from each query to its keys. Row b has `lengths[b]` real keys (None: all); rows without any give zeros."""

    @abstractmethod
    def weights(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The effective map (B, H, T, S), computed plainly: `weights @ v` is what `forward` gives."""

    def exact(self, q: Tensor, k: Tensor, lengths: Tensor | None = None) -> Tensor | None:
        """The map (B, H, T, S) that it stands for, where that is not softmax(q kᵀ / √E); None: it is."""
        return None

    def visible(self, queries: int, keys: int, lengths: Tensor | None, device: torch.device) -> Tensor | None:
        """Booleans that broadcast to (B, H, T, S), for a kernel that leaves out pairs by their places; None: it does not."""
        return None

    def start(self, rows: int, like: Tensor) -> Any:
        """An empty state of so many hypotheses, with the type and device of `like`."""
        self.refuse("go on token by token")

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: Any) -> Tensor:
        """The newest position of each hypothesis, (N, H, 1, E) each: joins the state, and sees (N, H, 1, E)."""
        self.refuse("go on token by token")
        return q

    def read(self, q: Tensor, k: Tensor, v: Tensor, state: Any) -> Tensor:
        """The next positions (N, H, T, E) at once. Here one after another; a kernel that can do better does."""
        columns = zip(q.split(1, dim=2), k.split(1, dim=2), v.split(1, dim=2), strict=True)
        return torch.cat([self.step(*column, state) for column in columns], dim=2)


def lengths_of(mask: Mask | None, kernel: Kernel) -> Tensor | None:
    """The lengths that a mask holds, for a kernel that knows by itself whether it is causal."""
    if mask is None or (isinstance(mask, Causal) and mask.offset == 0 and kernel.causal):
        return None
    if isinstance(mask, Lengths):
        if not kernel.supports.padding:
            kernel.refuse("leave out padding", "give it rows of one length")
        return mask.lengths
    if isinstance(mask, Both):
        found = [lengths_of(each, kernel) for each in (mask.first, mask.second)]
        given = [each for each in found if each is not None]
        return given[0] if given else None
    kernel.refuse(f"follow a mask of the kind {type(mask).__name__}")
    return None
