"""Where two values of JSON differ, and by how much."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


class Differences(list[tuple[str, Any, Any]]):
    """Where two values differ: the place, the one and the other; numbers also by how much."""

    @classmethod
    def of(cls, before: Any, after: Any) -> Differences:
        return cls(walk(before, after, ""))

    @property
    def largest(self) -> float:
        """The largest relative difference of two numbers; infinite where something else differs."""
        return max((apart(before, after) for _, before, after in self), default=0.0)

    @property
    def largest_number(self) -> float:
        """The largest relative difference among those of numbers."""
        sizes = (apart(before, after) for _, before, after in self)
        return max((size for size in sizes if math.isfinite(size)), default=0.0)

    def line(self, name: str) -> str:
        place, before, after = self[0]
        size = "not only numbers" if math.isinf(self.largest) else f"largest relative difference {self.largest:.2g}"
        return f"{name}: {len(self)} differ, {size}; first {place or '.'}: {short(before)} -> {short(after)}"


def walk(before: Any, after: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Every place where two values of JSON differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from walk(before.get(key, "nothing"), after.get(key, "nothing"), f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from walk(one, other, f"{place}[{number}]")
    elif isinstance(before, str) and isinstance(after, str) and NUMBER.sub("", before) == NUMBER.sub("", after):
        for one, other in zip(NUMBER.findall(before), NUMBER.findall(after), strict=True):
            if one != other:
                yield place, float(one), float(other)
    elif before != after:
        yield place, before, after


def apart(before: Any, after: Any) -> float:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (before, after))
    return abs(before - after) / max(abs(before), abs(after)) if numbers else math.inf


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 70 else text[:67] + "..."
