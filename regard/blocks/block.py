"""One block serves encoder and decoder: residual sub-layers of self-attention, attention to a memory, and feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.attention import Mask, MemoryKeys, MultiHead
from regard.blocks.selective import Selective
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


class Unchanged(Residual):
    """The place of a sub-layer that is left out: x goes on as it is."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), 0.0, order="none")

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x


@dataclass
class BlockState:
    """The state of one block between steps: each hypothesis' own past, and each source's memory."""

    own: Any  # a `StepCache`, or the state of a kernel or of a state-space layer
    memory: MemoryKeys | None = None


class Block(nn.Module):
    """(B, T, D) -> (B, T, D). `cross` is None in an encoder; `around` makes the residual connection around each sub-layer.

    `places` adds positions to what queries, keys and values of the block's self-attention are made of (None: nothing).
    Without a feed-forward layer (None), a block only mixes what positions have: nothing in it is computed of one alone.
    """

    def __init__(
        self,
        attention: MultiHead | StateSpace | Selective,
        cross: MultiHead | None,
        feed_forward: nn.Module | None,
        around: Callable[[], Residual],
        places: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward or nn.Identity()
        self.places = places
        self.around_attention = around()
        self.around_cross = None if cross is None else around()
        self.around_feed_forward = Unchanged() if feed_forward is None else around()

    def forward(
        self,
        x: Tensor,
        mask: Mask | None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        """`distances` (B, T, T) are for relative positions that the data give."""
        x = self.around_attention(x, lambda y: self._to_itself(y, mask, distances))
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

    def read(self, x: Tensor, state: BlockState, mask: Mask | None = None) -> Tensor:
        """The next positions (N, T, D) -> (N, T, D) of a block without memory; their keys and values join the state.

        `mask` says what they see, where that is not all that came before: heads know it, other layers do not.
        """
        place, given = state.own.filled, {} if mask is None else {"mask": mask}
        x = self.around_attention(x, lambda y: self.attention.read(self._placed(y, place), state.own, **given))
        return self.around_feed_forward(x, self.feed_forward)

    def step(self, x: Tensor, state: BlockState) -> Tensor:
        """The newest position of each hypothesis, (B, W, D) -> (B, W, D); its keys and values join the state."""
        place = state.own.filled
        x = self.around_attention(x, lambda y: self.attention.step(self._placed_at(y, place), state.own))
        if self.cross is not None and self.around_cross is not None and state.memory is not None:
            cross, memory = self.cross, state.memory
            x = self.around_cross(x, lambda y: cross.look_at(y, memory, place))
        return self.around_feed_forward(x, self.feed_forward)

    def _to_itself(self, x: Tensor, mask: Mask | None, distances: Tensor | None) -> Tensor:
        x = self._placed(x, 0)
        return self.attention(x, x, mask, distances)

    def _placed(self, x: Tensor, start: int) -> Tensor:
        """x (N, T, D) with the positions from `start` on, if this block has any."""
        return x if self.places is None else self.places(x, start)

    def _placed_at(self, x: Tensor, place: int) -> Tensor:
        """x (B, W, D), hypotheses that all stand at one place."""
        return x if self.places is None else self.places(x.reshape(-1, 1, x.size(-1)), place).view_as(x)
