"""Strict configuration: frozen pydantic models, TOML in, JSON beside the weights, an unknown key is an error.

Configuration modules never import torch, so that `regard --help` and checking a file are instant.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
)
from pydantic.fields import FieldInfo

from regard.errors import Advice, Option, RegardError, Setting, UsageError, nearest
from regard.plugins import Sort, added


class StrictConfig(BaseModel):
    """The base of every configuration: frozen, and an unknown key is refused with the nearest name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Config = TypeVar("Config", bound=StrictConfig)
Tables: TypeAlias = dict[str, Any]  # nested tables of TOML or JSON, not checked yet

# What other toolkits call a key, and what it is called here: the first of these that the configuration has.
SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "learningrate", "base_lr", "max_lr", "peak_lr", "eta"), ("train.lr",)),
    **dict.fromkeys(("batch_size", "batchsize", "bs", "max_tokens"), ("train.batch_tokens", "train.batch_pictures")),
    **dict.fromkeys(("per_device_train_batch_size", "train_batch_size"), ("train.batch_tokens", "train.batch_pictures")),
    **dict.fromkeys(("epochs", "num_epochs", "num_train_epochs", "max_epochs", "n_epochs"), ("train.epochs",)),
    **dict.fromkeys(("max_steps", "num_steps", "max_iters", "iterations", "train_steps", "updates"), ("train.steps",)),
    **dict.fromkeys(("warmup_steps", "warmup_iters", "num_warmup_steps", "warmup_updates"), ("train.warmup",)),
    **dict.fromkeys(("lr_scheduler", "lr_scheduler_type", "scheduler", "lr_schedule"), ("train.schedule",)),
    **dict.fromkeys(("label_smoothing", "label_smoothing_factor"), ("train.smoothing",)),
    **dict.fromkeys(("grad_clip", "max_grad_norm", "clip_norm", "gradient_clip_val"), ("train.clip",)),
    **dict.fromkeys(("gradient_accumulation_steps", "grad_accum", "update_freq"), ("train.accumulate",)),
    **dict.fromkeys(("eval_steps", "eval_interval", "valid_steps", "eval_every"), ("train.validate_every",)),
    **dict.fromkeys(("early_stopping", "early_stopping_patience"), ("train.patience",)),
    **dict.fromkeys(("optim", "optimizer"), ("train.optimiser",)),
    **dict.fromkeys(("random_seed", "manual_seed"), ("train.seed",)),
    **dict.fromkeys(("fp16", "bf16", "dtype", "mixed_precision", "amp"), ("train.precision",)),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "embedding_dim", "dim", "hidden_dim"), ("model.width",)),
    **dict.fromkeys(
        ("n_layers", "n_layer", "num_layers", "num_hidden_layers", "depth"),
        ("model.layers", "model.encoder_layers", "model.decoder_layers"),
    ),
    **dict.fromkeys(("n_heads", "n_head", "num_heads", "nhead", "num_attention_heads"), ("model.heads",)),
    **dict.fromkeys(("d_ff", "ffn_dim", "intermediate_size", "n_inner", "dim_feedforward"), ("model.feed_forward",)),
    **dict.fromkeys(("dropout_rate", "drop", "hidden_dropout_prob", "resid_pdrop"), ("model.dropout",)),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "block_size", "context_length", "seq_len"),
                    ("data.context", "model.max_length", "data.max_length")),
    **dict.fromkeys(("vocab_size", "vocabulary_size", "n_vocab"), ("tokens.size",)),
    **dict.fromkeys(("num_beams", "beam_size", "beam_width"), ("decode.beam",)),
    **dict.fromkeys(("max_new_tokens", "max_len"), ("decode.max_length",)),
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One key of a configuration: where it stands, and what its field says of it."""

    path: str
    field: FieldInfo


def keys_of(kind: type[BaseModel], values: Any = None, before: str = "") -> Iterator[Key]:
    """Every key of a configuration, table by table; `values` say which kind a table with several is of."""
    values = values if isinstance(values, dict) else {}
    for name, field in kind.model_fields.items():
        key = field.alias or name
        choices, below = configurations_in(field.annotation), values.get(key)
        if not choices:
            yield Key(before + key, field)
            continue
        wanted = below.get("kind") if isinstance(below, dict) else getattr(field.default, "kind", None)
        fitting = [
            each for each in choices if "kind" in each.model_fields and each.model_fields["kind"].default == wanted
        ]
        own = type(field.default) if isinstance(field.default, BaseModel) else choices[0]
        yield from keys_of(fitting[0] if fitting else own, below, f"{before}{key}.")


def read_toml(path: str | Path) -> Tables:
    """The tables of a TOML file, or an error that names the file and the line."""
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder", "name the TOML file in it") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def check(kind: type[Config], values: Tables, origin: str) -> Config:
    """`values` as a configuration, or one line for each mistake: where it stands, what is wrong, what to type."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_explain(kind, values, problem) for problem in error.errors()]
        raise UsageError(f"{origin}: " + "; ".join(dict.fromkeys(lines))) from None


def merge(base: Tables, over: Tables) -> Tables:
    """`over` laid on `base`, table by table; neither is changed. A word in the place of a table is its `kind`."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, str):
            below = {"kind": below}
        merged[key] = merge(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged


def from_assignments(assignments: list[str]) -> Tables:
    """`["train.lr=1e-3"]` as nested tables; a value is read as TOML, and as plain text where it is not TOML.

    A table comes before its keys, in whichever order they are given: a word that names its kind takes none of them away.
    """
    tables: Tables = {}
    for assignment in sorted(assignments, key=lambda each: each.partition("=")[0].count(".")):
        key, separator, text = assignment.partition("=")
        if not separator or not key.strip():
            example = Advice("write ", Setting("table.key", "value"), ", for example ", Setting("train.lr", "1e-3"))
            raise UsageError(Advice(Option("set", assignment), ": ", example))
        value: Any = _toml_value(text.strip())
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        tables = merge(tables, value)
    return tables


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(kind: type[BaseModel], values: Tables, problem: Any) -> str:
    path, owner = _walk(kind, [str(part) for part in problem["loc"]])
    where = ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
        return str(UsageError(f"no key {where}", _elsewhere(kind, values, path) or nearest(path[-1], known)))
    if problem["type"] == "union_tag_invalid":
        tag, known = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "").split(", ")
        return str(UsageError(f"{where}: no kind {tag}", nearest(tag, known)))
    if problem["type"] == "union_tag_not_found":
        return f"{where}: say of which kind it is, with {where}.kind"
    return f"{where}: {_trouble(problem)}" if where else _trouble(problem)


def _elsewhere(kind: type[BaseModel], values: Tables, path: list[str]) -> str:
    """Where an unknown key is meant that is called otherwise here, or stands in another table; empty if it is a typo."""
    there = [key.path for key in keys_of(kind, values)]
    meant = [each for each in SYNONYMS.get(path[-1].lower(), ()) if each in there]
    if not meant:
        meant = [each for each in there if "." in each and each.rpartition(".")[2] == path[-1]]
    return f"here it is {' or '.join(meant)}" if meant else ""


# What is wrong with a value, by pydantic's name of it; each is filled with the problem's own numbers.
TROUBLES = {
    "missing": "a value is missing",
    "greater_than": "must be more than {gt:g}, not {input!r}",
    "greater_than_equal": "must be {ge:g} or more, not {input!r}",
    "less_than": "must be less than {lt:g}, not {input!r}",
    "less_than_equal": "must be {le:g} or less, not {input!r}",
    "literal_error": "must be {expected}, not {input!r}",
    "too_short": "needs {min_length} or more, and there are {actual_length}",
    "too_long": "takes {max_length} at most, and there are {actual_length}",
    "finite_number": "must be a number, not {input!r}",
    "none_required": "must be left out",
    "int_from_float": "must be a whole number, not {input!r}",
}
EXPECTED_TYPES = {  # the beginning of pydantic's name of a wrong type -> what is wanted
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "string_": "a text",
    "tuple_": "a list, such as [1, 2]",
    "list_": "a list, such as [1, 2]",
    "dict_": "a table",
    "model_": "a table",
}


def _trouble(problem: Any) -> str:
    """Say in our own words what is wrong with a value, and what it must be."""
    name, context = problem["type"], {**problem.get("ctx", {}), "input": problem["input"]}
    if name in TROUBLES:
        return TROUBLES[name].format(**context)
    wanted = next((sort for beginning, sort in EXPECTED_TYPES.items() if name.startswith(beginning)), None)
    if wanted is not None:
        return f"must be {wanted}, not {problem['input']!r}"
    return str(problem["msg"]).removeprefix("Value error, ")


_PLAIN_TYPES = ("int", "float", "str", "bool", "tuple[str, ...]")


def _walk(kind: type[BaseModel], path: list[str]) -> tuple[list[str], type[BaseModel] | None]:
    """The path as a person writes it, without the tags of unions, and the model class that holds its last key."""
    owner: type[BaseModel] | None = kind
    plain, choices = path[:1], []
    for before, part in pairwise(path):
        fields = {field.alias or name: field for name, field in owner.model_fields.items()} if owner else {}
        if before in fields:
            choices = configurations_in(fields[before].annotation)
            owner = choices[0] if choices else None
        tagged = (
            [choice for choice in choices if choice.model_fields["kind"].default == part] if len(choices) > 1 else []
        )
        if tagged:
            owner = tagged[0]
        elif choices or part not in _PLAIN_TYPES:  # a value of several sorts is named by each of them
            plain.append(part)
    return plain, owner


def configurations_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the configurations that a field may hold: one, or those of a union."""
    choices = [annotation, *get_args(annotation)]
    return [choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)]


def find_file(name: str, data_root: Path | None = None) -> Path:
    """A data file as a person names it: from here, from beside the configuration, or from the `REGARD_DATA` folder."""
    places = [Path(name).expanduser()]
    if data_root is not None:
        places.append(data_root / name)
    if os.environ.get("REGARD_DATA"):
        places.append(Path(os.environ["REGARD_DATA"]) / name)
    for place in places:
        if place.exists():
            return place
    looked = ", ".join(str(place) for place in places)
    advice = "" if os.environ.get("REGARD_DATA") else "; REGARD_DATA may name the folder of the data"
    raise RegardError(f"there is no {name} (looked at {looked}){advice}")


def open_union(table: Mapping[str, type[BaseModel]]) -> tuple[WrapValidator, WrapSerializer]:
    """Annotations that let a tagged union of configurations take the kinds that plugins add to `table`, too."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
        if isinstance(kind, str) and kind in table:
            return table[kind].model_validate(value)
        return handler(value)

    def serialize(value: Any, handler: Callable[[Any], Any], info: SerializationInfo) -> Any:
        if getattr(value, "kind", None) in table:
            return value.model_dump(mode=info.mode, by_alias=bool(info.by_alias))
        return handler(value)

    return WrapValidator(validate), WrapSerializer(serialize)


def open_choice(sort: Sort) -> tuple[WrapValidator, PlainSerializer]:
    """Annotations that let a choice of names take those that plugins add."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        return value if isinstance(value, str) and value in added(sort) else handler(value)

    return WrapValidator(validate), PlainSerializer(str, return_type=str)
