"""Numbers that a person gives to a walk: from a file, or from an example of a lecture, checked so that their shapes fit.

    {"x": [[1, 0, 1, 0], ...], "W_q": ..., "W_k": ..., "W_v": ..., "mask": "causal", "scale": 1, "labels": ["a", "b", "c"]}

Also `W_o`, `memory` and `memory_labels` (cross-attention); or `scores` alone, which are masked and softmaxed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import RegardError, UsageError
from regard.files import read_json
from regard.look.walk.steps import Array, counted

MATRICES = ("x", "W_q", "W_k", "W_v", "W_o", "memory", "scores")
KEYS = (*MATRICES, "mask", "scale", "labels", "memory_labels")
LARGEST = 64  # rows or columns, beyond which nobody follows a walk


@dataclass(frozen=True, eq=False)
class GivenNumbers:
    """All that one head needs. `scale` is what products are multiplied by; None: 1 / √E."""

    x: Array  # (T, D)
    to_query: Array  # (D, E)
    to_key: Array  # (D, E)
    to_value: Array  # (D, F)
    to_out: Array | None = None  # (F, any)
    memory: Array | None = None  # (S, D): what is looked at; None: x itself
    allowed: Array | None = None  # (T, S): where a query may look; None: everywhere
    causal: bool = False  # `allowed` is so because later tokens are hidden
    scale: float | None = None
    labels: tuple[str, ...] = ()  # T
    memory_labels: tuple[str, ...] = ()  # S

    @property
    def keys(self) -> tuple[str, ...]:
        return self.labels if self.memory is None else self.memory_labels

    @property
    def looked_at(self) -> Array:
        return self.x if self.memory is None else self.memory


@dataclass(frozen=True, eq=False)
class ScoreGrid:
    """Scores that somebody drew, without the vectors they came from."""

    scores: Array  # (T, S)
    labels: tuple[str, ...]
    keys: tuple[str, ...]
    allowed: Array | None = None
    causal: bool = False
    scale: float = 1.0


def read_numbers(path: str | Path) -> GivenNumbers | ScoreGrid:
    """Read a .json object or an .npz archive with the names of `KEYS`; wrong shapes are refused with both shapes."""
    return check_numbers(read_values(path), str(path))


def read_values(path: str | Path) -> dict[str, object]:
    """The named values of a .json object or an .npz archive, as they stand there."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}", f"a .json or .npz file with {', '.join(KEYS[:4])}")
    values = _npz(path) if path.suffix.lower() == ".npz" else read_json(path)
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds no object", f'write one, as {{"x": [[1, 0], [0, 1]], "W_q": ...}}: {KEYS}')
    return values


def _npz(path: Path) -> dict[str, object]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name].tolist() for name in archive.files}
    except (OSError, ValueError) as error:
        raise RegardError(f"{path} is not an .npz archive of plain numbers", str(error)) from error


def check_numbers(values: Mapping[str, object], name: str) -> GivenNumbers | ScoreGrid:
    """Numbers by name, checked: what they are called, and that their shapes fit."""
    unknown = [key for key in values if key not in KEYS]
    if unknown:
        raise UsageError(f"{name}: nothing is called {unknown[0]!r}", f"there is {', '.join(KEYS)}")
    found = {key: read_matrix(values[key], f"{name}: {key}") for key in MATRICES if values.get(key) is not None}
    if "scores" in found:
        return _grid(found, values, name)
    missing = [key for key in ("x", "W_q", "W_k", "W_v") if key not in found]
    if missing:
        raise UsageError(f"{name} has no {missing[0]}", "give x, W_q, W_k and W_v, or scores alone")
    x, memory = found["x"], found.get("memory")
    looked_at = x if memory is None else memory
    for left, right in (("x", "W_q"), ("memory" if memory is not None else "x", "W_k")):
        check_product(found, left, right, name)
    check_product(found, "memory" if memory is not None else "x", "W_v", name)
    if found["W_q"].shape[1] != found["W_k"].shape[1]:
        raise UsageError(f"{name}: queries and keys must be as wide as each other", name_shapes(found, "W_q", "W_k"))
    if "W_o" in found:
        check_product(found, "W_v", "W_o", name)
    allowed, causal = _allowed(values.get("mask"), (len(x), len(looked_at)), name)
    labels = read_labels(values.get("labels"), len(x), f"{name}: labels")
    others = read_labels(values.get("memory_labels"), len(looked_at), f"{name}: memory_labels", "memory ")
    scale = _scale(values.get("scale"), name)
    return GivenNumbers(
        x, found["W_q"], found["W_k"], found["W_v"], found.get("W_o"), memory, allowed, causal, scale, labels, others
    )


def _grid(found: Mapping[str, Array], values: Mapping[str, object], name: str) -> ScoreGrid:
    scores, others = found["scores"], [key for key in found if key != "scores"]
    if others:
        raise UsageError(f"{name} has scores and {others[0]}", "scores are softmaxed as they are: give them alone")
    allowed, causal = _allowed(values.get("mask"), scores.shape, name)
    rows = read_labels(values.get("labels"), len(scores), f"{name}: labels")
    columns = read_labels(values.get("memory_labels"), scores.shape[1], f"{name}: memory_labels", "key ")
    square = len(rows) == scores.shape[1] and values.get("memory_labels") is None
    return ScoreGrid(
        scores, rows, rows if square else columns, allowed, causal, _scale(values.get("scale"), name) or 1.0
    )


def read_matrix(value: object, name: str) -> Array:
    """A matrix of finite numbers, small enough to follow."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is no matrix of numbers", "rows of equal length, as [[1, 0], [0, 1]]") from error
    if array.ndim != 2 or not array.size:
        raise UsageError(f"{name} has the shape {array.shape}", "a matrix has rows and columns, as [[1, 0], [0, 1]]")
    if max(array.shape) > LARGEST:
        raise UsageError(f"{name} is {name_shape(array)}; a walk goes through at most {LARGEST} rows and columns")
    if not np.isfinite(array).all():
        raise UsageError(f"{name} holds a number that is not finite")
    return array


def check_product(found: Mapping[str, Array], left: str, right: str, name: str) -> None:
    """Refuse two matrices that cannot be multiplied, with both shapes."""
    if found[left].shape[1] != found[right].shape[0]:
        raise UsageError(f"{name}: {left} and {right} cannot be multiplied", name_shapes(found, left, right))


def name_shapes(found: Mapping[str, Array], *names: str) -> str:
    """The shapes of some of the matrices, in words."""
    return " and ".join(f"{each} is {name_shape(found[each])}" for each in names)


def name_shape(array: Array) -> str:
    return " x ".join(map(str, array.shape))


def _allowed(mask: object, shape: tuple[int, int], name: str) -> tuple[Array | None, bool]:
    """Where queries may look, of "causal" or a matrix with 1 where they may; and whether it is the former."""
    if mask is None:
        return None, False
    if isinstance(mask, str):
        if mask != "causal":
            raise UsageError(
                f"{name}: no mask is called {mask!r}", '"causal", or a matrix with 1 where a query may look'
            )
        return np.arange(shape[1])[None] <= np.arange(shape[0])[:, None], True
    found = read_matrix(mask, f"{name}: mask")
    if found.shape != shape:
        raise UsageError(f"{name}: mask is {name_shape(found)}, and there are {shape[0]} queries and {shape[1]} keys")
    return found != 0, False


def read_labels(value: object, count: int, name: str, before: str = "token ") -> tuple[str, ...]:
    """Names of rows, or numbers from 1 where none are given."""
    if value is None:
        return tuple(f"{before}{number}" for number in range(1, count + 1))
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value) or len(value) != count:
        raise UsageError(f"{name} must be {counted(count, 'text')}, one for each row")
    return tuple(value)


def read_vector(value: object, name: str) -> Array:
    """A row of finite numbers."""
    found = read_matrix(
        [value] if isinstance(value, list) and value and not isinstance(value[0], list) else value, name
    )
    if len(found) != 1:
        raise UsageError(f"{name} is {name_shape(found)}", "a vector is one row, as [1, 0, 2]")
    return found[0]


def check_names(values: Mapping[str, object], known: tuple[str, ...], needed: tuple[str, ...], name: str) -> None:
    """Refuse values that nobody knows, and the lack of one that is needed."""
    unknown = [key for key in values if key not in known]
    if unknown:
        raise UsageError(f"{name}: nothing is called {unknown[0]!r}", f"there is {', '.join(known)}")
    missing = [key for key in needed if values.get(key) is None]
    if missing:
        raise UsageError(f"{name} has no {missing[0]}", f"give {', '.join(needed)}")


def read_count(value: object, name: str, least: int) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} is {value!r}", f"a whole number from {least} on")
    return value


def _scale(value: object, name: str) -> float | None:
    if value is None:
        return None
    number = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not np.isfinite(number):
        raise UsageError(f"{name}: scale is {value!r}", "a number that scores are multiplied by; 1 is unscaled")
    return float(number)
