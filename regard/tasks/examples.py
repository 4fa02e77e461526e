"""Examples given as Python sequences: which files they become, so that a run of them goes on as any other. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.files import write_text
from regard.tasks.table import TASKS

FILES = {"train": "data.jsonl", "valid": "valid.jsonl"}  # in the run's folder


def is_examples(data: object) -> bool:
    """Whether these are examples and not names of files: a name is a string or a path, several names are a tuple."""
    if isinstance(data, (str, Path, tuple)):
        return False
    if not isinstance(data, Iterable):
        raise UsageError(f"data is {data!r}; give the name of a file, a tuple of names, or a list of examples")
    return True


def rows_of(task: str, data: Iterable[Any]) -> list[dict[str, Any]]:
    """Each example as a row: (source, target) to translate, (text, label) to classify, a text to generate and to fill."""
    keys = TASKS[task].columns
    if not keys:
        able = ", ".join(name for name, each in TASKS.items() if each.columns)
        raise UsageError(f"{task} learns from files; name them in data (a list holds examples for {able})")
    wanted = "a text" if len(keys) == 1 else f"a pair ({', '.join(keys)})"
    rows = []
    for number, each in enumerate(data):
        values = (each,) if isinstance(each, str) else each
        fits = isinstance(values, Sequence) and len(values) == len(keys) and isinstance(values[0], str)
        if not fits or not all(isinstance(value, (str, int)) for value in values):
            advice = "names of files are a tuple" if isinstance(each, str) else f"it is {str(each)[:60]!r}"
            raise UsageError(f"data[{number}] should be {wanted} to {task}; {advice}")
        rows.append(dict(zip(keys, values, strict=True)))
    if not rows:
        raise UsageError(f"data holds no example; give {wanted} for each")
    return rows


def keep(folder: Path, part: str, rows: Sequence[dict[str, Any]]) -> str:
    """Write the examples into a run's folder; the name of the file."""
    file = write_text(folder / FILES[part], "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(file.absolute())
