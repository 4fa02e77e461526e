"""Examples given as Python sequences: which files they become, so that a run of them goes on as any other. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.errors import UsageError
from regard.files import write_text
from regard.tasks.table import TASKS

Row = dict[str, str | int]  # one example, by the keys of its task
FILES = {"train": "data.jsonl", "valid": "valid.jsonl"}  # in the run's folder


def is_examples(data: object) -> bool:
    """Whether these are examples and not names of files: a name is a string or a path, several names are a tuple."""
    if isinstance(data, (str, Path, tuple)):
        return False
    if not isinstance(data, Iterable):
        raise UsageError(f"data is {data!r}; give the name of a file, a tuple of names, or a list of examples")
    return True


def rows_of(task: str, data: Iterable[object]) -> list[Row]:
    """Each example as a row: (source, target) to translate, (text, label) to classify, a text to generate and to fill."""
    keys = TASKS[task].columns
    if not keys:
        able = ", ".join(name for name, each in TASKS.items() if each.columns)
        raise UsageError(f"{task} learns from files; name them in data (a list holds examples for {able})")
    wanted = "a text" if len(keys) == 1 else f"a pair ({', '.join(keys)})"
    rows = []
    for number, each in enumerate(data):
        row = _row(each, keys)
        if row is None:
            advice = "names of files are a tuple" if isinstance(each, str) else f"it is {str(each)[:60]!r}"
            raise UsageError(f"data[{number}] should be {wanted} to {task}; {advice}")
        rows.append(row)
    if not rows:
        raise UsageError(f"data holds no example; give {wanted} for each")
    return rows


def _row(example: object, keys: tuple[str, ...]) -> Row | None:
    """Name the values of an example; None where there are not as many as keys, the first a text."""
    values = (example,) if isinstance(example, str) else example
    if not isinstance(values, Sequence) or len(values) != len(keys) or not isinstance(values[0], str):
        return None
    if not all(isinstance(value, (str, int)) for value in values):
        return None
    return dict(zip(keys, values, strict=True))


def keep(folder: Path, part: str, rows: Sequence[Row]) -> str:
    """Write the examples into a run's folder; return the name of the file."""
    file = write_text(folder / FILES[part], "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(file.absolute())
