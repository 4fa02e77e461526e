"""A whole run: what to do, with which data, tokens, model, training and decoding. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from regard.config import StrictConfig, check, from_assignments, merge, read_toml
from regard.data.config import PairsConfig
from regard.decode.config import DecodeConfig
from regard.errors import UsageError, nearest
from regard.models.config import ModelConfig, TransformerConfig, preset
from regard.tokens.config import TokensConfig
from regard.training.config import TrainConfig

TASKS = ("translate",)
_A_KEY = {"model": "width", "train": "lr", "tokens": "size"}


class ValidateConfig(StrictConfig):
    """What a validation looks at besides the loss."""

    sentences: int = Field(500, ge=0, description="Validation sentences translated (greedily) for BLEU; 0 for none.")
    samples: int = Field(2, ge=0, description="Translations shown to the person.")


class RunConfig(StrictConfig):
    """A run, as a TOML file describes it; every key has a default."""

    task: Literal["translate"] = "translate"
    data: PairsConfig = PairsConfig()
    tokens: TokensConfig = TokensConfig()
    model: ModelConfig = TransformerConfig()
    train: TrainConfig = TrainConfig(select="bleu")
    validate_: ValidateConfig = Field(ValidateConfig(), alias="validate")
    decode: DecodeConfig = DecodeConfig()

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def run_config(what: str, over: dict[str, Any] | None = None, assignments: list[str] | None = None) -> RunConfig:
    """The configuration of a run: a task's name or a TOML file, laid over by options, then by `--set` assignments."""
    if what in TASKS:
        values: dict[str, Any] = {"task": what}
    elif what.endswith(".toml"):
        values = read_toml(what)
    else:
        raise UsageError(f"no task {what}{nearest(what, TASKS)} (or name a .toml file)")
    values = merge(values, over or {})
    values = merge(values, from_assignments(assignments or []))
    _check_tables(values, what)
    size = values.pop("preset", "tiny")
    model = values.get("model", {})
    values["model"] = merge(preset(size, model.get("kind", "transformer")), model)
    if "select" not in values.get("train", {}):
        values = merge(values, {"train": {"select": "bleu" if _translates(values) else "loss"}})
    return check(RunConfig, _separate(values), what)


def _check_tables(values: dict[str, Any], origin: str) -> None:
    """What is looked into before the whole is checked."""
    for name in ("model", "train", "tokens"):
        if not isinstance(values.get(name, {}), dict):
            hint = f"set a key of it, such as {name}.{_A_KEY[name]}"
            raise UsageError(f"{origin}: {name} is a table, not {values[name]!r}; {hint}")
    if not isinstance(values.get("preset", ""), str):
        raise UsageError(f"{origin}: preset is a name, not {values['preset']!r}")


def _translates(values: dict[str, Any]) -> bool:
    """Whether validations translate at all; without, only the loss can select."""
    validate = values.get("validate")
    return not (isinstance(validate, dict) and validate.get("sentences") == 0)


def _separate(values: dict[str, Any]) -> dict[str, Any]:
    """Separate vocabularies cannot share the source's table: the default follows `tokens.joint`."""
    if values.get("tokens", {}).get("joint") is False and "tied" not in values["model"]:
        return merge(values, {"model": {"tied": "target"}})
    return values


def data_folder(what: str) -> Path | None:
    """Beside which folder data files are looked for: that of the configuration file."""
    return Path(what).resolve().parent if what.endswith(".toml") else None
