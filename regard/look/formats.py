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


def as_csv(weights: np.ndarray, columns: Sequence[str], rows: Sequence[str], notes: Sequence[str] = ()) -> str:
    """A header of column labels, then a line for each row label; heads have their number in front. Masked is empty.

    Notes stand in the corner, above the row labels, where no program reads a number.
    """
    text = io.StringIO()
    corner = "; ".join(notes)
    writer = csv.writer(text, lineterminator="\n")
    if weights.ndim == 2:
        writer.writerow([corner, *columns])
        writer.writerows([label, *_cells(line)] for label, line in zip(rows, weights, strict=True))
    else:
        writer.writerow(["head", corner, *columns])
        for index, head in enumerate(weights):
            writer.writerows([index, label, *_cells(line)] for label, line in zip(rows, head, strict=True))
    return text.getvalue()


def _cells(line: np.ndarray) -> list[str]:
    return ["" if np.isnan(weight) else repr(float(weight)) for weight in line]
