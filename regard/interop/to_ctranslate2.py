"""A bundle as a folder that CTranslate2 runs, made through its own specification classes (`ctranslate2.specs`).

The encoder-decoder Transformer becomes a `TransformerSpec`, GPT's line and LLaMA a `TransformerDecoderModelSpec`. Ids are
the same on both sides. Weights are written in float32; CTranslate2 makes them int8 or float16 when it loads them, if asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.blocks import Block, GatedFeedForward, Residual
from regard.bundle import Bundle
from regard.embed import sinusoid
from regard.errors import RegardError
from regard.files import new_folder
from regard.interop.family import library, must_be_known_to, must_be_usual
from regard.interop.folder import refuse_to_replace
from regard.models.config import GPTLineConfig, TransformerConfig
from regard.models.configs.attention import ExactConfig
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.tokens import TextTokenizer

NAME = "CTranslate2"
KINDS = {"translate": ("transformer",), "generate": ("gpt1", "gpt2", "gpt3", "llama")}
POSITIONS = ("rotary", "sinusoidal", "learned")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "swiglu": "SWISH"}
Spec = Any  # of a layer: the library has no types


def export_ctranslate2(bundle: Bundle, path: str | Path) -> Path:
    """Write a new folder that `ctranslate2.Translator` or `ctranslate2.Generator` loads, with the tokenizers beside."""
    path = Path(path)
    check_ctranslate2(bundle)
    refuse_to_replace(path)
    with new_folder(path) as inside:
        write_ctranslate2(bundle, inside)
    return path


def check_ctranslate2(bundle: Bundle) -> None:
    """Refuse in words whatever CTranslate2 cannot express, and a machine that does not have it."""
    config, task = bundle.config.model, bundle.config.task
    if config.kind not in KINDS.get(task, ()):
        raise RegardError(
            f"a {config.kind} for {task} has no equal in {NAME}",
            "transformer for translate, and gpt1, gpt2, gpt3 (without a band) and llama for generate can be exported",
        )
    must_be_usual(NAME, config)
    if isinstance(config, TransformerConfig):
        exact = dict.fromkeys(("encoder_attention", "decoder_attention", "cross_attention"), ExactConfig())
        must_be_known_to(NAME, config, positions=POSITIONS, norm=("pre", "post"), residual=True, **exact)
    elif isinstance(config, GPTLineConfig):
        must_be_known_to(NAME, config, positions=POSITIONS, norm=("pre", "post"), band=0, experts=0)
        must_be_known_to(NAME, config, attention=ExactConfig(), reversible=False)
    library("ctranslate2", "fast")


def reach_of(config: TransformerConfig | GPTLineConfig) -> int | None:
    """Positions of a sequence that the written model knows; None: any number. Angles are computed, tables are not."""
    if isinstance(config, GPTLineConfig):
        return config.window
    return None if config.positions == "rotary" else config.longest or config.max_length


def write_ctranslate2(bundle: Bundle, folder: Path) -> None:
    """Write the model, its vocabularies and its tokenizers into a folder that is there."""
    specs = library("ctranslate2", "fast").specs
    is_pair = bundle.config.task == "translate"
    spec = _translator(specs, bundle) if is_pair else _generator(specs, bundle)
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))
    bundle.tokenizers.save(folder)


def _translator(specs: Any, bundle: Bundle) -> Spec:
    config, model = cast("TransformerConfig", bundle.config.model), cast("Transformer", bundle.model)
    parts = {
        "num_heads": config.heads,
        "pre_norm": config.norm == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation]],
        **_rotary(config.positions),
    }
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, **parts)
    decoder = specs.TransformerDecoderSpec(config.decoder_layers, **parts)
    spec = specs.TransformerSpec(encoder, decoder)
    _embeddings(encoder, encoder.embeddings[0], model.source.table, scaled=True)
    _embeddings(decoder, decoder.embeddings, model.target.table, scaled=True)
    for half, positions in ((encoder, model.source.positions), (decoder, model.target.positions)):
        _positions(half, config, positions)
    _blocks(encoder, model.encoder.each(), model.encoder_norm)
    _blocks(decoder, model.decoder.each(), model.decoder_norm)
    _linear(decoder.projection, model.output)
    source, target = bundle.config.vocabulary
    spec.register_source_vocabulary(bundle.tokenizers.source.vocabulary(source))
    spec.register_target_vocabulary(bundle.tokenizers.target.vocabulary(target))
    _specials(spec.config, bundle.tokenizers.target)
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-5  # of torch's layer norm
    return spec


def _generator(specs: Any, bundle: Bundle) -> Spec:
    config, model = cast("GPTLineConfig", bundle.config.model), cast("GPT", bundle.model)
    spec = specs.TransformerDecoderModelSpec.from_config(
        config.layers,
        config.heads,
        pre_norm=config.norm == "pre",
        activation=specs.Activation[ACTIVATIONS[config.activation]],
        ffn_glu=config.activation == "swiglu",
        rms_norm=config.norm_kind == "rms",
        num_heads_kv=config.groups or config.heads,
        **_rotary(config.positions, config.rotary_base, config.rotary_scale, specs.RotaryScalingType.Linear),
    )
    decoder = spec.decoder
    _embeddings(decoder, decoder.embeddings, model.tokens.table, scaled=False)
    _positions(decoder, config, model.tokens.positions)
    _blocks(decoder, model.blocks.each(), model.norm)
    _linear(decoder.projection, model.output)
    spec.register_vocabulary(bundle.tokenizer.vocabulary(bundle.config.vocabulary[0]))
    _specials(spec.config, bundle.tokenizer)
    spec.config.layer_norm_epsilon = config.epsilon
    return spec


def _rotary(positions: str, base: float = 10_000.0, scale: float = 1.0, linear: Any = None) -> dict[str, Any]:
    """Rotary positions over the two halves of a whole head, their angles interpolated if there is a scale."""
    if positions != "rotary":
        return {}
    scaling = {} if scale == 1.0 else {"rotary_scaling_type": linear, "rotary_scaling_factor": scale}
    return {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": base, **scaling}


def _embeddings(half: Spec, spec: Spec, table: nn.Embedding, *, scaled: bool) -> None:
    spec.weight = _array(table.weight)
    half.scale_embeddings = scaled  # by √D


def _positions(half: Spec, config: TransformerConfig | GPTLineConfig, module: nn.Module) -> None:
    """The vectors that are added. CTranslate2's own sinusoid begins at 1 and is not interleaved, so ours is written out."""
    if config.positions == "rotary":
        return
    fixed = config.positions == "sinusoidal"
    table = sinusoid(config.max_length, config.width) if fixed else next(module.parameters())
    half.position_encodings.encodings = _array(table)


def _blocks(half: Spec, blocks: Any, last: nn.Module) -> None:
    for layer, block in zip(half.layer, blocks, strict=True):
        _block(layer, block)
    if half.pre_norm:
        _norm(half.layer_norm, last)


def _block(layer: Spec, block: Block) -> None:
    own = cast("MultiHead", block.attention)
    _sublayer(layer.self_attention, block.around_attention)
    _heads(layer.self_attention, own, [own.query, own.key_value], [own.out])
    if block.cross is not None:
        other = block.cross
        _sublayer(layer.attention, cast("Residual", block.around_cross))
        _heads(layer.attention, other, [other.query], [other.key_value], [other.out])
    _sublayer(layer.ffn, block.around_feed_forward)
    inner = cast("Any", block.feed_forward)
    _linear(layer.ffn.linear_1, inner.down)
    if isinstance(inner, GatedFeedForward):
        gate, up = inner.gate_up.weight.chunk(2)
        biases = (None, None) if inner.gate_up.bias is None else inner.gate_up.bias.chunk(2)
        _product(layer.ffn.linear_0, gate, biases[0])
        _product(layer.ffn.linear_0_noact, up, biases[1])
    else:
        _linear(layer.ffn.linear_0, inner.up)


def _sublayer(spec: Spec, around: Residual) -> None:
    _norm(spec.layer_norm, around.norm)


def _heads(spec: Spec, heads: MultiHead, *products: list[nn.Linear]) -> None:
    """The products of an attention, of which some are one: queries, keys and values of the same vectors."""
    for linear, parts in zip(spec.linear, products, strict=True):
        _linear(linear, *parts)
    if heads.scale is not None:
        spec.queries_scale = float(heads.scale)


def _linear(spec: Spec, *parts: nn.Linear) -> None:
    """Layers that read the same, one below another."""
    biases: list[Tensor] = [part.bias for part in parts if part.bias is not None]
    _product(spec, torch.cat([part.weight for part in parts]), torch.cat(biases) if biases else None)


def _product(spec: Spec, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _norm(spec: Spec, norm: nn.Module) -> None:
    spec.gamma = _array(cast("Tensor", norm.weight))
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _specials(config: Any, tokenizer: TextTokenizer) -> None:
    ids = tokenizer.specials
    tokens = tokenizer.vocabulary(tokenizer.last + 1)
    config.bos_token, config.eos_token, config.unk_token = tokens[ids.begin], tokens[ids.end], tokens[ids.unknown]


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()
