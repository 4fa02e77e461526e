"""Another library's config.json, read strictly: what is missing, of a wrong type, or beyond us is told in words."""

from __future__ import annotations

from typing import Any, TypeVar

from regard.config import StrictConfig
from regard.errors import RegardError

LARGEST = 2**24  # of any width, length or vocabulary; what is more is a damaged file
MOST_LAYERS = 4096

Config = TypeVar("Config", bound=StrictConfig)


class Settings:
    """The keys of a config.json. A key that is absent, or null, has the default of the library that wrote the file."""

    def __init__(self, values: dict[str, Any], origin: str) -> None:
        self.values, self.origin = values, origin

    def size(self, key: str, default: int | None = None, most: int = LARGEST) -> int:
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise RegardError(f"{self.origin}: {key} is {value!r}; it should be a whole number from 1 to {most:,}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self._value(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise RegardError(f"{self.origin}: {key} is {value!r}; it should be a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise RegardError(f"{self.origin}: {key} is {value!r}; it should be true or false")
        return value

    def choice(self, key: str, known: dict[str, str], default: str) -> str:
        """What we call the value of this key."""
        value = self._value(key, default)
        if not isinstance(value, str) or value not in known:
            raise RegardError(f"{self.origin}: {key} is {value!r}; Regard has {', '.join(known)}")
        return known[value]

    def only(self, key: str, *allowed: object) -> None:
        """The key is absent, null, or has a value that means nothing special."""
        value = self.values.get(key)
        if value is not None and value not in allowed:
            needs = " or ".join(repr(each) for each in allowed) or "no value"
            raise RegardError(f"{self.origin}: {key} is {value!r}, which Regard cannot express; it needs {needs}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise RegardError(f"{self.origin} has no {key}; copy the file again from where the model comes from")
        return value


def must_be(config: StrictConfig, name: str, **wanted: object) -> None:
    """Refuse to export an option that transformers has no equal for."""
    for field, value in wanted.items():
        found = getattr(config, field)
        choices = value if isinstance(value, tuple) else (value,)
        if found not in choices:
            raise RegardError(
                f"transformers' {name} has no equal for model.{field} = {_named(found)}; "
                f"a model can be exported with {' or '.join(map(_named, choices))} there"
            )


def _named(value: object) -> str:
    """A value as a configuration has it; a table by its kind."""
    return repr(getattr(value, "kind", value))
