"""One block serves encoder and decoder: residual sub-layers of self-attention, attention to a memory, and feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.attention import Mask, MemoryKeys, MultiHead
from regard.blocks.state_space import StateSpace
from regard.noise import add_dropped, dropout


class Residual(nn.Module):
    """A residual connection around a sub-layer of (B, T, D), with dropout and a norm before it or behind it.

    pre   x + dropout(f(norm(x)))   (Xiong et al. 2020)      post  norm(x + dropout(f(x)))   (Vaswani et al. 2017)
    none  x + dropout(f(x));        `residual` False leaves x out of each
    """

    def __init__(self, norm: nn.Module, rate: float, *, order: str, residual: bool = True) -> None:
        super().__init__()
        self.norm = norm if order != "none" else nn.Identity()
        self.rate, self.order, self.residual = rate, order, residual

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y = sublayer(self.norm(x) if self.order == "pre" else x)
        rate = self.rate if self.training else 0.0
        y = add_dropped(x, y, rate) if self.residual else dropout(y, rate)
        return self.norm(y) if self.order == "post" else y


@dataclass
class BlockState:
    """The state of one block between steps: each hypothesis' own past, and each source's memory."""

    own: Any  # a `StepCache`, or the state of a kernel or of a state-space layer
    memory: MemoryKeys | None = None


class Block(nn.Module):
    """(B, T, D) -> (B, T, D). `cross` is None in an encoder; `around` makes the residual connection around each sub-layer."""

    def __init__(
        self,
        attention: MultiHead | StateSpace,
        cross: MultiHead | None,
        feed_forward: nn.Module,
        around: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.around_attention = around()
        self.around_cross = None if cross is None else around()
        self.around_feed_forward = around()

    def forward(
        self,
        x: Tensor,
        mask: Mask | None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        """`distances` (B, T, T) are for relative positions that the data give."""
        x = self.around_attention(x, lambda y: self.attention(y, y, mask, distances))
        if self.cross is not None and self.around_cross is not None:
            cross = self.cross
            x = self.around_cross(x, lambda y: cross(y, memory, memory_mask))
        return self.around_feed_forward(x, self.feed_forward)

    def start(self, memory: Tensor | None, memory_mask: Mask | None, like: Tensor) -> BlockState:
        """An empty past for each row of `like` (B, ...), and the memory's keys and values, projected once."""
        own = self.attention.start(len(like), like)
        if self.cross is None or memory is None:
            return BlockState(own)
        return BlockState(own, self.cross.project(memory, memory_mask))

    def read(self, x: Tensor, state: BlockState) -> Tensor:
        """The next positions (N, T, D) -> (N, T, D) of a block without memory; their keys and values join the state."""
        x = self.around_attention(x, lambda y: self.attention.read(y, state.own))
        return self.around_feed_forward(x, self.feed_forward)

    def step(self, x: Tensor, state: BlockState) -> Tensor:
        """The newest position of each hypothesis, (B, W, D) -> (B, W, D); its keys and values join the state."""
        place = state.own.filled
        x = self.around_attention(x, lambda y: self.attention.step(y, state.own))
        if self.cross is not None and self.around_cross is not None and state.memory is not None:
            cross, memory = self.cross, state.memory
            x = self.around_cross(x, lambda y: cross.look_at(y, memory, place))
        return self.around_feed_forward(x, self.feed_forward)
