"""Blocks one upon another, over whole sequences or step by step; as a list, so that a model names them by number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from regard.attention import Mask
from regard.blocks.block import Block, BlockState
from regard.blocks.reversible import in_two_streams, keeping_little, make_reversible


class Stack(nn.ModuleList):
    """x (B, T, D) -> (B, T, D) through all blocks. `reversible`: they keep no activations for the gradient."""

    def __init__(self, blocks: Iterable[Block], *, reversible: bool = False) -> None:
        super().__init__(blocks)
        self.reversible = reversible
        if reversible:
            for block in self.each():
                make_reversible(block)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        if self.reversible:
            return self._reversibly(x, mask, distances)
        for block in self.each():
            x = block(x, mask, memory, memory_mask, distances)
        return x

    def start(self, memory: Tensor | None, memory_mask: Mask | None, like: Tensor) -> list[BlockState]:
        """An empty past for each row of `like`, in each block."""
        return [block.start(memory, memory_mask, like) for block in self.each()]

    def read(self, x: Tensor, states: list[BlockState]) -> Tensor:
        """The next positions (N, T, D) -> (N, T, D)."""
        if self.reversible:
            pairs = zip(self.each(), states, strict=True)
            return in_two_streams(x, list(self.each()), [partial(b.attention.read, past=s.own) for b, s in pairs])
        for block, state in zip(self.each(), states, strict=True):
            x = block.read(x, state)
        return x

    def step(self, x: Tensor, states: list[BlockState]) -> Tensor:
        """The newest position of each hypothesis, (B, W, D) -> (B, W, D)."""
        if self.reversible:
            pairs = zip(self.each(), states, strict=True)
            return in_two_streams(x, list(self.each()), [partial(b.attention.step, past=s.own) for b, s in pairs])
        for block, state in zip(self.each(), states, strict=True):
            x = block.step(x, state)
        return x

    def each(self) -> Iterator[Block]:
        return cast(Iterator[Block], iter(self))

    def _reversibly(self, x: Tensor, mask: Mask | None, distances: Tensor | None) -> Tensor:
        blocks = list(self.each())
        if torch.is_grad_enabled():
            return keeping_little(blocks, x, mask, distances)
        return in_two_streams(x, blocks, [partial(_to_itself, b.attention, mask, distances) for b in blocks])


def _to_itself(attention: nn.Module, mask: Mask | None, distances: Tensor | None, x: Tensor) -> Tensor:
    return attention(x, x, mask, distances)
