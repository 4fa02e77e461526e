"""Models that write about a picture, and what answerers share: a memory of the picture's places, and blocks that look there."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from regard.attention import MultiHead, Role
from regard.blocks import Block, FeedForward, Residual, Stack, initialise, make_norm
from regard.blocks.recurrent import Recurrent
from regard.data.pictures.config import PictureFormat
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.embed.patches import grid_positions
from regard.errors import RegardError
from regard.models.configs.pictures import (
    AnswererConfig,
    CaptionTransformerConfig,
    ShowAndTellConfig,
    ShowAttendTellConfig,
)
from regard.models.encoder_decoder import Memory
from regard.models.pictures.classifier import make_encoder
from regard.models.pictures.encoder import PictureEncoder, View
from regard.models.recurrent import RecurrentModel, RecurrentState
from regard.models.transformer import TransformerDecoder
from regard.noise import dropout


def view_of(encoder: PictureEncoder, pixels: Tensor) -> View:
    """Encode pixels (B, C, H, W), or take features (B, P, K) that the encoder gave before, if it does not learn."""
    if pixels.dim() != 3:
        return encoder(pixels)
    if any(parameter.requires_grad for parameter in encoder.parameters()):
        raise RegardError(
            "features that were computed before are of no use to an encoder that learns",
            "give pixels "
            "(B, channels, height, width), or choose model.encoder.kind = efficientnet-lite0, which does not learn",
        )
    (rows, columns), found = encoder.grid, tuple(pixels.shape[1:])
    if found != (rows * columns, encoder.width):
        raise RegardError(
            f"features of shape {tuple(pixels.shape)} are not of this encoder, which gives {rows * columns} places of "
            f"width {encoder.width}",
            "compute them again with this model's encoder and picture size",
        )
    return encoder(pixels)


class Projection(nn.Module):
    """Project an encoder's places (B, P, K) to the width of the decoder (B, P, D): a linear layer, its norm, positions."""

    def __init__(self, inputs: int, width: int, rate: float, positions: nn.Module) -> None:
        super().__init__()
        self.linear, self.norm, self.positions, self.rate = (
            nn.Linear(inputs, width),
            nn.LayerNorm(width),
            positions,
            rate,
        )
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.positions(self.norm(self.linear(x)))
        return dropout(x, self.rate) if self.training else x


def placed_projection(encoder: PictureEncoder, config: CaptionTransformerConfig | AnswererConfig) -> Projection:
    """Where attention compares and does not read in order, a place's vector also tells its row and its column."""
    where = grid_positions("sinusoidal", config.width, encoder.grid)
    return Projection(encoder.width, config.width, config.dropout, where)


def looking_block(config: CaptionTransformerConfig | AnswererConfig, role: Role) -> Block:
    """A block of the Transformer, norms first: tokens look at each other in this role, then at the picture's places."""

    def heads(role: Role) -> MultiHead:
        return MultiHead(config.width, config.heads, role=role)

    def around() -> Residual:
        return Residual(make_norm("layer", config.width), config.dropout, order="pre")

    return Block(heads(role), heads("cross"), FeedForward(config.width, config.feed_forward), around)


class RecurrentCaptioner(RecurrentModel):
    """The base of the recurrent writers: a picture in the place of a source."""

    config: ShowAndTellConfig | ShowAttendTellConfig  # type: ignore[assignment]
    encoder: PictureEncoder  # type: ignore[assignment]

    def __init__(self, config: ShowAndTellConfig | ShowAttendTellConfig, vocabulary: int, smoothing: float) -> None:
        super().__init__(config, 0, vocabulary, smoothing)
        table = embedding_table(vocabulary, config.width)
        self.target = TokenEmbedding(table, positions("none", config.width, 0), config.dropout)

    def finish_with(self, picture_format: PictureFormat) -> None:
        """When every other part is there: fresh weights, then what sees."""
        self.finish(self.target.table)
        self.encoder = make_encoder(self.config.encoder, picture_format)
        nowhere = positions("none", self.config.width, 0)
        self.projection = Projection(self.encoder.width, self.config.width, self.config.dropout, nowhere)

    def encode(self, pixels: Tensor) -> Memory:  # type: ignore[override]
        return Memory(self.projection(self.places(view_of(self.encoder, pixels))), None, "grid")

    def places(self, view: View) -> Tensor:
        """The part of a view that the decoder reads: (B, P, K)."""
        return view.places


class ShowAndTell(RecurrentCaptioner):
    """The decoder sees the picture only through its first state."""

    config: ShowAndTellConfig

    def __init__(
        self, config: ShowAndTellConfig, picture_format: PictureFormat, vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, vocabulary, smoothing)
        self.decoder = Recurrent("lstm", config.width, config.hidden, 1, config.dropout)
        self.readout = nn.Linear(config.hidden, config.width, bias=False)
        self.finish_with(picture_format)

    def places(self, view: View) -> Tensor:
        """The whole picture as one place."""
        return view.vector[:, None]  # (B, 1, K)

    def begin(self, memory: Memory) -> RecurrentState:
        picture = memory.vectors[:, 0]  # (B, D)
        _, layers = self.decoder.step(self.decoder.gates(picture), self.decoder.zeros(len(picture)))
        return RecurrentState(layers)

    def read(self, y: Tensor, state: RecurrentState) -> Tensor:
        h, _ = self.decoder(y, state.layers)  # (B, T, hidden)
        return self._vectors(h)

    def advance(self, y: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        h, layers = self.decoder.step(self.decoder.gates(y.flatten(0, 1)), state.layers)  # (B * W, hidden)
        return self._vectors(h.view(*y.shape[:2], -1)), replace(state, layers=layers)

    def _vectors(self, h: Tensor) -> Tensor:
        out = self.readout(h)  # (B, T, D)
        return dropout(out, self.config.dropout) if self.training else out


class CaptionTransformer(TransformerDecoder):
    """Words and places both know where they are: sinusoids, of places for row and column."""

    config: CaptionTransformerConfig

    def __init__(
        self, config: CaptionTransformerConfig, picture_format: PictureFormat, vocabulary: int, smoothing: float = 0.0
    ) -> None:
        super().__init__(config, 0, vocabulary, smoothing)
        width, rate = config.width, config.dropout
        self.target = TokenEmbedding(embedding_table(vocabulary, width), positions("sinusoidal", width, 256), rate)
        self.decoder = Stack(looking_block(config, "causal") for _ in range(config.layers))
        self.decoder_norm = nn.LayerNorm(width)
        self.finish(self.target.table)
        self.encoder = make_encoder(config.encoder, picture_format)
        self.projection = placed_projection(self.encoder, config)

    def encode(self, pixels: Tensor) -> Memory:
        return Memory(self.projection(view_of(self.encoder, pixels).places), None, "grid")
