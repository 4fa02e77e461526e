"""The kinds of models by name: which tasks take them, and where their configurations stand. No torch here.

Nothing of a kind is imported before it is asked for: who loads one model reads the configuration of that kind alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator

from regard.config import StrictConfig
from regard.plugins import NamedParts

PIXELS = ("pixelcnn", "pixelrnn", "image-transformer")  # kinds that write pictures, and nothing else
# Which kinds each task takes; the first is what it takes when none is named.
KINDS_OF: dict[str, tuple[str, ...]] = {
    "translate": ("transformer", "seq2seq", "bahdanau", "luong", "bytenet", "decoder-only"),
    "generate": ("llama", "gpt1", "gpt2", "gpt3", "lstm", "wavenet", *PIXELS),
    "align": ("llama", "gpt1", "gpt2", "gpt3", "lstm"),
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
    "ask": ("memory-network", "lstm", "bert"),
    "remember": ("turing-machine", "lstm", "llama", "ponder"),
    "compute": ("programmer",),
    "transcribe": ("conformer", "conformer-transformer"),
    "classify-sounds": ("conformer",),
    "classify-graphs": ("gat", "gatv2", "gcn", "graph-transformer"),
}

ADDED_KINDS: dict[str, type[StrictConfig]] = {}  # configurations of the kinds of models that plugins add
_NAMES = {
    "translation": {
        "transformer": "TransformerConfig",
        "seq2seq": "Seq2SeqConfig",
        "bahdanau": "BahdanauConfig",
        "luong": "LuongConfig",
        "bytenet": "ByteNetConfig",
        "decoder-only": "DecoderOnlyConfig",
    },
    "language": {
        "gpt1": "GPT1Config",
        "gpt2": "GPT2Config",
        "gpt3": "GPT3Config",
        "llama": "LlamaConfig",
        "lstm": "LSTMConfig",
        "wavenet": "WaveNetConfig",
        "bert": "BertConfig",
    },
    "pixels": {
        "pixelcnn": "PixelCNNConfig",
        "pixelrnn": "PixelRNNConfig",
        "image-transformer": "ImageTransformerConfig",
    },
    "classification": {
        "tfidf": "TfidfConfig",
        "token-weights": "TokenWeightsConfig",
        "plain-attention": "PlainAttentionConfig",
        "additive": "AdditiveConfig",
        "self-attention": "SelfAttentionConfig",
    },
    "pictures": {
        "convnet": "ConvNetConfig",
        "resnet": "ResNetConfig",
        "vit": "ViTConfig",
        "mixer": "MixerConfig",
        "convmixer": "ConvMixerConfig",
        "show-attend-tell": "ShowAttendTellConfig",
        "caption-transformer": "CaptionTransformerConfig",
        "show-and-tell": "ShowAndTellConfig",
        "answerer": "AnswererConfig",
    },
    "memory": {
        "memory-network": "MemoryNetworkConfig",
        "turing-machine": "TuringMachineConfig",
        "ponder": "PonderConfig",
        "programmer": "ProgrammerConfig",
    },
    "hearing": {
        "conformer": "ConformerConfig",
        "conformer-transformer": "ConformerTransformerConfig",
    },
    "graphs": {
        "gat": "GATConfig",
        "gatv2": "GATv2Config",
        "gcn": "GCNConfig",
        "graph-transformer": "GraphTransformerConfig",
    },
}
CONFIGS = NamedParts[type[StrictConfig]](
    {kind: f"regard.models.configs.{file}:{name}" for file, names in _NAMES.items() for kind, name in names.items()}
)


def all_kinds() -> tuple[str, ...]:
    """Every kind of model, those of plugins too."""
    return tuple(dict.fromkeys(kind for kinds in KINDS_OF.values() for kind in kinds))


def config_of_kind(value: object) -> StrictConfig:
    """The configuration of a model, checked by that of its kind alone."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    table = ADDED_KINDS if kind in ADDED_KINDS else CONFIGS
    if not isinstance(kind, str) or kind not in table:
        raise ValueError(f"no kind {kind}")
    return table[kind].model_validate(value)


if TYPE_CHECKING:
    from regard.models.config import ModelConfig as OneModelConfig
else:
    OneModelConfig = Annotated[Any, PlainValidator(config_of_kind)]  # as `ModelConfig`, without importing every kind
