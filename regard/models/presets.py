"""Sizes of models by name: demo, tiny, small, base, big. No torch here."""

from __future__ import annotations

from regard.config import Tables
from regard.errors import UsageError, nearest
from regard.models.kinds import all_kinds

PRESETS: dict[str, dict[str, Tables]] = {  # size -> kind -> values
    "demo": {
        "transformer": {
            "encoder_layers": 2,
            "decoder_layers": 2,
            "width": 64,
            "heads": 4,
            "feed_forward": 128,
            "dropout": 0.0,
        },
        "seq2seq": {"width": 64, "hidden": 128, "dropout": 0.0},
        "bahdanau": {"width": 64, "hidden": 96, "dropout": 0.0},
        "luong": {"width": 64, "hidden": 96, "dropout": 0.0},
        "bytenet": {"width": 64, "channels": 128, "dropout": 0.0},
        "decoder-only": {"layers": 4, "width": 64, "feed_forward": 128, "dropout": 0.0},
        "gpt1": {"layers": 2, "width": 64, "feed_forward": 256, "dropout": 0.0},
        "gpt2": {"layers": 2, "width": 64, "feed_forward": 256, "dropout": 0.0},
        "gpt3": {"layers": 2, "width": 64, "feed_forward": 256, "dropout": 0.0, "band": 32},
        "llama": {"layers": 2, "width": 64, "feed_forward": 172, "dropout": 0.0},
        "lstm": {"width": 64, "hidden": 128, "dropout": 0.0},
        "bert": {"layers": 2, "width": 64, "feed_forward": 256, "dropout": 0.0},
        "tfidf": {},
        "token-weights": {"width": 64, "dropout": 0.0},
        "plain-attention": {"width": 64, "dropout": 0.0},
        "additive": {"width": 64, "hidden": 64, "dropout": 0.0},
        "self-attention": {"width": 64, "dropout": 0.0},
        "convnet": {"channels": (16, 32), "dropout": 0.0},
        "resnet": {"channels": (16, 32), "blocks": 1, "dropout": 0.0},
        "vit": {"layers": 2, "width": 64, "feed_forward": 128, "dropout": 0.0},
        "mixer": {"layers": 2, "width": 64, "places": 32, "feed_forward": 128, "dropout": 0.0},
        "convmixer": {"layers": 2, "width": 64},
        "show-attend-tell": {"width": 64, "hidden": 128, "attention": 32, "dropout": 0.0},
        "caption-transformer": {"width": 64, "feed_forward": 128, "dropout": 0.0},
        "show-and-tell": {"width": 64, "hidden": 128, "dropout": 0.0},
        "answerer": {"width": 64, "feed_forward": 128, "dropout": 0.0},
        "memory-network": {"width": 32},
        "turing-machine": {},
        "ponder": {},
        "programmer": {},
    },
    "tiny": {
        "transformer": {
            "encoder_layers": 4,
            "decoder_layers": 4,
            "width": 128,
            "heads": 4,
            "feed_forward": 256,
            "dropout": 0.3,
        },
        "seq2seq": {},
        "bahdanau": {},
        "luong": {},
        "bytenet": {},
        "decoder-only": {"dropout": 0.3},
        "gpt1": {},
        "gpt2": {},
        "gpt3": {},
        "llama": {},
        "lstm": {},
        "bert": {},
        "tfidf": {},
        "token-weights": {},
        "plain-attention": {},
        "additive": {},
        "self-attention": {},
        "convnet": {},
        "resnet": {},
        "vit": {},
        "mixer": {},
        "convmixer": {},
        "show-attend-tell": {},
        "caption-transformer": {},
        "show-and-tell": {},
        "answerer": {},
        "memory-network": {},
        "turing-machine": {},
        "ponder": {},
        "programmer": {},
    },
    "small": {
        "gpt1": {"layers": 6, "width": 256, "heads": 8, "feed_forward": 1024},
        "gpt2": {"layers": 6, "width": 256, "heads": 8, "feed_forward": 1024},
        "gpt3": {"layers": 6, "width": 256, "heads": 8, "feed_forward": 1024},
        "llama": {"layers": 6, "width": 256, "heads": 8, "feed_forward": 688},
        "lstm": {"layers": 2, "width": 256, "hidden": 512},
        "bert": {"layers": 6, "width": 256, "heads": 8, "feed_forward": 1024},
        "convnet": {"channels": (64, 128, 256)},
        "resnet": {"channels": (64, 128, 256)},
        "vit": {"layers": 8, "width": 256, "heads": 8, "feed_forward": 512},
        "mixer": {"layers": 8, "width": 256, "places": 128, "feed_forward": 512},
        "convmixer": {"layers": 8, "width": 256},
        "show-attend-tell": {"width": 256, "hidden": 512},
        "caption-transformer": {"width": 256, "layers": 3, "heads": 8, "feed_forward": 1024},
        "show-and-tell": {"width": 256, "hidden": 512},
        "answerer": {"width": 256, "layers": 3, "heads": 8, "feed_forward": 1024},
        "memory-network": {"width": 128},
    },
    "base": {
        "transformer": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "width": 512,
            "heads": 8,
            "feed_forward": 2048,
            "norm": "post",
        },
        "seq2seq": {"width": 1000, "hidden": 1000, "layers": 4, "dropout": 0.0},
        "bahdanau": {"width": 620, "hidden": 2000, "dropout": 0.0},
        "luong": {"width": 1000, "hidden": 1000, "layers": 4, "dropout": 0.2},
        "bytenet": {
            "width": 1600,
            "channels": 1600,
            "sets": 6,
            "dilations": (1, 2, 4, 8, 16),
            "extra": 0,
            "dropout": 0.0,
        },
        "decoder-only": {"layers": 12, "width": 512, "heads": 8, "feed_forward": 2048},
        "gpt1": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072},
        "gpt2": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072, "max_length": 1024},
        "gpt3": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072, "max_length": 2048, "band": 256},
        "llama": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 2048, "max_length": 2048, "dropout": 0.0},
        "lstm": {"layers": 2, "width": 650, "hidden": 650, "dropout": 0.5},
        "bert": {"layers": 12, "width": 768, "heads": 12, "feed_forward": 3072},
        "resnet": {"channels": (64, 128, 256, 512)},
        "vit": {"patch": 16, "layers": 12, "width": 768, "heads": 12, "feed_forward": 3072},
        "mixer": {"patch": 16, "layers": 12, "width": 768, "places": 384, "feed_forward": 3072},
        "convmixer": {"patch": 7, "layers": 20, "width": 1536, "kernel": 9},
        "show-attend-tell": {"width": 512, "hidden": 1024},
        "show-and-tell": {"width": 512, "hidden": 512},
    },
    "big": {
        "transformer": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "width": 1024,
            "heads": 16,
            "feed_forward": 4096,
            "norm": "post",
            "dropout": 0.3,
        },
    },
}


def preset(size: str, kind: str = "transformer") -> Tables:
    """The values of a named size of a kind of model; base is about that of each kind's own paper."""
    if size not in PRESETS:
        raise UsageError(f"no preset {size}", nearest(size, PRESETS))
    if kind not in all_kinds():
        raise UsageError(f"no model.kind {kind}", nearest(kind, all_kinds()))
    if kind not in PRESETS[size]:
        sizes = ", ".join(name for name, kinds in PRESETS.items() if kind in kinds)
        raise UsageError(f"no preset {size} of {kind}; there are {sizes}")
    return {"kind": kind, **PRESETS[size][kind]}
