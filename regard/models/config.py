"""The configuration of every model family, a tagged union on `kind`. No torch here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from regard.config import open_union
from regard.models.configs.classification import (
    AdditiveConfig,
    PlainAttentionConfig,
    SelfAttentionConfig,
    TfidfConfig,
    TokenWeightsConfig,
)
from regard.models.configs.graphs import GATConfig, GATv2Config, GCNConfig, GraphTransformerConfig
from regard.models.configs.hearing import ConformerConfig, ConformerTransformerConfig
from regard.models.configs.language import (
    BertConfig,
    GPT1Config,
    GPT2Config,
    GPT3Config,
    GPTConfig,
    LlamaConfig,
    LSTMConfig,
    WaveNetConfig,
)
from regard.models.configs.memory import MemoryNetworkConfig, PonderConfig, ProgrammerConfig, TuringMachineConfig
from regard.models.configs.pictures import (
    AnswererConfig,
    CaptionerConfig,
    CaptionTransformerConfig,
    ConvMixerConfig,
    ConvNetConfig,
    EfficientNetConfig,
    EncoderConfig,
    MixerConfig,
    ResNetConfig,
    ShowAndTellConfig,
    ShowAttendTellConfig,
    ViTConfig,
)
from regard.models.configs.pixels import ImageTransformerConfig, PixelCNNConfig, PixelRNNConfig
from regard.models.configs.translation import (
    BahdanauConfig,
    ByteNetConfig,
    DecoderOnlyConfig,
    LuongConfig,
    Seq2SeqConfig,
    TransformerConfig,
)
from regard.models.kinds import ADDED_KINDS, KINDS_OF, all_kinds

PixelConfig = PixelCNNConfig | PixelRNNConfig | ImageTransformerConfig
TranslationConfig = TransformerConfig | Seq2SeqConfig | BahdanauConfig | LuongConfig | ByteNetConfig | DecoderOnlyConfig
GPTLineConfig = GPT1Config | GPT2Config | GPT3Config | LlamaConfig
RungConfig = TfidfConfig | TokenWeightsConfig | PlainAttentionConfig | AdditiveConfig | SelfAttentionConfig
SeeingConfig = ConvNetConfig | ResNetConfig | ViTConfig | MixerConfig | ConvMixerConfig
GraphConfig = GATConfig | GATv2Config | GCNConfig | GraphTransformerConfig
CaptionConfig = ShowAttendTellConfig | CaptionTransformerConfig | ShowAndTellConfig
ModelConfig = Annotated[
    TranslationConfig
    | GPTLineConfig
    | LSTMConfig
    | WaveNetConfig
    | PixelConfig
    | BertConfig
    | RungConfig
    | SeeingConfig
    | CaptionConfig
    | AnswererConfig
    | MemoryNetworkConfig
    | TuringMachineConfig
    | PonderConfig
    | ProgrammerConfig
    | ConformerConfig
    | ConformerTransformerConfig
    | GraphConfig,
    Field(discriminator="kind"),
    *open_union(ADDED_KINDS),
]

__all__ = [
    "ADDED_KINDS",
    "KINDS_OF",
    "AdditiveConfig",
    "AnswererConfig",
    "BahdanauConfig",
    "BertConfig",
    "ByteNetConfig",
    "CaptionConfig",
    "CaptionTransformerConfig",
    "CaptionerConfig",
    "ConformerConfig",
    "ConformerTransformerConfig",
    "ConvMixerConfig",
    "ConvNetConfig",
    "DecoderOnlyConfig",
    "EfficientNetConfig",
    "EncoderConfig",
    "GATConfig",
    "GATv2Config",
    "GCNConfig",
    "GPT1Config",
    "GPT2Config",
    "GPT3Config",
    "GPTConfig",
    "GPTLineConfig",
    "GraphConfig",
    "GraphTransformerConfig",
    "ImageTransformerConfig",
    "LSTMConfig",
    "LlamaConfig",
    "LuongConfig",
    "MemoryNetworkConfig",
    "MixerConfig",
    "ModelConfig",
    "PixelCNNConfig",
    "PixelConfig",
    "PixelRNNConfig",
    "PlainAttentionConfig",
    "PonderConfig",
    "ProgrammerConfig",
    "ResNetConfig",
    "RungConfig",
    "SeeingConfig",
    "SelfAttentionConfig",
    "Seq2SeqConfig",
    "ShowAndTellConfig",
    "ShowAttendTellConfig",
    "TfidfConfig",
    "TokenWeightsConfig",
    "TransformerConfig",
    "TranslationConfig",
    "TuringMachineConfig",
    "ViTConfig",
    "WaveNetConfig",
    "all_kinds",
    "reads_trees",
]


def reads_trees(model: ModelConfig) -> bool:
    """Whether a model's positions are those of a tree that is given with each text."""
    return isinstance(model, BertConfig) and model.positions == "tree"
