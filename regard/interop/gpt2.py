"""GPT-2 (Radford et al. 2019) as transformers writes it: fused c_attn, and linear weights that lie transposed."""

from __future__ import annotations

import re
from collections.abc import Collection

from regard.config import check
from regard.files import JSON
from regard.interop.family import MOST_LAYERS, Family, Settings, TensorRow, layer, must_be, row
from regard.models.config import GPT2Config, GPT3Config
from regard.models.configs.attention import ExactConfig

ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
}
TABLE = "transformer.wte.weight"


def read(settings: Settings, names: Collection[str]) -> GPT2Config:
    settings.only("scale_attn_weights", True)
    settings.only("scale_attn_by_inverse_layer_idx", False)
    settings.only("add_cross_attention", False)
    settings.only("quantization_config")
    width = settings.size("n_embd")
    values = {
        "layers": settings.size("n_layer", most=MOST_LAYERS),
        "width": width,
        "heads": settings.size("n_head"),
        "feed_forward": settings.size("n_inner", 4 * width),
        "max_length": settings.size("n_positions"),
        "dropout": settings.number("resid_pdrop", 0.1),  # embd_pdrop is another key; in ours they are one rate
        "attention_dropout": settings.number("attn_pdrop", 0.1),
        "epsilon": settings.number("layer_norm_epsilon", 1e-5),
        "activation": settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
        "tied": settings.flag("tie_word_embeddings", True),
    }
    return check(GPT2Config, values, settings.origin)


def write(config: GPT2Config | GPT3Config) -> dict[str, JSON]:
    must_be(config, "GPT-2", norm="pre", norm_kind="layer", positions="learned", bias=True, groups=(0, config.heads))
    must_be(config, "GPT-2", band=0, experts=0, activation=("gelu-tanh", "gelu", "relu"))
    must_be(config, "GPT-2", attention=ExactConfig(), reversible=False, random_offset=0)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": config.layers,
        "n_embd": config.width,
        "n_head": config.heads,
        "n_inner": config.feed_forward,
        "n_positions": config.max_length,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.epsilon,
        "activation_function": {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[config.activation],
        "tie_word_embeddings": config.tied,
    }


def rows(config: GPT2Config | GPT3Config) -> list[TensorRow]:
    found = [row("tokens.table.weight", TABLE), row("tokens.positions.table", "transformer.wpe.weight")]
    for number in range(config.layers):
        found += _block(f"blocks.{number}", f"transformer.h.{number}")
    found += layer("norm", "transformer.ln_f")
    return found if config.tied else [*found, row("output.weight", "lm_head.weight")]


def _block(ours: str, theirs: str) -> list[TensorRow]:
    query, key_value = f"{ours}.attention.query", f"{ours}.attention.key_value"
    return [
        *layer(f"{ours}.around_attention.norm", f"{theirs}.ln_1"),
        row((f"{query}.weight", f"{key_value}.weight"), f"{theirs}.attn.c_attn.weight", transposed=True),
        row((f"{query}.bias", f"{key_value}.bias"), f"{theirs}.attn.c_attn.bias"),
        *layer(f"{ours}.attention.out", f"{theirs}.attn.c_proj", transposed=True),
        *layer(f"{ours}.around_feed_forward.norm", f"{theirs}.ln_2"),
        *layer(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", transposed=True),
        *layer(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", transposed=True),
    ]


FAMILY = Family(
    name="gpt2",
    task="generate",
    prefix="transformer.",
    heads=("lm_head.",),
    ignored=re.compile(r"\.h\.\d+\.attn\.(bias|masked_bias)$"),
    table=TABLE,
    old_ends={},
    copies=lambda config: {"lm_head.weight": TABLE} if config.tied else {},
    read=read,
    write=write,
    rows=rows,
)
