"""The Transformer as transformers' Marian writes it (Junczys-Dowmunt et al. 2018): norms behind, fixed sinusoids, no rotation.

Marian's sinusoid has all sines before all cosines, ours has them in turn. Nothing else in a model knows the order of the
D numbers of a vector, so every weight that reads or writes such vectors is written in their order, and the sums are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor

from regard.bundle import Bundle, BundleConfig
from regard.config import check
from regard.errors import Advice, Option, RegardError
from regard.files import JSON, write_json, write_text
from regard.interop.family import (
    MOST_LAYERS,
    Settings,
    TensorRow,
    check_floats,
    check_names,
    layer,
    must_be,
    row,
    to_ours,
    to_theirs,
    without_copies,
)
from regard.interop.tokenizer import GENERATION, TOKENIZER, UNLIMITED, read_tokenizer
from regard.interop.weights import SINGLE, read_weights
from regard.models.config import TransformerConfig
from regard.models.configs.attention import ExactConfig
from regard.models.table import build
from regard.tensors import write_tensors
from regard.tokens import BEGIN, END, PAD, UNKNOWN, TextTokenizer, TokenizerPair, TokensConfig

NAME = "marian"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
SHARED = "model.shared.weight"
ENCODED, DECODED = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
HEAD, BIAS = "lm_head.weight", "final_logits_bias"
TARGET = "target"  # the folder of the second tokenizer, where there are two
IGNORED = re.compile(r"embed_positions\.weight$")
READS = re.compile(r"(query|key_value|up|table|output)\.weight$")  # of which the D numbers of a vector are the columns
WRITES = re.compile(r"(out|down)\.(weight|bias)$|norm\.(weight|bias)$")  # and of these the rows


def their_order(width: int) -> Tensor:
    """Which of our numbers stands at each place of theirs: all sines, then all cosines."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def reordered(tensors: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Our parameters with the D numbers of vectors between blocks in another order; heads keep theirs."""
    found = {}
    for name, tensor in tensors.items():
        axis = 1 if READS.search(name) else 0 if WRITES.search(name) else None
        found[name] = tensor if axis is None else tensor.index_select(axis, order)
    return found


# --- Names


def rows(config: TransformerConfig) -> list[TensorRow]:
    found = list(_tables(config))
    for half, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(layers):
            found += _block(f"{half}.{number}", f"model.{half}.layers.{number}", cross=half == "decoder")
    return found


def _tables(config: TransformerConfig) -> Iterator[TensorRow]:
    if config.tied == "all":
        yield row("source.table.weight", SHARED)
        return
    yield row("source.table.weight", ENCODED)
    yield row("target.table.weight", DECODED)
    if config.tied == "none":
        yield row("output.weight", HEAD)


def _copies(config: TransformerConfig) -> dict[str, str]:
    """Tables that may be saved again under other names."""
    if config.tied == "all":
        return dict.fromkeys((ENCODED, DECODED, HEAD), SHARED)
    return {HEAD: DECODED} if config.tied == "target" else {}


def _block(ours: str, theirs: str, *, cross: bool) -> list[TensorRow]:
    return [
        *_heads(f"{ours}.attention", f"{theirs}.self_attn"),
        *layer(f"{ours}.around_attention.norm", f"{theirs}.self_attn_layer_norm"),
        *(_heads(f"{ours}.cross", f"{theirs}.encoder_attn") if cross else []),
        *(layer(f"{ours}.around_cross.norm", f"{theirs}.encoder_attn_layer_norm") if cross else []),
        *layer(f"{ours}.feed_forward.up", f"{theirs}.fc1"),
        *layer(f"{ours}.feed_forward.down", f"{theirs}.fc2"),
        *layer(f"{ours}.around_feed_forward.norm", f"{theirs}.final_layer_norm"),
    ]


def _heads(ours: str, theirs: str) -> list[TensorRow]:
    found = [*layer(f"{ours}.query", f"{theirs}.q_proj"), *layer(f"{ours}.out", f"{theirs}.out_proj")]
    for kind in ("weight", "bias"):
        found.append(row(f"{ours}.key_value.{kind}", (f"{theirs}.k_proj.{kind}", f"{theirs}.v_proj.{kind}")))
    return found


# --- Out


def write(config: TransformerConfig) -> dict[str, JSON]:
    """The keys of config.json; what Marian cannot express is refused with the forms that might."""
    exact = dict.fromkeys(("encoder_attention", "decoder_attention", "cross_attention"), ExactConfig())
    try:
        must_be(config, "Marian", norm="post", positions="sinusoidal", residual=True, scaled=True, **exact)
    except RegardError as error:
        others = (Option("to", "ctranslate2"), " and ", Option("to", "onnx"))
        raise RegardError(error.wrong, Advice(f"{error.hint}; ", *others, " know more")) from error
    sides: dict[str, JSON] = {}
    for half, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        sides |= {f"{half}_layers": layers, f"{half}_attention_heads": config.heads}
        sides |= {f"{half}_ffn_dim": config.feed_forward}
    return {
        "model_type": NAME,
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "d_model": config.width,
        **sides,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "max_position_embeddings": config.max_length,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tied == "all",
        "tie_word_embeddings": config.tied != "none",
        "torch_dtype": "float32",
    }


def write_folder(bundle: Bundle, folder: Path) -> None:
    """Write what `AutoModelForSeq2SeqLM` and `AutoTokenizer` load; a second tokenizer goes into a folder inside."""
    config = bundle.config.model
    assert isinstance(config, TransformerConfig)
    source, target = bundle.config.vocabulary
    special: dict[str, JSON] = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}
    special |= {"decoder_start_token_id": BEGIN, "forced_eos_token_id": None}
    sizes: dict[str, JSON] = {"vocab_size": source, "decoder_vocab_size": target}
    write_json(folder / "config.json", write(config) | sizes | special)
    ways: dict[str, JSON] = {"num_beams": bundle.config.decode.beam, "max_length": config.max_length}
    never = [[index] for index in (PAD, BEGIN, UNKNOWN)]
    write_json(folder / GENERATION, special | ways | {"bad_words_ids": never})
    ours = {name: parameter.detach().float() for name, parameter in bundle.model.named_parameters()}
    theirs = to_theirs(rows(config), reordered(ours, their_order(config.width)))
    write_tensors(folder / SINGLE, theirs | {BIAS: torch.zeros(1, target)})
    pair = bundle.tokenizers
    _write_tokenizer(pair.source, folder)
    if pair.target is not pair.source:
        (folder / TARGET).mkdir()
        _write_tokenizer(pair.target, folder / TARGET)


def _write_tokenizer(text: TextTokenizer, folder: Path) -> None:
    """tokenizer.json, which puts the end token behind a text, and tokenizer_config.json."""
    text.save(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin, end, pad, unknown = text.labels([BEGIN, END, PAD, UNKNOWN])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", end], pair=["$A", "$B", end], special_tokens=[(end, END)]
    )
    write_text(folder / "tokenizer.json", tokenizer.to_str())
    names = {"bos_token": begin, "eos_token": end, "pad_token": pad, "unk_token": unknown}
    rest: dict[str, JSON] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": UNLIMITED}
    inputs = ["input_ids", "attention_mask"]  # there are no segments
    write_json(folder / TOKENIZER, rest | names | {"model_input_names": inputs})


# --- In


def read(settings: Settings) -> TransformerConfig:
    for key, wanted in {"bos_token_id": BEGIN, "decoder_start_token_id": BEGIN, "eos_token_id": END}.items():
        settings.only(key, wanted)
    settings.only("pad_token_id", PAD)
    settings.only("quantization_config")
    settings.only("static_position_embeddings", True)
    settings.only("normalize_before", False)
    settings.only("normalize_embedding", False)
    settings.only("add_final_layer_norm", False)
    if not settings.flag("scale_embedding", False):
        raise RegardError(f"{settings.origin}: scale_embedding is false", "Regard multiplies embeddings by √D")
    width, heads = settings.size("d_model"), settings.size("encoder_attention_heads")
    settings.only("decoder_attention_heads", heads)
    inner = settings.size("encoder_ffn_dim")
    settings.only("decoder_ffn_dim", inner)
    shared, tied = settings.flag("share_encoder_decoder_embeddings", True), settings.flag("tie_word_embeddings", True)
    if shared and not tied:
        raise RegardError(
            f"{settings.origin}: tie_word_embeddings is false and share_encoder_decoder_embeddings is true",
            "in Regard one table for both sides is that of the output, too",
        )
    values = {
        "encoder_layers": settings.size("encoder_layers", most=MOST_LAYERS),
        "decoder_layers": settings.size("decoder_layers", most=MOST_LAYERS),
        "width": width,
        "heads": heads,
        "feed_forward": inner,
        "activation": settings.choice("activation_function", ACTIVATIONS, "gelu"),
        "norm": "post",
        "positions": "sinusoidal",
        "max_length": settings.size("max_position_embeddings", 1024),
        "dropout": settings.number("dropout", 0.1),
        "attention_dropout": settings.number("attention_dropout", 0.0),
        "activation_dropout": settings.number("activation_dropout", 0.0),
        "tied": "all" if shared else "target" if tied else "none",
    }
    return check(TransformerConfig, values, settings.origin)


def read_folder(folder: Path, settings: Settings) -> Bundle:
    """A bundle of a folder such as `write_folder` writes; the special ids must be those of Regard's translation models."""
    config = read(settings)
    source = settings.size("vocab_size")
    sizes = (source, settings.size("decoder_vocab_size", source))
    pair = _read_tokenizers(folder, sizes)
    tensors = _weights(folder, config)
    check_names(rows(config), tensors, str(folder))  # before anything of the size that config.json claims is built
    model = build("translate", config, sizes)
    parameters = dict(model.named_parameters())
    shapes = {name: parameter.shape for name, parameter in parameters.items()}
    ours = reordered(to_ours(rows(config), tensors, shapes, str(folder)), their_order(config.width).argsort())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(ours[name])
    tokens = TokensConfig(kind="imported")
    kept = BundleConfig(task="translate", tokens=tokens, vocabulary=sizes, model=config)
    return Bundle(kept, model.eval(), pair, {})


def _read_tokenizers(folder: Path, sizes: tuple[int, int]) -> TokenizerPair:
    source = TextTokenizer(read_tokenizer(folder))
    target = TextTokenizer(read_tokenizer(folder / TARGET)) if (folder / TARGET).is_dir() else source
    for text, size in zip((source, target), sizes, strict=True):
        ids = text.specials
        if (ids.pad, ids.begin, ids.end, ids.unknown) != (PAD, BEGIN, END, UNKNOWN):
            raise RegardError(
                f"{folder}: the tokenizer has pad {ids.pad}, begin {ids.begin}, end {ids.end}, unknown {ids.unknown}",
                f"translation models of Regard have {PAD}, {BEGIN}, {END}, {UNKNOWN} there",
            )
        if text.last >= size:
            raise RegardError(
                f"{folder}: a tokenizer has ids up to {text.last}, and the model knows {size} tokens",
                "they do not belong together, so take both from one place",
            )
    return TokenizerPair(source, target)


def _weights(folder: Path, config: TransformerConfig) -> dict[str, Tensor]:
    """The tensors of the table, each once; a bias of the logits must be nothing."""
    tensors = read_weights(folder)
    bias = tensors.pop(BIAS, None)
    if bias is not None and bool((bias != 0).any()):
        raise RegardError(f"{folder}: {BIAS} is not 0", "the output layer of Regard's models has no bias")
    kept = {name: tensor for name, tensor in tensors.items() if not IGNORED.search(name)}
    check_floats(kept, str(folder))
    return without_copies(kept, _copies(config), str(folder))
