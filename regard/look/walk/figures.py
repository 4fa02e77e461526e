"""Numbers as a person reads them: so many digits behind the point, whole numbers without."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from regard.look.labels import visible, visible_title
from regard.look.walk.steps import Line, Numbers

OPERATORS = "·+-−/^√"


def figure(value: float, digits: int) -> str:
    """Like -0.123; 7 where it is whole; 6.1e-08 where all shown digits would be zeros."""
    if not math.isfinite(value):
        return "-∞" if value < 0 else str(value)
    if value == round(value) and abs(value) < 1e6:
        return str(int(value))
    if abs(value) < 0.5 * 10**-digits or abs(value) >= 1e6:
        return short(value, min(1, digits))
    return f"{value:.{digits}f}"


def short(value: float, digits: int = 0) -> str:
    """Like 6e-8."""
    power = f"{value:.{digits}e}"
    return power.replace("e-0", "e-").replace("e+0", "e") if value else "0"


def figures(values: np.ndarray, digits: int) -> list[list[str]]:
    """The cells of an array: all whole numbers, or all with digits behind the point."""
    known = values[np.isfinite(values)]
    if (known == known.round()).all() and (np.abs(known) < 1e6).all():
        return [[figure(value, 0) for value in row] for row in values.tolist()]
    return [[_cell(value, digits) for value in row] for row in values.tolist()]


def written(line: Line, digits: int) -> str:
    """The equation with its numbers; a negative one after an operator stands in brackets."""
    parts = line.text.split("{}")
    text = parts[0]
    for value, after in zip(line.numbers, parts[1:], strict=True):
        shown = figure(value, digits)
        follows = text.rstrip()[-1:]
        text += (f"({shown})" if shown.startswith("-") and follows and follows in OPERATORS else shown) + after
    return text


def named(label: str) -> str:
    """The label of a row or column: a token with its spaces made visible, or our own words as they are."""
    return visible(label) if label != label.strip() else visible_title(label)


def size_of(array: Numbers) -> str:
    """Its name and its size."""
    rows, columns = array.values.shape
    return f"{array.name} ({columns})" if rows == 1 else f"{array.name} ({rows} x {columns})"


def tables(arrays: Sequence[Numbers]) -> list[list[Numbers]]:
    """Arrays that stand beside each other, together."""
    found: list[list[Numbers]] = []
    for array in arrays:
        if array.beside and found:
            found[-1].append(array)
        else:
            found.append([array])
    return found


def _cell(value: float, digits: int) -> str:
    if not math.isfinite(value) or value != round(value):
        return figure(value, digits)
    return f"{value + 0.0:.{digits}f}"  # a whole number among others; plus zero, so that none is -0
