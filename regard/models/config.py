"""The configuration of every model family, a tagged union on `kind`. No torch here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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
ModelConfig = Annotated[
    TranslationConfig | GPTLineConfig | LSTMConfig | BertConfig | RungConfig, Field(discriminator="kind")
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
}
KINDS = tuple(dict.fromkeys(kind for kinds in KINDS_OF.values() for kind in kinds))

__all__ = [
    "KINDS",
    "KINDS_OF",
    "AdditiveConfig",
    "BahdanauConfig",
    "BertConfig",
    "ByteNetConfig",
    "GPT1Config",
    "GPT2Config",
    "GPT3Config",
    "GPTConfig",
    "GPTLineConfig",
    "LSTMConfig",
    "LlamaConfig",
    "LuongConfig",
    "ModelConfig",
    "PlainAttentionConfig",
    "RungConfig",
    "SelfAttentionConfig",
    "Seq2SeqConfig",
    "TfidfConfig",
    "TokenWeightsConfig",
    "TransformerConfig",
    "TranslationConfig",
]
