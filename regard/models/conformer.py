"""Models that hear: a Conformer encoder (Gulati et al. 2020), and CTC, a Transformer decoder, or a classifier on it.

CTC (Graves et al. 2006): each frame tells a token or nothing, the blank, which is the padding token here; a text is as likely
as all ways of frames to tell it together. With a decoder, both losses are learned at once (Watanabe et al. 2017, eq. 21):

    loss = λ CTC + (1 - λ) attention
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, pad

from regard.attention import Causal, Lengths, Mask, MultiHead
from regard.attention.relative import TransformerXL
from regard.blocks import Block, FeedForward, Residual, Stack, initialise, initialise_head
from regard.blocks.conformer import ConformerBlock, ConvolutionModule
from regard.data.sound.batch import SoundBatch, SpeechBatch
from regard.data.sound.config import SoundFormat
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.models.classifier import label_parts
from regard.models.configs.hearing import ConformerConfig, ConformerTransformerConfig, HearingConfig
from regard.models.encoder_decoder import Memory
from regard.models.loss import Loss, Part
from regard.models.transformer import TransformerDecoder
from regard.noise import dropout

BLANK = 0  # the padding token: it stands for nothing


class Subsampling(nn.Module):
    """Frames (B, T, M) -> (B, ⌈T / 2ⁿ⌉, D): n convolutions with a stride of two over time and filters, then a linear layer.

    What stands behind a row's end is set to zero before each, so that it is as if nothing were there.
    """

    def __init__(self, mels: int, channels: int, width: int, halvings: int, *, causal: bool = False) -> None:
        super().__init__()
        sizes = [1, *[channels] * halvings]
        self.convolutions = nn.ModuleList(nn.Conv2d(before, after, 3, stride=2) for before, after in pairwise(sizes))
        for _ in range(halvings):
            mels = -(-mels // 2)
        self.linear = nn.Linear(sizes[-1] * mels, width)
        self.around = (2, 0) if causal else (1, 1)

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The new frames, and how many each row has."""
        x = frames[:, None]  # (B, 1, T, M)
        for convolution in self.convolutions:
            x = x * _real(lengths, x.size(2)).to(x.dtype)[:, None, :, None]
            x = convolution(pad(x, (1, 1, *self.around))).relu()
            lengths = (lengths + 1) // 2
        x = x * _real(lengths, x.size(2)).to(x.dtype)[:, None, :, None]
        return self.linear(x.transpose(1, 2).flatten(2)), lengths  # (B, T', D)


class Conformer(nn.Module):
    """Frames (B, T, M) and how many each row has -> a memory of (B, T', D)."""

    def __init__(self, config: HearingConfig, sound: SoundFormat) -> None:
        super().__init__()
        self.config, self.causal = config, config.causal
        halvings = config.subsampling.bit_length() - 1
        self.subsampling = Subsampling(sound.mels, config.channels, config.width, halvings, causal=config.causal)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))

    def forward(self, frames: Tensor, lengths: Tensor) -> Memory:
        x, lengths = self.subsampling(frames, lengths)
        x = dropout(x, self.config.dropout) if self.training else x
        full = bool((lengths == x.size(1)).all())
        mask: Mask | None = None if full else Lengths(lengths)
        real = None if full else _real(lengths, x.size(1)).to(x.dtype)[..., None]  # (B, T', 1)
        seen = mask if not self.causal else Causal() if mask is None else mask & Causal()
        for block in self.blocks:
            x = block(x, seen, real)
        return Memory(x, mask, "frames")

    def lengths(self, lengths: Tensor) -> Tensor:
        """How many frames each row has behind the subsampling."""
        return -(-lengths // self.config.subsampling)


def matrices_of(module: nn.Module) -> list[str]:
    """Names of the matrices of encoder and decoder, which Muon moves; embeddings and output layers are not among them."""
    inside = ("encoder.", "decoder.")
    return [name for name, each in module.named_parameters() if each.dim() == 2 and name.startswith(inside)]


def _block(config: HearingConfig) -> ConformerBlock:
    attention = MultiHead(
        config.width,
        config.heads,
        role="causal" if config.causal else "self",
        relative=TransformerXL(config.heads, config.width // config.heads),
    )
    convolution = ConvolutionModule(config.width, config.kernel, causal=config.causal)
    return ConformerBlock(attention, convolution, config.width, config.feed_forward, config.dropout)


def _real(lengths: Tensor, places: int) -> Tensor:
    return torch.arange(places, device=lengths.device) < lengths[:, None]  # (B, T)


def ctc_sum(logits: Tensor, lengths: Tensor, batch: SpeechBatch) -> Tensor:
    """-log p(text | frames), summed over rows: logits (B, T', V). A text that has no room in its frames counts nothing."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1).transpose(0, 1)
    sizes = batch.target_lengths - 1  # without the end token
    text = batch.target[:, 1 : 1 + max(1, int(sizes.max()))]
    return ctc_loss(wide, text, lengths, sizes, blank=BLANK, reduction="sum", zero_infinity=True)


class ConformerCTC(nn.Module):
    """`model(batch)` is the loss; `logits` tells of every frame which token it is, or none."""

    def __init__(self, config: ConformerConfig, sound: SoundFormat, vocabulary: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config, self.encoder = config, Conformer(config, sound)
        self.ctc = nn.Linear(config.width, vocabulary)
        initialise(self)
        initialise_head(self.ctc)

    @property
    def longest(self) -> int | None:
        return self.config.longest

    def hidden_matrices(self) -> list[str]:
        return matrices_of(self)

    def forward(self, batch: SpeechBatch) -> Loss:
        loss = ctc_sum(self.logits(batch), self.encoder.lengths(batch.lengths), batch)
        count = batch.target_tokens
        return Loss({"loss": Part(loss, count), "nll": Part(loss.detach(), count, weight=0.0)})

    def logits(self, batch: SpeechBatch) -> Tensor:
        return self.frame_logits(self.encoder(batch.frames, batch.lengths))

    def frame_logits(self, memory: Memory) -> Tensor:
        """Logits of the token of each frame, the blank among them: (B, T', V)."""
        x = memory.vectors
        return self.ctc(dropout(x, self.config.dropout) if self.training else x)


class ConformerTransformer(TransformerDecoder):
    """Tokens look at each other and at the frames; frames tell tokens by themselves, too, if λ is over 0."""

    config: ConformerTransformerConfig  # type: ignore[assignment]

    def __init__(
        self, config: ConformerTransformerConfig, sound: SoundFormat, vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, 0, vocabulary, smoothing)  # type: ignore[arg-type]
        width, rate = config.width, config.dropout
        self.target = TokenEmbedding(embedding_table(vocabulary, width), positions("sinusoidal", width, 256), rate)
        self.decoder = Stack(_decoder_block(config) for _ in range(config.decoder_layers))
        self.decoder_norm = nn.LayerNorm(width)
        self.encoder = Conformer(config, sound)
        self.ctc = nn.Linear(width, vocabulary) if config.ctc_weight else None
        self.finish(self.target.table)
        if self.ctc is not None:
            initialise_head(self.ctc)

    def hidden_matrices(self) -> list[str]:
        return matrices_of(self)

    def encode(self, frames: Tensor, lengths: Tensor) -> Memory:
        return self.encoder(frames, lengths)

    def forward(self, batch: SpeechBatch) -> Loss:  # type: ignore[override]
        memory = self.encode(batch.frames, batch.lengths)
        parts = self.token_parts(self.decode(batch.target[:, :-1], memory), batch)  # type: ignore[arg-type]
        if self.ctc is None:
            return Loss(parts)
        share, logits, count = self.config.ctc_weight, self.frame_logits(memory), batch.target_tokens
        ctc = ctc_sum(logits, self.encoder.lengths(batch.lengths), batch)
        loss = (1 - share) * parts["loss"].sum + share * ctc
        return Loss({**parts, "loss": Part(loss, count), "ctc": Part(ctc.detach(), count, weight=0.0)})

    def frame_logits(self, memory: Memory) -> Tensor:
        """Logits of the token of each frame, the blank among them: (B, T', V)."""
        assert self.ctc is not None
        return self.ctc(memory.vectors)


def _decoder_block(config: ConformerTransformerConfig) -> Block:
    """A block of the Transformer's decoder, norms first."""

    def around() -> Residual:
        return Residual(nn.LayerNorm(config.width), config.dropout, order="pre")

    own, cross = (MultiHead(config.width, config.heads, role=role) for role in ("causal", "cross"))
    return Block(own, cross, FeedForward(config.width, config.feed_forward), around)


class SoundClassifier(nn.Module):
    """`model(batch)` is the loss. `head` makes scores of labels from the mean of all frames, of which some is dropped.

    In training labels count by `class_weights` (labels,), if there are any; they are no part of what is saved.
    """

    class_weights: Tensor | None

    def __init__(self, config: ConformerConfig, sound: SoundFormat, labels: int, smoothing: float = 0.0) -> None:
        super().__init__()
        self.config, self.smoothing = config, smoothing
        self.encoder, self.head = Conformer(config, sound), nn.Linear(config.width, labels)
        initialise(self)
        initialise_head(self.head)
        self.register_buffer("class_weights", None, persistent=False)

    @property
    def longest(self) -> int | None:
        return self.config.longest

    def hidden_matrices(self) -> list[str]:
        return matrices_of(self)

    def forward(self, batch: SoundBatch) -> Loss:
        smoothing, weights = (self.smoothing, self.class_weights) if self.training else (0.0, None)
        return Loss(label_parts(self.logits(batch), batch.labels, smoothing, weights))

    def logits(self, batch: SoundBatch) -> Tensor:
        """Logits of the labels: (B, labels)."""
        vectors, lengths = self.encoder(batch.frames, batch.lengths).vectors, self.encoder.lengths(batch.lengths)
        real = _real(lengths, vectors.size(1)).to(vectors.dtype)[..., None]
        mean = (vectors * real).sum(dim=1) / lengths[:, None]  # (B, D)
        return self.head(dropout(mean, self.config.dropout) if self.training else mean)
