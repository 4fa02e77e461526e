"""What models that write or answer about a picture share: how it becomes a memory of places, and blocks that look there."""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention import MultiHead, Role
from regard.blocks import Around, Block, FeedForward, initialise, make_norm
from regard.data.pictures.format import PictureFormat
from regard.embed import TokenEmbedding, embedding_table, positions
from regard.embed.patches import grid_positions
from regard.errors import RegardError
from regard.models.configs.pictures import (
    AnswererConfig,
    CaptionTransformerConfig,
    EncoderConfig,
    ShowAndTellConfig,
    ShowAttendTellConfig,
)
from regard.models.memory import Memory
from regard.models.pictures.encoder import PictureEncoder, View
from regard.models.recurrent import RecurrentModel
from regard.noise import dropout


def encoder_of(config: EncoderConfig, format: PictureFormat) -> PictureEncoder:
    """What sees the picture, with its own fresh weights: it is built when the rest of a model has been initialised."""
    from regard.models.pictures.table import make_encoder

    return make_encoder(config, format)


def view_of(encoder: PictureEncoder, pixels: Tensor) -> View:
    """What the encoder sees in pixels (B, C, H, W), or features (B, P, K) that it gave before, if it does not learn."""
    if pixels.dim() != 3:
        return encoder(pixels)
    if any(parameter.requires_grad for parameter in encoder.parameters()):
        raise RegardError(
            "features that were computed before are of no use to an encoder that learns; give pixels "
            "(B, channels, height, width), or choose model.encoder.kind = efficientnet-lite0, which does not learn"
        )
    (rows, columns), found = encoder.grid, tuple(pixels.shape[1:])
    if found != (rows * columns, encoder.width):
        raise RegardError(
            f"features of shape {tuple(pixels.shape)} are not of this encoder, which gives {rows * columns} places of "
            f"width {encoder.width}; compute them again with this model's encoder and picture size"
        )
    return encoder(pixels)


class Projection(nn.Module):
    """What an encoder saw, (B, P, K), at the width of what looks at it, (B, P, D): a layer, its norm, where each place is."""

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

    def around() -> Around:
        return Around(make_norm("layer", config.width), config.dropout, order="pre")

    return Block(heads(role), heads("cross"), FeedForward(config.width, config.feed_forward), around)


class RecurrentCaptioner(RecurrentModel):
    """The base of the recurrent writers: a picture in the place of a source."""

    config: ShowAndTellConfig | ShowAttendTellConfig  # type: ignore[assignment]
    encoder: PictureEncoder  # type: ignore[assignment]

    def __init__(self, config: ShowAndTellConfig | ShowAttendTellConfig, vocabulary: int, smoothing: float) -> None:
        super().__init__(config, 0, vocabulary, smoothing)
        table = embedding_table(vocabulary, config.width)
        self.target = TokenEmbedding(table, positions("none", config.width, 0), config.dropout)

    def finish_with(self, format: PictureFormat) -> None:
        """When every other part is there: fresh weights, then what sees."""
        self.finish(self.target.table)
        self.encoder = encoder_of(self.config.encoder, format)
        nowhere = positions("none", self.config.width, 0)
        self.projection = Projection(self.encoder.width, self.config.width, self.config.dropout, nowhere)

    def encode(self, pixels: Tensor) -> Memory:  # type: ignore[override]
        return Memory(self.projection(self.places(view_of(self.encoder, pixels))), None, "grid")

    def places(self, view: View) -> Tensor:
        """What of a view the decoder gets to know: (B, P, K)."""
        return view.places
