"""Rows of JSON Lines files: the texts under given keys, and where a row has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.data.lines import read_lines
from regard.errors import RegardError, nearest

Reader = Callable[[str, object], str]  # (key, value) -> text, or a ValueError that says what is wrong with the value


def read_rows(path: Path, keys: Sequence[tuple[str, Reader]], see: str) -> list[list[str]]:
    """One text for each key of each line, all "" where the line is blank. `see` names the setting of the keys."""
    rows: list[list[str]] = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line) if line.strip() else None
            rows.append([read(key, _value(row, key)) for key, read in keys] if line.strip() else [""] * len(keys))
        except (ValueError, RecursionError) as error:  # JSONDecodeError is a ValueError
            wanted = ", ".join(f'"{key}": "…"' for key, _ in keys)
            raise RegardError(
                f"{path}, line {number}: {error}; each line should be {{{wanted}}} (see {see})"
            ) from error
    return rows


def as_text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, not a text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{key} holds a lone surrogate, which is not Unicode text")
    return value


def as_label(key: str, value: object) -> str:
    """A label may be a text, a whole number, or true and false."""
    if isinstance(value, int):  # True and False are also int
        return str(value)
    label = as_text(key, value).strip()
    if not label:
        raise ValueError(f"{key} is empty")
    return label


def _value(row: object, key: str) -> object:
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}, not an object")
    if key not in row:
        raise ValueError(f"no key {key!r}{nearest(key, map(str, row))}")
    return row[key]
