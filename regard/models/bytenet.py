"""ByteNet (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time"): dilated convolutions, no attention.

The decoder is stacked on the encoder: to write the token at t it reads the encoder's vector at t beside the token before.
So that it has something to read for as long as a target may be, the encoder is unfolded (section 3.2) over

    |t̂| = ⌈a S + b⌉

positions of a source of S tokens: behind the source embeddings are zero, but convolutions carry the source there. A
decoder that goes on past |t̂| reads zeros, until it writes the end token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import Lengths
from regard.blocks.convolution import CausalConvolution, CentredConvolution, ConvolutionBlock, ConvolutionPast, NormReLU
from regard.embed import TokenEmbedding, positions
from regard.models.configs.translation import ByteNetConfig
from regard.models.encoder_decoder import EncoderDecoder, Memory, rows_of_parents, rows_of_sources


@dataclass(frozen=True)
class ByteNetState:
    """Between two steps of decoding: of each source what it says at each position, of each hypothesis its past."""

    said: Tensor  # (B, |t̂|, channels)
    pasts: list[ConvolutionPast]  # of each block
    read: int = 0
    hypotheses: int = 1  # of each source: W

    def select(self, rows: Tensor) -> ByteNetState:
        """The hypotheses `rows` of B * W."""
        return replace(self, pasts=[past.select(rows) for past in self.pasts])


class ByteNet(EncoderDecoder):
    """`model(batch)` is the loss; `encode` and `decode` are its two halves."""

    config: ByteNetConfig

    def __init__(
        self, config: ByteNetConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary, smoothing)
        source_table, target_table = self.tables()
        self.source = TokenEmbedding(source_table, positions("none", config.width, 0), config.dropout)
        self.target = TokenEmbedding(target_table, positions("none", config.width, 0), config.dropout)
        width, channels = config.width, config.channels
        self.enter_encoder = nn.Linear(width, channels)
        self.encoder = nn.ModuleList(_block(config, CentredConvolution, dilation) for dilation in _dilations(config))
        self.encoder_norm = NormReLU(channels)
        # One matrix over both inputs of the decoder side by side is the sum of two, and the encoder's part is known
        # before anything is written.
        self.say, self.enter_decoder = nn.Linear(channels, channels, bias=False), nn.Linear(width, channels)
        self.decoder = nn.ModuleList(_block(config, CausalConvolution, dilation) for dilation in _dilations(config))
        self.decoder_norm, self.leave = NormReLU(channels), nn.Linear(channels, width)
        self.finish(target_table)
        # Behind a source this bias is all that enters the encoder. Were it zero too, the first layer norm would be
        # asked for the direction of a zero vector, and its gradient would drown all others.
        nn.init.normal_(self.enter_encoder.bias)

    def unfolded(self, lengths: Tensor) -> Tensor:
        """|t̂| = ⌈a S + b⌉ of sources of S tokens; in whole numbers, where 1.1 times 10 is no more than 11."""
        ratio = Fraction(self.config.ratio).limit_denominator(10_000)
        return (lengths * ratio.numerator + ratio.denominator - 1) // ratio.denominator + self.config.extra

    def encode(self, ids: Tensor, lengths: Tensor) -> Memory:
        """Vectors (B, |t̂|, channels) of the longest |t̂|, zero at and behind a row's own."""
        unfolded = self.unfolded(lengths)  # (B,)
        longest = int(self.unfolded(torch.tensor(ids.size(1))))  # of all rows that were padded together
        vectors = self.source(ids[:, :longest])  # (B, S, D)
        vectors = _times(vectors, _real(vectors, lengths))
        vectors = pad(vectors, (0, 0, 0, longest - vectors.size(1)))  # (B, |t̂|, D)
        real = _real(vectors, unfolded)
        x = _enter(self.enter_encoder, vectors)  # (B, |t̂|, channels)
        for block in self.encoder:
            x = block(x, real)
        return Memory(_times(self.encoder_norm(x), real), None if real is None else Lengths(unfolded))

    def decode(self, ids: Tensor, memory: Memory) -> Tensor:
        """Vectors that predict the token after each of `ids` (B, T). Padding stands behind, where causality hides it."""
        said = self.say(memory.vectors[:, : ids.size(1)])  # (B, T or |t̂|, channels)
        said = pad(said, (0, 0, 0, ids.size(1) - said.size(1)))  # (B, T, channels)
        x = _enter(self.enter_decoder, self.target(ids)) + said
        for block in self.decoder:
            x = block(x)
        return self.leave(self.decoder_norm(x))  # (B, T, D)

    def decoder_blocks(self) -> Iterator[ConvolutionBlock]:
        for block in self.decoder:
            assert isinstance(block, ConvolutionBlock)
            yield block

    def start(self, source: tuple[Tensor, Tensor], prefix: Tensor) -> tuple[Tensor, ByteNetState]:
        """Read the sources (ids, lengths) and the prefix (B, P): logits (B, 1, V) of what follows."""
        vectors = self.encode(*source).vectors
        pasts = [block.start(len(vectors), vectors) for block in self.decoder_blocks()]
        state = ByteNetState(self.say(vectors), pasts)
        for column in prefix.split(1, dim=1):
            logits, state = self.step(column, state)
        return logits, state

    def step(self, ids: Tensor, state: ByteNetState) -> tuple[Tensor, ByteNetState]:
        """The newest token of each hypothesis (B, W) -> logits (B, W, V). The state is consumed."""
        x = _enter(self.enter_decoder, self.target(ids))  # (B, W, channels)
        if state.read < state.said.size(1):
            x = x + state.said[:, state.read, None]
        for block, past in zip(self.decoder_blocks(), state.pasts, strict=True):
            x = block.step(x, past)
        return self.output(self.leave(self.decoder_norm(x))), replace(state, read=state.read + 1)

    def reorder(self, state: ByteNetState, parents: Tensor) -> ByteNetState:
        """New hypotheses from old ones: `parents` (B, W') index into W. The source's part stays as it is."""
        return replace(state.select(rows_of_parents(parents, state.hypotheses)), hypotheses=parents.size(1))

    def keep(self, state: ByteNetState, rows: Tensor) -> ByteNetState:
        """Only the sources `rows` go on."""
        flat = rows_of_sources(rows, state.hypotheses)
        return replace(state.select(flat), said=state.said.index_select(0, rows))


def _dilations(config: ByteNetConfig) -> tuple[int, ...]:
    return config.dilations * config.sets


def _block(
    config: ByteNetConfig, convolution: type[CentredConvolution] | type[CausalConvolution], dilation: int
) -> ConvolutionBlock:
    inner = config.channels // 2
    return ConvolutionBlock(config.channels, convolution(inner, inner, config.kernel, dilation), rate=config.dropout)


def _enter(layer: nn.Module, vectors: Tensor) -> Tensor:
    """(B, T, D) -> (B, T, channels); under autocast the residual stream stays in float32."""
    return layer(vectors).to(vectors.dtype)


def _real(x: Tensor, lengths: Tensor) -> Tensor | None:
    """Ones where a row of x (B, T, D) has not ended, else zeros: (B, T, 1). None if all are as long as x."""
    if bool((lengths == x.size(1)).all()):
        return None
    return (torch.arange(x.size(1), device=x.device) < lengths[:, None])[..., None].to(x.dtype)


def _times(x: Tensor, real: Tensor | None) -> Tensor:
    return x if real is None else x * real
