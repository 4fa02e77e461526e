"""Every key of a configuration, to be looked up: what it means, its default, its range; a file to edit; sizes of presets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from regard.config import keys_of
from regard.data.pictures.config import PictureFormat, SeenConfig
from regard.models.kinds import KINDS_OF
from regard.models.presets import PRESETS
from regard.tasks.config import RunConfig
from regard.tasks.configure import run_config
from regard.tasks.table import family_of

# How pydantic's bounds are said, in this order.
WORDS = {"Gt": "over", "Ge": "from", "Lt": "under", "Le": "to"}
TYPE_NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text"}
ALWAYS = ("task", "data.train", "model.kind")  # what a file to edit says aloud; all else is there as a comment
ACROSS = ("width", "hidden", "channels")  # how wide a model is, by whichever of these its kind has
DEEP = ("encoder_layers", "decoder_layers", "layers", "blocks", "sets")
LABELS = 10  # of a classifier, and answers, where the data does not say how many
SEEN = 112  # pixels of a side, likewise: patches of 4, 7, 8 and 16 fill it


@dataclass(frozen=True)
class ConfigKey:
    """One key: where it stands, its default here, what it may be, and what it means."""

    key: str
    default: object
    allowed: str
    meaning: str

    @property
    def table(self) -> str:
        return self.key.rpartition(".")[0]

    def data(self) -> dict[str, object]:
        return {"key": self.key, "default": self.default, "range": self.allowed, "meaning": self.meaning}


def config_keys(config: RunConfig) -> list[ConfigKey]:
    """Every key of a run's configuration, with the values that it has in this one."""
    values, said = config.dump(), {"task": ", ".join(KINDS_OF), "model.kind": ", ".join(KINDS_OF[config.task])}
    meant = {"task": "What the model is to do.", "model.kind": "Which kind of model; each has keys of its own."}
    return [
        ConfigKey(
            key.path,
            _at(values, key.path),
            said.get(key.path) or allowed_values(key.field),
            meant.get(key.path) or key.field.description or "",
        )
        for key in keys_of(type(config), values)
    ]


def _at(values: object, path: str) -> object:
    """Return the value under a path such as train.lr, or None."""
    for part in path.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def allowed_values(field: FieldInfo) -> str:
    """Say what a value may be: the words that it is chosen from, or its type and its bounds."""
    types, words = _types_and_words(field.annotation)
    if words:
        return ", ".join(words)
    bounds = {type(each).__name__: each for each in field.metadata}
    told = [f"{word} {getattr(bounds[name], name.lower()):g}" for name, word in WORDS.items() if name in bounds]
    return " ".join([*types[:1], *told])


def _types_and_words(annotation: Any) -> tuple[list[str], list[str]]:
    """Return the types that an annotation allows, in plain words, and the words that it lists."""
    if get_origin(annotation) is Literal:
        return [], [str(each) for each in get_args(annotation)]
    if get_origin(annotation) in (Union, UnionType):
        parts = [_types_and_words(each) for each in get_args(annotation) if each is not NoneType]
        return [name for types, _ in parts for name in types], [word for _, words in parts for word in words]
    inner = get_args(annotation)
    if get_origin(annotation) is tuple:
        each = _types_and_words(inner[0])[0][0]
        return [f"list of {each}s".replace("true or falses", "true or false")], []
    if inner and get_origin(annotation) is not dict:
        return _types_and_words(inner[0])
    return [TYPE_NAMES.get(annotation, "table")], []


# --- A file to edit


def as_toml(config: RunConfig, size: str) -> str:
    """A TOML file that trains this: every key with its sentence; a default stands behind a #, to be changed there."""
    lines = [
        f"# {(type(config).__doc__ or '').strip()}",
        "# Train it with: regard train THIS_FILE",
        "# A key behind a # has the value that it would have anyway; take the # away and change it (and that of its",
        "# [table], if there is one).",
    ]
    table, keys = "", config_keys(config)
    tables = ["", *dict.fromkeys(each.table for each in keys)]  # keys without a table must come first
    for each in sorted(keys, key=lambda each: tables.index(each.table)):
        if each.table != table:
            table = each.table
            lines += ["", f"{'#' if '.' in table else ''}[{table}]"]  # an inner one is of its default kind unless named
        lines += _lines(each)
        if each.key == "task":
            lines += ["# Size of the model: " + ", ".join(PRESETS), f'preset = "{size}"']
    return "\n".join(lines) + "\n"


def _lines(each: ConfigKey) -> Iterator[str]:
    name = each.key.rpartition(".")[2]
    if each.meaning:
        yield f"# {each.meaning} ({each.allowed})"
    elif each.allowed:
        yield f"# {each.allowed}"
    if each.key in ALWAYS:
        yield f"{name} = {_toml(each.default)}"
    elif each.default is None:
        yield f"# {name} is not set"
    else:
        yield f"#{name} = {_toml(each.default)}"


def _toml(value: object) -> str:
    """A value as TOML writes it: like JSON, but for tables within a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# --- Presets


@dataclass(frozen=True)
class PresetSize:
    """A named size of a kind of model, and how large that is with the vocabulary that it has by default."""

    preset: str
    kind: str
    width: str
    layers: str
    vocabulary: int
    parameters: int

    def data(self) -> dict[str, object]:
        return asdict(self)


def preset_sizes(task: str) -> list[PresetSize]:
    """Every preset of the kinds of models that do a task, built to be counted."""
    return [_size(task, name, kind) for kind in KINDS_OF[task] for name, kinds in PRESETS.items() if kind in kinds]


def _size(task: str, name: str, kind: str) -> PresetSize:
    import torch

    from regard.models.table import build

    config = run_config(task, {"preset": name, "model": {"kind": kind}})
    words = 0 if config.tokens is None else config.tokens.size
    data = config.data
    seen = PictureFormat(size=data.size or SEEN, fit=data.fit) if isinstance(data, SeenConfig) else None
    vocabulary = (words, words) if family_of(task) == "translate" else (words,) if words else ()
    with torch.device("cpu" if seen else "meta"):  # networks that see try their shapes on a picture as they are built
        model = build(config.task, config.model, vocabulary, labels=LABELS, pictures=seen)
    found = config.model.model_dump()
    return PresetSize(
        name, kind, _first(found, ACROSS), _first(found, DEEP), words, sum(each.numel() for each in model.parameters())
    )


def _first(values: dict[str, object], names: tuple[str, ...]) -> str:
    found = [values[name] for name in names if values.get(name) is not None]
    if len(found) > 1 and "encoder_layers" in values:
        return f"{found[0]} + {found[1]}"
    first = found[0] if found else ""
    return ", ".join(map(str, first)) if isinstance(first, list | tuple) else str(first)
