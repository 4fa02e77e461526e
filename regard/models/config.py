"""The configuration of every model family, a tagged union on `kind`. No torch here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from regard.config import StrictConfig
from regard.errors import UsageError, nearest


class TransformerConfig(StrictConfig):
    """The encoder-decoder Transformer (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(4, ge=1, description="Blocks of the encoder.")
    decoder_layers: int = Field(4, ge=1, description="Blocks of the decoder.")
    width: int = Field(128, ge=1, description="Width D of every vector between blocks.")
    heads: int = Field(4, ge=1, description="Heads H; they divide the width.")
    feed_forward: int = Field(256, ge=1, description="Inner width F of the feed-forward layers.")
    activation: Literal["relu", "gelu"] = Field("relu", description="Activation inside the feed-forward layers.")
    norm: Literal["post", "pre"] = Field("pre", description="Layer norm after each residual (the paper) or before.")
    positions: Literal["sinusoidal", "learned", "none"] = Field("sinusoidal", description="How positions are told.")
    max_length: int = Field(1024, ge=1, description="Longest sequence, in tokens, for learned positions.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings and on the output of each sub-layer.")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights (takes the slow path).")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout inside the feed-forward layers.")
    tied: Literal["all", "target", "none"] = Field(
        "all", description="Which tables are one: source, target and output; target and output; or none."
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> TransformerConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be split into {self.heads} heads; choose a divisor")
        return self


ModelConfig = TransformerConfig  # becomes a union, discriminated by `kind`, when a second family joins

PRESETS: dict[str, dict[str, Any]] = {
    "demo": {"encoder_layers": 2, "decoder_layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0},
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "heads": 4, "feed_forward": 256, "dropout": 0.3},
    "base": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "width": 512,
        "heads": 8,
        "feed_forward": 2048,
        "norm": "post",
    },
    "big": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "width": 1024,
        "heads": 16,
        "feed_forward": 4096,
        "norm": "post",
        "dropout": 0.3,
    },
}


def preset(name: str) -> dict[str, Any]:
    """The values of a named model size; base and big are those of the paper's table 3."""
    if name not in PRESETS:
        raise UsageError(f"no preset {name}{nearest(name, PRESETS)}")
    return dict(PRESETS[name])
