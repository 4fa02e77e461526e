"""LLaMA (Touvron et al. 2023) as transformers writes it: rotary positions over the two halves of a head, as ours."""

from __future__ import annotations

import re
from collections.abc import Collection

from regard.config import check
from regard.errors import RegardError
from regard.files import JSON
from regard.interop.family import MOST_LAYERS, Family, Settings, TensorRow, layer, must_be, row
from regard.models.config import LlamaConfig
from regard.models.configs.attention import ExactConfig

TABLE = "model.embed_tokens.weight"
LONGEST = 2**20  # positions, for which a table of angles is kept


def read(settings: Settings, names: Collection[str]) -> LlamaConfig:
    settings.choice("hidden_act", {"silu": "swiglu", "swish": "swiglu"}, "silu")
    settings.only("sliding_window")
    settings.only("quantization_config")
    width, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    settings.only("head_dim", width // heads)
    groups = settings.size("num_key_value_heads", heads)
    values = {
        "layers": settings.size("num_hidden_layers", most=MOST_LAYERS),
        "width": width,
        "heads": heads,
        "groups": 0 if groups == heads else groups,
        "feed_forward": settings.size("intermediate_size"),
        "max_length": settings.size("max_position_embeddings", 2048, most=LONGEST),
        "dropout": 0.0,
        "attention_dropout": settings.number("attention_dropout", 0.0),
        "epsilon": settings.number("rms_norm_eps", 1e-6),
        "rotary_base": _rotary_base(settings),
        "bias": _bias(settings),
        "tied": settings.flag("tie_word_embeddings", False),
    }
    return check(LlamaConfig, values, settings.origin)


def write(config: LlamaConfig) -> dict[str, JSON]:
    must_be(config, "LLaMA", norm="pre", norm_kind="rms", positions="rotary", activation="swiglu", band=0, experts=0)
    must_be(config, "LLaMA", attention=ExactConfig(), reversible=False, rotary_scale=1.0)
    return {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.groups or config.heads,
        "head_dim": config.width // config.heads,
        "intermediate_size": config.feed_forward,
        "max_position_embeddings": config.max_length,
        "hidden_act": "silu",
        "attention_dropout": config.attention_dropout,
        "rms_norm_eps": config.epsilon,
        "rope_theta": config.rotary_base,  # transformers 4 reads this key, 5 the next
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "tie_word_embeddings": config.tied,
    }


def rows(config: LlamaConfig) -> list[TensorRow]:
    found = [row("tokens.table.weight", TABLE)]
    for number in range(config.layers):
        found += _block(f"blocks.{number}", f"model.layers.{number}", config.bias)
    found += layer("norm", "model.norm", bias=False)
    return found if config.tied else [*found, row("output.weight", "lm_head.weight")]


def _block(ours: str, theirs: str, bias: bool) -> list[TensorRow]:
    attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
    found = [
        *layer(f"{ours}.around_attention.norm", f"{theirs}.input_layernorm", bias=False),
        *layer(f"{ours}.around_feed_forward.norm", f"{theirs}.post_attention_layernorm", bias=False),
    ]
    for kind in ("weight", "bias") if bias else ("weight",):
        found += [
            row(f"{ours}.attention.query.{kind}", f"{attention}.q_proj.{kind}"),
            row(f"{ours}.attention.key_value.{kind}", (f"{attention}.k_proj.{kind}", f"{attention}.v_proj.{kind}")),
            row(f"{ours}.attention.out.{kind}", f"{attention}.o_proj.{kind}"),
            row(f"{ours}.feed_forward.gate_up.{kind}", (f"{mlp}.gate_proj.{kind}", f"{mlp}.up_proj.{kind}")),
            row(f"{ours}.feed_forward.down.{kind}", f"{mlp}.down_proj.{kind}"),
        ]
    return found


def _rotary_base(settings: Settings) -> float:
    """rope_theta, at the top (transformers 4) or inside rope_parameters (5), of angles that are not scaled."""
    for key in ("rope_scaling", "rope_parameters"):
        inside = settings.values.get(key)
        if inside is None:
            continue
        if not isinstance(inside, dict):
            raise RegardError(f"{settings.origin}: {key} is {inside!r}", "it should be a table")
        rope = Settings(inside, f"{settings.origin}: {key}")
        rope.only("rope_type", "default")
        rope.only("type", "default")
        rope.only("partial_rotary_factor", 1.0)
        unknown = sorted(inside.keys() - {"rope_type", "type", "partial_rotary_factor", "rope_theta"})
        if unknown:
            raise RegardError(f"{settings.origin}: {key} has {', '.join(unknown)}, which Regard cannot express")
        if "rope_theta" in inside:
            return rope.number("rope_theta", 10_000.0)
    return settings.number("rope_theta", 10_000.0)


def _bias(settings: Settings) -> bool:
    attention, mlp = settings.flag("attention_bias", False), settings.flag("mlp_bias", False)
    if attention != mlp:
        raise RegardError(
            f"{settings.origin}: attention_bias is {attention} and mlp_bias is {mlp}",
            "in Regard all linear layers of a model have biases, or none",
        )
    return attention


FAMILY = Family(
    name="llama",
    task="generate",
    prefix="model.",
    heads=("lm_head.",),
    ignored=re.compile(r"\.rotary_emb\.inv_freq$"),
    table=TABLE,
    old_ends={},
    copies=lambda config: {"lm_head.weight": TABLE} if config.tied else {},
    read=read,
    write=write,
    rows=rows,
)
