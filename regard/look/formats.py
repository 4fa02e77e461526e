"""An attention map as data: JSON for programs, CSV for spreadsheets. Every number survives the round trip."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import numpy as np

from regard.files import finite


def as_json(
    weights: np.ndarray, columns: Sequence[str], rows: Sequence[str], title: str, notes: Sequence[str] = ()
) -> str:
    """One object with title, notes, columns, rows and weights, nested as the map is; a masked cell is null."""
    value = {"title": title, "notes": notes, "columns": columns, "rows": rows}
    return json.dumps(finite({**value, "weights": weights.tolist()}), ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(weights: np.ndarray, columns: Sequence[str], rows: Sequence[str]) -> str:
    """A header of names ("token" and the column labels), then a line for each row label; heads have their number in front.

    A masked cell is empty. Notes are sentences, not names: they stand in the JSON.
    """
    heads: list[tuple[tuple[int, ...], np.ndarray]] = [((), weights)]
    if weights.ndim == 3:
        heads = [((number,), head) for number, head in enumerate(weights)]
    return _as_csv(["head"] if weights.ndim == 3 else [], heads, columns, rows)


def layers_as_csv(layers: Sequence[np.ndarray], columns: Sequence[str], rows: Sequence[str]) -> str:
    """As `as_csv`, of layers (H, T, S) each; layer and head have their numbers in front."""
    heads = [((layer, head), weights) for layer, each in enumerate(layers) for head, weights in enumerate(each)]
    return _as_csv(["layer", "head"], heads, columns, rows)


def _as_csv(
    numbered: Sequence[str],
    heads: Sequence[tuple[tuple[int, ...], np.ndarray]],
    columns: Sequence[str],
    rows: Sequence[str],
) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*numbered, "token", *columns])
    for numbers, weights in heads:
        writer.writerows([*numbers, label, *_cells(line)] for label, line in zip(rows, weights, strict=True))
    return text.getvalue()


def _cells(line: np.ndarray) -> list[str]:
    return ["" if np.isnan(weight) else repr(float(weight)) for weight in line]
