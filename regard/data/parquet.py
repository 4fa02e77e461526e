"""Pairs in columns of Parquet files, read in batches by pyarrow, where a person has installed it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.data.rows import MISSING, Table
from regard.errors import RegardError, UsageError

PARQUET = ".parquet"
ROWS = 1000  # read at once


def parquet_table(path: Path) -> Table:
    """The names of the columns and the first rows, to tell which column is which. Fields of a column count as columns."""
    file = _opened(path)
    places = _places(file.schema_arrow)
    names = tuple(place[-1] for place in places)
    rows = next(parquet_rows(path, file, tuple(range(len(places)))), [])
    return Table(path, names, [(number, list(cells)) for number, cells in enumerate(rows, start=1)], "")


def parquet_rows(path: Path, file: Any, columns: tuple[int, ...]) -> Iterator[list[tuple[object, ...]]]:
    """Cells of some columns, some rows at once."""
    places = [_places(file.schema_arrow)[column] for column in columns]
    try:
        for batch in file.iter_batches(ROWS, columns=list(dict.fromkeys(place[0] for place in places))):
            yield [tuple(_at(row, place) for place in places) for row in batch.to_pylist()]
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise RegardError(f"cannot read {path}: {error}", "fetch it again") from error


def parquet_cells(path: Path, columns: tuple[int, ...]) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Number, from 1, and cells of each row."""
    number = 0
    for rows in parquet_rows(path, _opened(path), columns):
        for cells in rows:
            number += 1
            yield number, cells


def _opened(path: Path) -> Any:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            f"{path}: Parquet is read with pyarrow, which is not installed",
            "pip install pyarrow, or write the pairs as .tsv, .csv or .jsonl",
        ) from error
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise RegardError(f"{path} is not a whole Parquet file ({error})", "fetch it again") from error


def _places(schema: Any) -> list[tuple[str, ...]]:
    """Each column, or each field of a column of records, such as `translation` with `en` and `de`."""
    found: list[tuple[str, ...]] = []
    for field in schema:
        fields = [field.type.field(place).name for place in range(field.type.num_fields)]
        is_record = str(field.type).startswith("struct")
        found += [(field.name, name) for name in fields] if is_record else [(field.name,)]
    return found


def _at(row: dict[str, Any], place: tuple[str, ...]) -> object:
    value: Any = row
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return MISSING if value is None else value
