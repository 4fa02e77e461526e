"""One block serves encoder and decoder: attention to itself, attention to a memory if there is one, feed-forward."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention import Mask, MemoryKeys, MultiHead, StepCache
from regard.blocks.feed_forward import FeedForward
from regard.blocks.residual import RESIDUALS


@dataclass
class BlockState:
    """What one block keeps between steps: of each hypothesis its own past, of each source its memory."""

    own: StepCache
    memory: MemoryKeys | None


class Block(nn.Module):
    """(B, T, D) -> (B, T, D). `cross` is None in an encoder."""

    def __init__(
        self, attention: MultiHead, cross: MultiHead | None, feed_forward: FeedForward, *, norm: str, rate: float
    ) -> None:
        super().__init__()
        width = attention.query.in_features
        residual = RESIDUALS[norm]
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.around_attention = residual(width, rate)
        self.around_cross = None if cross is None else residual(width, rate)
        self.around_feed_forward = residual(width, rate)

    def forward(
        self, x: Tensor, mask: Mask | None, memory: Tensor | None = None, memory_mask: Mask | None = None
    ) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, y, mask))
        if self.cross is not None and self.around_cross is not None:
            cross = self.cross
            x = self.around_cross(x, lambda y: cross(y, memory, memory_mask))
        return self.around_feed_forward(x, self.feed_forward)

    def start(self, memory: Tensor | None, memory_mask: Mask | None, like: Tensor) -> BlockState:
        """An empty past for each row of `like` (B, ...), and the memory's keys and values, projected once."""
        own = StepCache.empty(len(like), self.attention.groups, self.attention.head_width, like)
        if self.cross is None or memory is None:
            return BlockState(own, None)
        return BlockState(own, self.cross.project(memory, memory_mask))

    def step(self, x: Tensor, state: BlockState) -> Tensor:
        """The newest position of each hypothesis, (B, W, D) -> (B, W, D); its keys and values join the state."""
        x = self.around_attention(x, lambda y: self.attention.step(y, state.own))
        if self.cross is not None and self.around_cross is not None and state.memory is not None:
            cross, memory = self.cross, state.memory
            x = self.around_cross(x, lambda y: cross.look_at(y, memory))
        return self.around_feed_forward(x, self.feed_forward)


def initialise(module: nn.Module) -> None:
    """Glorot-uniform matrices and zero biases; `key_value` counts as two matrices side by side."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            parts = layer.weight.chunk(2) if name.endswith("key_value") else (layer.weight,)
            with torch.no_grad():
                for part in parts:
                    nn.init.xavier_uniform_(part)
                if layer.bias is not None:
                    layer.bias.zero_()
