"""Strict configuration: frozen pydantic models, TOML in, JSON beside the weights, an unknown key is an error.

Configuration modules never import torch, so that `regard --help` and checking a file are instant.
"""

from __future__ import annotations

import os
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.errors import RegardError, UsageError, nearest


class StrictConfig(BaseModel):
    """The base of every configuration: frozen, and an unknown key is refused with the nearest name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Config = TypeVar("Config", bound=StrictConfig)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file, or an error that names the file and the line."""
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder; name the TOML file in it") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def check(kind: type[Config], values: dict[str, Any], origin: str) -> Config:
    """`values` as a configuration, or one line for each mistake: where it stands, what is wrong, what to type."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_explain(kind, problem) for problem in error.errors()]
        raise UsageError(f"{origin}: " + "; ".join(lines)) from None


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, table by table; neither is changed. A word in the place of a table is its `kind`."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, str):
            below = {"kind": below}
        merged[key] = merge(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged


def from_assignments(assignments: list[str]) -> dict[str, Any]:
    """`["train.lr=1e-3"]` as nested tables; a value is read as TOML, and as plain text where it is not TOML.

    A table comes before its keys, in whichever order they are given: a word that names its kind takes none of them away.
    """
    tables: dict[str, Any] = {}
    for assignment in sorted(assignments, key=lambda each: each.partition("=")[0].count(".")):
        key, separator, text = assignment.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set {assignment}: write --set table.key=value, for example --set train.lr=1e-3")
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


def _explain(kind: type[BaseModel], problem: Any) -> str:
    path, owner = _walk(kind, [str(part) for part in problem["loc"]])
    where = ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
        return f"no key {where}{nearest(path[-1], known)}"
    if problem["type"] == "union_tag_invalid":
        tag, known = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "").split(", ")
        return f"{where}: no kind {tag}{nearest(tag, known)}"
    if problem["type"] == "union_tag_not_found":
        return f"{where}: say of which kind it is, with {where}.kind"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _walk(kind: type[BaseModel], path: list[str]) -> tuple[list[str], type[BaseModel] | None]:
    """The path as a person writes it, without the tags of unions, and the model class that holds its last key."""
    owner: type[BaseModel] | None = kind
    plain, choices = path[:1], []
    for before, part in pairwise(path):
        fields = {field.alias or name: field for name, field in owner.model_fields.items()} if owner else {}
        if before in fields:
            choices = _models(fields[before].annotation)
            owner = choices[0] if choices else None
        tagged = (
            [choice for choice in choices if choice.model_fields["kind"].default == part] if len(choices) > 1 else []
        )
        if tagged:
            owner = tagged[0]
        else:
            plain.append(part)
    return plain, owner


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The configurations that a field may hold: one, or those of a union."""
    choices = [annotation, *get_args(annotation)]
    return [choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)]


def find_file(name: str, beside: Path | None = None) -> Path:
    """A data file as a person names it: from here, from beside the configuration, or from the `REGARD_DATA` folder."""
    places = [Path(name).expanduser()]
    if beside is not None:
        places.append(beside / name)
    if os.environ.get("REGARD_DATA"):
        places.append(Path(os.environ["REGARD_DATA"]) / name)
    for place in places:
        if place.exists():
            return place
    looked = ", ".join(str(place) for place in places)
    advice = "" if os.environ.get("REGARD_DATA") else "; REGARD_DATA may name the folder of the data"
    raise RegardError(f"there is no {name} (looked at {looked}){advice}")
