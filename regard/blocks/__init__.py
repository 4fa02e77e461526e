"""Attention and feed-forward, repeated."""

from regard.blocks.block import Block, BlockState, initialise
from regard.blocks.convolution import CausalConvolution, CentredConvolution
from regard.blocks.feed_forward import FeedForward
from regard.blocks.recurrent import Recurrent, RecurrentEncoder

__all__ = [
    "Block",
    "BlockState",
    "CausalConvolution",
    "CentredConvolution",
    "FeedForward",
    "Recurrent",
    "RecurrentEncoder",
    "initialise",
]
