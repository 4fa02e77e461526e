"""Attention and feed-forward, repeated."""

from regard.blocks.block import Block, BlockState, Residual
from regard.blocks.convolution import CausalConvolution, CentredConvolution
from regard.blocks.feed_forward import Experts, FeedForward, GatedFeedForward, balance_terms, make_feed_forward
from regard.blocks.initialise import Undrawn, initialise, initialise_head, initialise_normal
from regard.blocks.norm import make_norm
from regard.blocks.recurrent import Recurrent, RecurrentEncoder
from regard.blocks.selective import Selective
from regard.blocks.stack import Stack, compile_blocks, recompute
from regard.blocks.state_space import StateSpace

__all__ = [
    "Block",
    "BlockState",
    "CausalConvolution",
    "CentredConvolution",
    "Experts",
    "FeedForward",
    "GatedFeedForward",
    "Recurrent",
    "RecurrentEncoder",
    "Residual",
    "Selective",
    "Stack",
    "StateSpace",
    "Undrawn",
    "balance_terms",
    "compile_blocks",
    "initialise",
    "initialise_head",
    "initialise_normal",
    "make_feed_forward",
    "make_norm",
    "recompute",
]
