"""A family of models as another library writes it: its config.json read strictly, and its tensors by name, both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.config import StrictConfig
from regard.errors import RegardError
from regard.files import JSON
from regard.models.table import build
from regard.tokens import TextTokenizer, TokenizerPair, TokensConfig

LARGEST = 2**24  # of any width, length or vocabulary; what is more is a damaged file
MOST_LAYERS = 4096

Config = TypeVar("Config", bound=StrictConfig)


class Settings:
    """The keys of a config.json. A key that is absent, or null, has the default of the library that wrote the file."""

    def __init__(self, values: dict[str, JSON], origin: str) -> None:
        self.values, self.origin = values, origin

    def size(self, key: str, default: int | None = None, most: int = LARGEST) -> int:
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise RegardError(f"{self.origin}: {key} is {value!r}", f"it should be a whole number from 1 to {most:,}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self._value(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise RegardError(f"{self.origin}: {key} is {value!r}", "it should be a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise RegardError(f"{self.origin}: {key} is {value!r}", "it should be true or false")
        return value

    def choice(self, key: str, known: dict[str, str], default: str) -> str:
        """Our own name of the value of this key."""
        value = self._value(key, default)
        if not isinstance(value, str) or value not in known:
            raise RegardError(f"{self.origin}: {key} is {value!r}", f"Regard has {', '.join(known)}")
        return known[value]

    def only(self, key: str, *allowed: object) -> None:
        """The key is absent, null, or has a value that means nothing special."""
        value = self.values.get(key)
        if value is not None and value not in allowed:
            needs = " or ".join(repr(each) for each in allowed) or "no value"
            raise RegardError(f"{self.origin}: {key} is {value!r}, which Regard cannot express", f"it needs {needs}")

    def _value(self, key: str, default: JSON) -> JSON:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise RegardError(f"{self.origin} has no {key}", "copy the file again from where the model comes from")
        return value


def must_be(config: StrictConfig, name: str, **wanted: object) -> None:
    """Refuse to export an option that transformers has no equal for."""
    must_be_usual(f"transformers' {name}", config)
    must_be_known_to(f"transformers' {name}", config, **wanted)


def must_be_known_to(whom: str, config: StrictConfig, **wanted: object) -> None:
    """Refuse to export an option that another library has no equal for; a tuple holds those that it has."""
    for field, value in wanted.items():
        found = getattr(config, field)
        choices = value if isinstance(value, tuple) else (value,)
        if found not in choices:
            raise RegardError(
                f"{whom} has no equal for model.{field} = {_named(found)}",
                f"a model can be exported with {' or '.join(map(_named, choices))} there",
            )


def must_be_usual(whom: str, config: StrictConfig) -> None:
    """Refuse to export a model whose blocks lack or have parts that no other library knows."""
    if getattr(config, "feed_forward", 1) == 0:
        raise RegardError(
            f"{whom} has no equal for blocks without feed-forward", "train with model.feed_forward above 0 to export"
        )
    for field, value in (("norm_kind", "batch"), ("positions_where", "concatenate"), ("positions_where", "qkv")):
        if getattr(config, field, "") == value:
            raise RegardError(
                f"{whom} has no equal for model.{field} = {value!r}", f"leave model.{field} out to export"
            )


def library(name: str, extra: str) -> ModuleType:
    """Import an optional library; without it, say what to type."""
    try:
        return import_module(name)
    except ImportError as error:
        raise RegardError(f"{name} is not installed ({error})", f"pip install 'regard[{extra}]' brings it") from error


def _named(value: object) -> str:
    """A value as a configuration has it; a table by its kind."""
    return repr(getattr(value, "kind", value))


@dataclass(frozen=True)
class TensorRow:
    """Ours, one below another, are theirs, one below another (each transposed first if the row says so).

    Theirs are of one shape; ours may differ in height: [query (D, D); key_value (2 D, D)] = [c_attn (D, 3 D)ᵀ].
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    transposed: bool = False


def row(ours: str | Sequence[str], theirs: str | Sequence[str], *, transposed: bool = False) -> TensorRow:
    return TensorRow(_names(ours), _names(theirs), transposed)


def layer(ours: str, theirs: str, *, bias: bool = True, transposed: bool = False) -> list[TensorRow]:
    """The rows of a linear layer or a norm: its weight, and its bias if it has one."""
    rows = [row(f"{ours}.weight", f"{theirs}.weight", transposed=transposed)]
    return [*rows, row(f"{ours}.bias", f"{theirs}.bias")] if bias else rows


def to_ours(
    rows: Sequence[TensorRow], theirs: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], origin: str
) -> dict[str, Tensor]:
    """Their tensors as our parameters of the given shapes; `origin` is named in errors."""
    check_names(rows, theirs, origin)
    filled = [name for each in rows for name in each.ours]
    assert sorted(filled) == sorted(shapes), sorted(set(filled) ^ set(shapes))  # our own table, not the person's file
    ours: dict[str, Tensor] = {}
    for each in rows:
        ours.update(_to_ours(each, theirs, shapes, origin))
    return ours


def to_theirs(rows: Sequence[TensorRow], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters as their tensors."""
    used = [name for each in rows for name in each.ours]
    assert sorted(used) == sorted(ours), sorted(set(used) ^ set(ours))
    theirs: dict[str, Tensor] = {}
    for each in rows:
        parts = torch.cat([ours[name] for name in each.ours]).chunk(len(each.theirs))
        for name, part in zip(each.theirs, parts, strict=True):
            theirs[name] = (part.mT if each.transposed else part).contiguous()
    return theirs


def check_names(rows: Sequence[TensorRow], theirs: Iterable[str], origin: str) -> None:
    """Their names are those of the table, no more and no fewer."""
    wanted = [name for each in rows for name in each.theirs]
    assert len(wanted) == len(set(wanted))
    there = set(theirs)
    missing, unknown = sorted(set(wanted) - there), sorted(there - set(wanted))
    if missing or unknown:
        problems = [f"{len(names)} {what}: {_some(names)}" for what, names in _both(missing, unknown) if names]
        raise RegardError(f"{origin} does not hold the tensors that its config.json promises; {'; '.join(problems)}")


def _to_ours(
    each: TensorRow, theirs: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], origin: str
) -> dict[str, Tensor]:
    heights = [shapes[name][0] for name in each.ours]
    wanted = torch.Size((sum(heights), *shapes[each.ours[0]][1:]))
    if wanted[0] % len(each.theirs):
        raise RegardError(f"{origin}: {each.theirs} cannot make {wanted[0]} rows, as its config.json asks")
    part = torch.Size((wanted[0] // len(each.theirs), *wanted[1:]))
    part = part[::-1] if each.transposed else part
    for name in each.theirs:
        if theirs[name].shape != part:
            raise RegardError(
                f"{origin}: {name} is {tuple(theirs[name].shape)}, and by its config.json it would be {tuple(part)}"
            )
    joined = torch.cat([theirs[name].mT if each.transposed else theirs[name] for name in each.theirs])
    return dict(zip(each.ours, joined.split(heights), strict=True))


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _both(missing: list[str], unknown: list[str]) -> list[tuple[str, list[str]]]:
    return [("missing", missing), ("unknown", unknown)]


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Family:
    """How transformers writes one family. Names are those of the model with its head: `transformer.wte.weight`."""

    name: str  # its model_type
    task: Literal["generate", "fill"]
    prefix: str  # before every name but those of heads; a model saved without its head has none
    heads: tuple[str, ...]  # how names of heads begin
    ignored: re.Pattern[str]  # buffers that are no weights
    table: str  # the name of the table of embeddings
    old_ends: dict[str, str]  # how names ended in earlier years, and how they end now
    copies: Callable[[Any], dict[str, str]]  # what may be saved twice: a name, and the name it must be equal to
    read: Callable[[Settings, Collection[str]], Any]  # config.json and the names of tensors -> our configuration
    write: Callable[[Any], dict[str, JSON]]  # our configuration -> config.json
    rows: Callable[[Any], list[TensorRow]]

    def full_names(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names that the table has: with prefix, and without buffers."""
        bare = not any(name.startswith(self.prefix) for name in tensors)
        full: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            new = self.prefix + name if bare and not name.startswith(self.heads) else name
            for old, now in self.old_ends.items():
                new = new.removesuffix(old) + now if new.endswith(old) else new
            if new in full:
                raise RegardError(f"the file holds {new} twice, under an old and a new name", "keep one of them")
            full[new] = tensor
        return {name: tensor for name, tensor in full.items() if not self.ignored.search(name)}


def assemble(
    family: Family, config: Any, vocabulary: int, tensors: dict[str, Tensor], text: TextTokenizer, origin: str
) -> Bundle:
    """A bundle of our model with these tensors, which have the family's full names."""
    tensors = without_copies(tensors, family.copies(config), origin)
    rows = family.rows(config)
    check_names(rows, tensors, origin)  # before anything of the size that config.json claims is built
    table = tensors[family.table]
    if tuple(table.shape) != (vocabulary, config.width):
        raise RegardError(
            f"{origin}: the table of embeddings is {tuple(table.shape)}, and by its config.json it would be "
            f"{(vocabulary, config.width)}"
        )
    if text.last >= vocabulary:
        raise RegardError(
            f"{origin}: the tokenizer has ids up to {text.last}, and the model knows {vocabulary} tokens",
            "they do not belong together, so take both from one place",
        )
    model = build(family.task, config, (vocabulary,))
    _fill(model, rows, tensors, origin)
    settings = BundleConfig(
        task=family.task, tokens=TokensConfig(kind="imported"), vocabulary=(vocabulary,), model=config
    )
    return Bundle(settings, model.eval(), TokenizerPair(text, text), {})


def their_tensors(family: Family, bundle: Bundle) -> dict[str, Tensor]:
    """The model's parameters under the family's names; as transformers does, without the prefix if there is no head."""
    parameters = {name: parameter.detach().float() for name, parameter in bundle.model.named_parameters()}
    tensors = to_theirs(family.rows(bundle.config.model), parameters)
    if family.task == "fill" and not any(name.startswith(family.heads) for name in tensors):
        return {name.removeprefix(family.prefix): tensor for name, tensor in tensors.items()}
    return tensors


def without_copies(tensors: dict[str, Tensor], copies: dict[str, str], origin: str) -> dict[str, Tensor]:
    """The tensors without those that were saved twice, which must be equal."""
    for copy, original in copies.items():
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original]):
            raise RegardError(
                f"{origin}: {copy} should be the same tensor as {original}, and differs",
                "if the model was trained with both, its config.json should say tie_word_embeddings = false",
            )
    return {name: tensor for name, tensor in tensors.items() if name not in copies or copies[name] not in tensors}


def check_floats(tensors: Mapping[str, Tensor], origin: str) -> None:
    """Refuse weights that are no floating-point numbers."""
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise RegardError(
                f"{origin}: {name} holds {str(tensor.dtype).removeprefix('torch.')}",
                "only float weights are read (16, 32 or 64 bits), so take the model before it was quantised",
            )


def _fill(model: nn.Module, rows: list[TensorRow], tensors: dict[str, Tensor], origin: str) -> None:
    check_floats(tensors, origin)
    parameters = dict(model.named_parameters())
    ours = to_ours(rows, tensors, {name: parameter.shape for name, parameter in parameters.items()}, origin)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(ours[name])
