"""Which class builds which kind of model: one explicit table."""

from __future__ import annotations

from regard.models.config import ModelConfig
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.transformer import Transformer

FAMILIES: dict[str, type[EncoderDecoder]] = {
    "transformer": Transformer,
}


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
) -> EncoderDecoder:
    """A model with fresh weights (seed torch first for repeatable ones)."""
    return FAMILIES[config.kind](config, source_vocabulary, target_vocabulary, smoothing)
