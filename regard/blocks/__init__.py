"""Attention and feed-forward, repeated."""

from regard.blocks.block import Block, BlockState, initialise
from regard.blocks.feed_forward import FeedForward

__all__ = ["Block", "BlockState", "FeedForward", "initialise"]
