"""Which class builds which kind of model: one explicit table."""

from __future__ import annotations

from regard.models.bahdanau import Bahdanau
from regard.models.bytenet import ByteNet
from regard.models.config import ModelConfig
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.luong import Luong
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer

FAMILIES: dict[str, type[EncoderDecoder]] = {
    "transformer": Transformer,
    "luong": Luong,
    "bahdanau": Bahdanau,
    "seq2seq": Seq2Seq,
    "bytenet": ByteNet,
}


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, smoothing: float = 0.0
) -> EncoderDecoder:
    """A model with fresh weights (seed torch first for repeatable ones)."""
    return FAMILIES[config.kind](config, source_vocabulary, target_vocabulary, smoothing)
