"""BERT (Devlin et al. 2019) as transformers writes it, with any of its heads or with none, and how a folder of
sentence-transformers makes one vector of a text: modules.json and 1_Pooling/config.json.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from regard.config import check
from regard.errors import RegardError
from regard.files import JSON, read_json, write_json
from regard.interop.family import MOST_LAYERS, Family, Settings, TensorRow, layer, must_be, row
from regard.models.config import BertConfig
from regard.models.configs.attention import ExactConfig

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"
TYPES = "sentence_transformers.models"
MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def read_pooling(folder: Path) -> str | None:
    """ "cls" or "mean", or None where the folder is not of sentence-transformers."""
    if not (folder / MODULES).exists():
        return None
    pooling = None
    for module in _modules(folder):
        kind, place = str(module.get("type", "")).rpartition(".")[2], str(module.get("path", ""))
        if kind == "Pooling":
            pooling = _mode(_inside(folder, place) / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise RegardError(f"{folder}/{MODULES} has a module {kind or 'of no type'}, which Regard cannot express")
    if pooling is None:
        raise RegardError(f"{folder}/{MODULES} names no Pooling", "copy the whole folder")
    return pooling


def read_longest(folder: Path) -> int | None:
    """Tokens of a text, begin and end included, that the model was made for; longer texts are cut there."""
    values = read_json(folder / LENGTH) if (folder / LENGTH).exists() else {}
    longest = values.get("max_seq_length") if isinstance(values, dict) else None
    return longest if isinstance(longest, int) and longest > 0 else None


def write_pooling(folder: Path, config: BertConfig, longest: int | None) -> None:
    """So that SentenceTransformer(folder) makes the same vectors."""
    chosen = {key: mode == config.pooling for mode, key in MODES.items()}
    (folder / POOLING).mkdir()
    write_json(folder / POOLING / "config.json", {"word_embedding_dimension": config.width, **chosen})
    write_json(folder / LENGTH, {"max_seq_length": longest or config.max_length, "do_lower_case": False})
    parts = {"Transformer": "", "Pooling": POOLING}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{TYPES}.{kind}"}
        for number, (kind, path) in enumerate(parts.items())
    ]
    write_json(folder / MODULES, modules)


def _modules(folder: Path) -> list[dict[str, JSON]]:
    modules = read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise RegardError(f"{folder}/{MODULES} is not a list of modules", "copy it again")
    return modules


def _inside(folder: Path, place: str) -> Path:
    if place in ("", ".", "..") or Path(place).name != place:
        raise RegardError(f"{folder}/{MODULES} names a place outside the folder: {place!r}")
    return folder / place


def _mode(path: Path) -> str:
    values = read_json(path)
    if not isinstance(values, dict):
        raise RegardError(f"{path} is not a table", "copy it again")
    asked = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
    if isinstance(values.get("pooling_mode"), str):  # as later versions write it
        asked.append(f"pooling_mode={values['pooling_mode']}")
    known = {key: mode for mode, key in MODES.items()} | {f"pooling_mode={mode}": mode for mode in MODES}
    if len(asked) != 1 or asked[0] not in known:
        pooling = " and ".join(asked) or "no pooling"
        raise RegardError(f"{path} asks for {pooling}", f"Regard has one of {', '.join(MODES.values())}")
    return known[asked[0]]


ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
}
TABLE = "bert.embeddings.word_embeddings.weight"


def read(settings: Settings, names: Collection[str]) -> BertConfig:
    """Which heads there are is told by the tensors: a file may hold more than the class it was saved from uses."""
    settings.only("position_embedding_type", "absolute")
    settings.only("is_decoder", False)
    settings.only("add_cross_attention", False)
    settings.only("tie_word_embeddings", True)
    settings.only("quantization_config")
    values = {
        "layers": settings.size("num_hidden_layers", most=MOST_LAYERS),
        "width": settings.size("hidden_size"),
        "heads": settings.size("num_attention_heads"),
        "feed_forward": settings.size("intermediate_size"),
        "max_length": settings.size("max_position_embeddings"),
        "segments": settings.size("type_vocab_size", 2),
        "dropout": settings.number("hidden_dropout_prob", 0.1),
        "attention_dropout": settings.number("attention_probs_dropout_prob", 0.1),
        "epsilon": settings.number("layer_norm_eps", 1e-12),
        "activation": settings.choice("hidden_act", ACTIVATIONS, "gelu"),
        "head": any(name.startswith("cls.predictions.") for name in names),
        "next_sentence": any(name.startswith("cls.seq_relationship.") for name in names),
        "pooler": any(name.startswith("bert.pooler.") for name in names),
    }
    return check(BertConfig, values, settings.origin)


def write(config: BertConfig) -> dict[str, JSON]:
    must_be(config, "BERT", norm="post", positions="learned", activation=("gelu", "relu", "gelu-tanh"))
    must_be(config, "BERT", attention=ExactConfig(), random_offset=0)
    return {
        "architectures": [_architecture(config)],
        "num_hidden_layers": config.layers,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feed_forward,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.epsilon,
        "hidden_act": {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[config.activation],
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }


def rows(config: BertConfig) -> list[TensorRow]:
    tokens, embeddings = "encoder.tokens", "bert.embeddings"
    found = [
        row(f"{tokens}.table.weight", TABLE),
        row(f"{tokens}.positions.table", f"{embeddings}.position_embeddings.weight"),
        row(f"{tokens}.segments.weight", f"{embeddings}.token_type_embeddings.weight"),
        *layer(f"{tokens}.norm", f"{embeddings}.LayerNorm"),
    ]
    for number in range(config.layers):
        found += _block(f"encoder.blocks.{number}", f"bert.encoder.layer.{number}")
    if config.pooler or config.next_sentence:
        found += layer("encoder.pooler", "bert.pooler.dense")
    if config.head:
        found += layer("head.layer", "cls.predictions.transform.dense")
        found += layer("head.norm", "cls.predictions.transform.LayerNorm")
        found.append(row("head.bias", "cls.predictions.bias"))
    return found + (layer("follows", "cls.seq_relationship") if config.next_sentence else [])


def _block(ours: str, theirs: str) -> list[TensorRow]:
    look = f"{theirs}.attention.self"
    found = layer(f"{ours}.attention.query", f"{look}.query")
    for kind in ("weight", "bias"):
        found.append(row(f"{ours}.attention.key_value.{kind}", (f"{look}.key.{kind}", f"{look}.value.{kind}")))
    return [
        *found,
        *layer(f"{ours}.attention.out", f"{theirs}.attention.output.dense"),
        *layer(f"{ours}.around_attention.norm", f"{theirs}.attention.output.LayerNorm"),
        *layer(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense"),
        *layer(f"{ours}.feed_forward.down", f"{theirs}.output.dense"),
        *layer(f"{ours}.around_feed_forward.norm", f"{theirs}.output.LayerNorm"),
    ]


def _architecture(config: BertConfig) -> str:
    if config.next_sentence:
        return "BertForPreTraining" if config.head else "BertForNextSentencePrediction"
    return "BertForMaskedLM" if config.head else "BertModel"


FAMILY = Family(
    name="bert",
    task="fill",
    prefix="bert.",
    heads=("cls.",),
    ignored=re.compile(r"^bert\.embeddings\.(position_ids|token_type_ids)$"),
    table=TABLE,
    old_ends={".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"},
    copies=lambda config: {
        "cls.predictions.decoder.weight": TABLE,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    read=read,
    write=write,
    rows=rows,
)
