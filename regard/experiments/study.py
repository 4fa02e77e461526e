"""What a study is made of: parts that are measured one by one, tables of their results, and claims held against them.

A claim about two groups of runs is judged by all their seeds: it holds where every seed of the one lies above every seed of
the other, it fails where it is the other way round, and otherwise the seeds do not decide.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]  # what was measured in a part: numbers, and words that say of what
Report = Callable[[float], None]  # the share of a part that is done, 0 to 1
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A piece of work whose result is kept as soon as it is there; where that has `rows`, each of them is a result."""

    name: str
    measure: Callable[[Report], Row]
    cost: float = 1.0  # as a share of the other parts


@dataclass(frozen=True)
class Found:
    """The results of all parts, with the settings and seeds that gave them."""

    rows: Sequence[Row]
    settings: Settings
    seeds: Sequence[int]

    def where(self, **same: object) -> list[Row]:
        """The rows in which these have these values."""
        return [row for row in self.rows if all(row.get(key) == value for key, value in same.items())]

    def values(self, key: str, **same: object) -> list[float]:
        """One number of each such row that has it; what diverged has none (NaN)."""
        found = [row[key] for row in self.where(**same) if key in row]
        return [math.nan if value is None else float(value) for value in found]

    def group(self, name: str, key: str, **same: object) -> Group:
        return Group(name, self.values(key, **same))


@dataclass(frozen=True)
class Group:
    """The same number from several seeds."""

    name: str
    values: Sequence[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values) if self.values else math.nan

    def __str__(self) -> str:
        return f"{self.name} {spread(self.values)}"


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; all but the first hold numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class Check:
    """A sentence of the lectures, and what the numbers say of it. `holds` None: these seeds do not decide."""

    says: str
    found: str
    holds: bool | None

    def data(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Study:
    """What an experiment runs, and what it makes of the results."""

    settings: Settings
    tiny: Settings  # instead of some of these, to see in seconds that it runs
    seeds: tuple[int, ...]
    parts: Callable[[Settings, Sequence[int]], list[Part]]
    tables: Callable[[Found], list[Table]]
    checks: Callable[[Found], list[Check]]
    draw: Callable[[Found], Figure]


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits that count: 0.0123, 45.6, 1,230."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The mean of several seeds, with the least and the greatest: 91.2 (90.1 to 92.3)."""
    if not values:
        return "–"
    middle = number(statistics.fmean(values), digits)
    low, high = number(min(values), digits), number(max(values), digits)
    return middle if low == high else f"{middle} ({low} to {high})"


def above(says: str, first: Group, second: Group) -> Check:
    """The claim that `first` is the greater: every seed of it lies above every seed of `second`."""
    return Check(says, f"{first}, {second}", _above(first.values, second.values))


def below(says: str, first: Group, second: Group) -> Check:
    """The claim that `first` is the smaller."""
    return Check(says, f"{first}, {second}", _above(second.values, first.values))


def alike(says: str, first: Group, second: Group, within: float) -> Check:
    """The claim that the means of both differ by no more than `within`; it fails where they do, and all seeds agree on it."""
    apart = abs(first.mean - second.mean)
    separate = _above(first.values, second.values) is not None
    holds = True if apart <= within else False if separate else None
    return Check(says, f"{first}, {second}: {number(apart)} apart, at most {within:g} is alike", holds)


def at_least(says: str, what: Group, bound: float) -> Check:
    """The claim that a number is at least `bound`, in every seed; it fails where it is less in every seed."""
    holds = _decided([value >= bound for value in what.values])
    return Check(says, f"{what}; {bound:g} or more is wanted", holds)


def at_most(says: str, what: Group, bound: float) -> Check:
    """The claim that a number is at most `bound`, in every seed; it fails where it is more in every seed."""
    holds = _decided([value <= bound for value in what.values])
    return Check(says, f"{what}; {bound:g} or less is wanted", holds)


def _above(first: Sequence[float], second: Sequence[float]) -> bool | None:
    if not first or not second or any(map(math.isnan, (*first, *second))):
        return None
    if min(first) > max(second):
        return True
    return False if max(first) < min(second) else None


def _decided(each: Sequence[bool]) -> bool | None:
    if not each:
        return None
    return True if all(each) else None if any(each) else False


def verdict(checks: Sequence[Check]) -> str:
    """One sentence: whether what came is what lectures say."""
    held = [check for check in checks if check.holds]
    failed = [check for check in checks if check.holds is False]
    open_ = [check for check in checks if check.holds is None]
    if len(held) == len(checks):
        return f"This is what lectures say: {_count(checks, 'claim')} of {len(checks)} held."
    start = "This is not what lectures say" if failed and not held else "This is what lectures say only in part"
    if not failed and not held:
        start = "These seeds do not decide whether lectures are right"
    parts = [f"{len(held)} of {_count(checks, 'claim')} held"]
    parts += [f"not so: {check.says[:1].lower()}{check.says[1:]} ({check.found})" for check in failed]
    parts += [f"undecided: {check.says[:1].lower()}{check.says[1:]} ({check.found})" for check in open_]
    return f"{start}: {'; '.join(parts)}."


def _count(checks: Sequence[Check], what: str) -> str:
    return f"{len(checks)} {what}{'' if len(checks) == 1 else 's'}"
