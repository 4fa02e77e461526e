"""The configuration of every model family, a tagged union on `kind`. No torch here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from regard.config import StrictConfig, open_union
from regard.models.configs.classification import (
    AdditiveConfig,
    PlainAttentionConfig,
    SelfAttentionConfig,
    TfidfConfig,
    TokenWeightsConfig,
)
from regard.models.configs.language import (
    BertConfig,
    GPT1Config,
    GPT2Config,
    GPT3Config,
    GPTConfig,
    LlamaConfig,
    LSTMConfig,
)
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
from regard.models.configs.translation import (
    BahdanauConfig,
    ByteNetConfig,
    LuongConfig,
    Seq2SeqConfig,
    TransformerConfig,
)

TranslationConfig = TransformerConfig | Seq2SeqConfig | BahdanauConfig | LuongConfig | ByteNetConfig
GPTLineConfig = GPT1Config | GPT2Config | GPT3Config | LlamaConfig
RungConfig = TfidfConfig | TokenWeightsConfig | PlainAttentionConfig | AdditiveConfig | SelfAttentionConfig
SeeingConfig = ConvNetConfig | ResNetConfig | ViTConfig | MixerConfig | ConvMixerConfig
CaptionConfig = ShowAttendTellConfig | CaptionTransformerConfig | ShowAndTellConfig
ADDED_KINDS: dict[str, type[StrictConfig]] = {}  # configurations of the kinds of models that plugins add
ModelConfig = Annotated[
    TranslationConfig
    | GPTLineConfig
    | LSTMConfig
    | BertConfig
    | RungConfig
    | SeeingConfig
    | CaptionConfig
    | AnswererConfig,
    Field(discriminator="kind"),
    *open_union(ADDED_KINDS),
]

# Which kinds each task takes; the first is what it takes when none is named.
KINDS_OF: dict[str, tuple[str, ...]] = {
    "translate": ("transformer", "seq2seq", "bahdanau", "luong", "bytenet"),
    "generate": ("llama", "gpt1", "gpt2", "gpt3", "lstm"),
    "fill": ("bert",),
    "classify": (
        "self-attention",
        "tfidf",
        "token-weights",
        "plain-attention",
        "additive",
        "bert",
        "gpt1",
        "gpt2",
        "gpt3",
        "llama",
    ),
    "classify-pictures": ("convnet", "resnet", "vit", "mixer", "convmixer"),
    "caption": ("show-attend-tell", "caption-transformer", "show-and-tell"),
    "answer": ("answerer",),
}


def all_kinds() -> tuple[str, ...]:
    """Every kind of model, those of plugins too."""
    return tuple(dict.fromkeys(kind for kinds in KINDS_OF.values() for kind in kinds))


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
    "ConvMixerConfig",
    "ConvNetConfig",
    "EfficientNetConfig",
    "EncoderConfig",
    "GPT1Config",
    "GPT2Config",
    "GPT3Config",
    "GPTConfig",
    "GPTLineConfig",
    "LSTMConfig",
    "LlamaConfig",
    "LuongConfig",
    "MixerConfig",
    "ModelConfig",
    "PlainAttentionConfig",
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
    "ViTConfig",
    "all_kinds",
    "reads_trees",
]


def reads_trees(model: ModelConfig) -> bool:
    """Whether a model's positions are those of a tree that is given with each text."""
    return isinstance(model, BertConfig) and model.positions == "tree"
