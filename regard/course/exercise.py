"""What an exercise is, and how an answer is held against an independent computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

TOLERANCE = 1e-6
SHOWN = 60  # characters of an answer that a message quotes


class AnswerError(Exception):
    """An answer that cannot be judged: it is missing, it fails, it takes too long. `hint` says what to do."""

    def __init__(self, wrong: str, hint: str = "") -> None:
        super().__init__(wrong)
        self.wrong = wrong
        self.hint = hint


@dataclass(frozen=True)
class Point:
    """One thing that was checked: whether it is right, what was found, and what would help."""

    right: bool
    says: str
    hint: str = ""

    def data(self) -> dict[str, object]:
        return {"right": self.right, "says": self.says, "hint": self.hint}


class Answer(Protocol):
    """The file of a reader: values by name, and functions that are called."""

    def value(self, name: str) -> Any: ...
    def call(self, name: str, *arguments: Any) -> Any: ...


Check = Callable[[Answer], Iterator[Point]]


@dataclass(frozen=True)
class Exercise:
    """A question, the file that a reader fills in, and the checks of its parts."""

    question: str
    template: str
    checks: tuple[Check, ...]
    seconds: float = 10.0  # that the reader's file may take for everything


@dataclass(frozen=True, eq=False)
class Mistake:
    """Numbers that a well-known mistake gives, and what to say to who has made it."""

    numbers: Any
    hint: str


def short(value: object) -> str:
    """A value in one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 2]} …"


def as_numbers(value: object) -> np.ndarray | None:
    """A value as an array of float64, or None if it is not made of numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def near(found: object, wanted: object, apart: float | None = None) -> bool:
    """Whether both are arrays of one shape whose numbers differ by `apart` at most, or by a millionth of the greatest."""
    one, other = as_numbers(found), as_numbers(wanted)
    if one is None or other is None or one.shape != other.shape:
        return False
    greatest = float(np.abs(other).max(initial=0.0, where=np.isfinite(other))) or 1.0
    allowed = TOLERANCE * greatest if apart is None else apart
    return bool(np.allclose(one, other, rtol=0, atol=allowed, equal_nan=True))  # a mistake may give NaN


def compare(
    what: str,
    found: object,
    wanted: object,
    hint: str = "",
    mistakes: Sequence[Mistake] = (),
    apart: float | None = None,
) -> Point:
    """Hold numbers against those that are right; a wrong answer is told with both, at the place of the greatest difference."""
    if near(found, wanted, apart):
        return Point(True, f"{what}: right")
    known = next((each.hint for each in mistakes if near(found, each.numbers, apart)), hint)
    numbers, right = as_numbers(found), np.asarray(wanted, dtype=np.float64)
    if numbers is None:
        return Point(False, f"{what}: {short(found)} is not made of numbers of one shape", known)
    if numbers.shape != right.shape:
        shapes = f"yours has the shape {numbers.shape}, it should be {right.shape}"
        return Point(False, f"{what}: {shapes}", known)
    return Point(False, f"{what}: {_difference(numbers, right)}", known)


def _difference(found: np.ndarray, wanted: np.ndarray) -> str:
    if not found.shape:
        return f"you have {float(found):.6g}, it is {float(wanted):.6g}"
    apart = np.where(np.isnan(found), np.inf, np.abs(found - wanted))
    place = tuple(int(each) for each in np.unravel_index(int(apart.argmax()), apart.shape))
    where = ", ".join(map(str, place))
    return f"at [{where}] you have {found[place]:.6g}, it is {wanted[place]:.6g}"


def expect(what: str, holds: bool, wrong: str, hint: str = "") -> Point:
    """A point that is right if something holds, and says `wrong` if it does not."""
    return Point(True, f"{what}: right") if holds else Point(False, f"{what}: {wrong}", hint)


def rounded(what: str, found: object, wanted: np.ndarray, digits: int, hint: str = "") -> Point:
    """Compare numbers that a person rounded: each may be off by one in the last digit."""
    return compare(what, found, np.round(wanted, digits), hint, apart=1.001 * 10.0**-digits)
