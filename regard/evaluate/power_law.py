"""Power laws of a loss, L = E + A N^-α + B D^-β (Kaplan et al. 2020; Hoffmann et al. 2022), with intervals of their exponents.

What is made small is the sum of squared residuals, each as a share of its loss. With given exponents the law is linear in E, A,
B ≥ 0 and solved exactly, so that only exponents are searched for (variable projection, Golub & Pereyra 1973). The 95% interval
of an exponent, or of E, holds the values with which all the rest can be chosen so that the law fits about as well (profile
likelihood): the sum of squares is at most 1 + t² / (n - p) times the least, for n points and p numbers of the law.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LOWEST, HIGHEST = 0.01, 3.0  # exponents that are searched
COARSE, FINE, NARROWER, ROUNDS = 32, 7, 0.35, 12  # points of the first search along each exponent, and of later ones
HALVINGS = 14  # of what is left of an interval
TINY = 1e-14  # share added to squares, so that columns that are alike can be solved for
KNOWN = 2.0  # an exponent is known where one end of its interval is at most so many times the other

Interval = tuple[float, float]


@dataclass(frozen=True)
class PowerLaw:
    """A law that was fitted, by the names of what the loss falls with: N, D or C."""

    floor: float  # E
    factors: Mapping[str, float]  # A of N, B of D
    exponents: Mapping[str, float]  # α of N, β of D
    intervals: Mapping[str, Interval]  # of the exponents; an end at which nothing is excluded is 0 or ∞
    floors: Interval  # of E
    at_ends: Mapping[str, Interval]  # the E that goes with each end of an exponent's interval
    error: float  # standard deviation of a loss from the law, as a share of the loss
    points: int

    def at(self, **places: np.ndarray | float) -> np.ndarray:
        """The loss at so many parameters, tokens or operations."""
        terms = [self.factors[name] * np.asarray(each, float) ** -self.exponents[name] for name, each in places.items()]
        return np.asarray(self.floor + sum(terms))

    def known(self, name: str) -> bool:
        """Whether an exponent can be told apart from the E that goes with it."""
        low, high = self.intervals[name]
        return low > 0 and high <= KNOWN * low

    def data(self) -> dict[str, object]:
        return {
            "floor": self.floor, "floor_interval": list(self.floors), "factors": dict(self.factors),
            "exponents": dict(self.exponents), "intervals": {name: list(each) for name, each in self.intervals.items()},
            "floors_at_ends": {name: list(each) for name, each in self.at_ends.items()},
            "known": {name: self.known(name) for name in self.exponents}, "error": self.error, "points": self.points,
        }  # fmt: skip


def fit_power_law(losses: Sequence[float], places: Mapping[str, Sequence[float]], *, floor: bool = True) -> PowerLaw:
    """The law of losses at places such as {"N": [...], "D": [...]}; without `floor` E is 0."""
    search = _Search(np.asarray(losses, float), np.stack([np.asarray(each, float) for each in places.values()]), floor)
    best = search.best()
    free = len(losses) - len(places) * 2 - floor
    limit = best.squares * (1 + student(free) ** 2 / free) if free > 0 else math.inf
    intervals, at_ends = {}, {}
    for number, name in enumerate(places):
        low, high = search.interval(number, best, limit)
        intervals[name] = low.place if low.inside else 0.0, high.place if high.inside else math.inf
        at_ends[name] = low.solution.floor, high.solution.floor
    factors = dict(zip(places, map(float, best.factors), strict=True))
    exponents = dict(zip(places, map(float, best.exponents), strict=True))
    error = math.sqrt(best.squares / free) if free > 0 else math.nan
    floors = search.floors(best, limit) if floor else (0.0, 0.0)
    return PowerLaw(best.floor, factors, exponents, intervals, floors, at_ends, error, len(losses))


def student(free: int, share: float = 0.975) -> float:
    """The quantile of Student's t with so many degrees of freedom, by the area under its density."""
    scale = math.exp(math.lgamma((free + 1) / 2) - math.lgamma(free / 2)) / math.sqrt(free * math.pi)

    def below(t: float) -> float:
        middles = t * (np.arange(20_000) + 0.5) / 20_000
        return 0.5 + t * scale * float(((1 + middles**2 / free) ** (-(free + 1) / 2)).mean())

    return _halved(lambda t: below(t) < share, 0.0, 100.0, 2 * HALVINGS)


def _halved(holds: Callable[[float], bool], inside: float, outside: float, times: int = HALVINGS) -> float:
    """Where something ends to hold between a place where it does and one where it does not."""
    for _ in range(times):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


@dataclass(frozen=True)
class _Solution:
    squares: float
    floor: float
    factors: np.ndarray
    exponents: np.ndarray


@dataclass(frozen=True)
class _End:
    """An end of an interval; not `inside` if it is that of the search."""

    place: float
    inside: bool
    solution: _Solution


class _Search:
    """The losses, and where they were measured: as distances from the mean in logarithms, so that factors stay near 1."""

    def __init__(self, losses: np.ndarray, places: np.ndarray, floor: bool) -> None:
        logarithms = np.log(places)  # (terms, n)
        self.losses, self.floor = losses, floor
        self.middle = logarithms.mean(axis=1)
        self.away = logarithms - self.middle[:, None]

    def best(self, fixed: Mapping[int, float] | None = None, given: float | None = None) -> _Solution:
        """The law with the least squares: with some exponents `fixed`, or with a `given` E."""
        fixed = fixed or {}
        free = [number for number in range(len(self.away)) if number not in fixed]
        low, high = np.full(len(free), math.log(LOWEST)), np.full(len(free), math.log(HIGHEST))
        found: _Solution | None = None
        for turn in range(ROUNDS if free else 1):
            points = COARSE if turn == 0 else FINE
            axes = [np.linspace(first, last, points) for first, last in zip(low, high, strict=True)]
            grid = list(itertools.product(*axes))  # of one point without numbers if none is free
            every = np.empty((len(grid), len(self.away)))
            every[:, free] = np.exp(grid)
            for number, exponent in fixed.items():
                every[:, number] = exponent
            here = self._solve(every, given)
            found = here if found is None or here.squares < found.squares else found
            reach = (high - low) * (1.5 / COARSE if turn == 0 else NARROWER / 2)
            centre = np.log(found.exponents[free])
            low = np.maximum(centre - reach, math.log(LOWEST))
            high = np.minimum(centre + reach, math.log(HIGHEST))
        assert found is not None
        return found

    def _solve(self, exponents: np.ndarray, given: float | None) -> _Solution:
        """The best of several sets of exponents (G, terms), with the E and the factors ≥ 0 that fit best."""
        terms = np.exp(-exponents[:, :, None] * self.away)  # (G, terms, n)
        wanted = 1 - (0.0 if given is None else given) / self.losses
        constant = self.floor and given is None
        columns = np.concatenate([np.ones_like(terms[:, :1]), terms], axis=1) if constant else terms
        columns = (columns / self.losses).transpose(0, 2, 1)  # (G, n, k)
        count = columns.shape[2]
        products = columns.transpose(0, 2, 1) @ columns  # (G, k, k)
        products = products + TINY * np.trace(products, axis1=1, axis2=2)[:, None, None] * np.eye(count)
        sides = (columns.transpose(0, 2, 1) @ wanted)[:, :, None]  # (G, k, 1)
        least, chosen = np.full(len(columns), np.inf), np.zeros((len(columns), count))
        for used in (list(each) for size in range(1, count + 1) for each in itertools.combinations(range(count), size)):
            whole = np.zeros_like(chosen)
            whole[:, used] = np.linalg.solve(products[:, used][:, :, used], sides[:, used])[..., 0]
            squares = (((columns @ whole[:, :, None])[..., 0] - wanted) ** 2).sum(axis=1)
            better = (whole >= 0).all(axis=1) & (squares < least)
            least, chosen = np.where(better, squares, least), np.where(better[:, None], whole, chosen)
        one = int(least.argmin())
        factors = chosen[one, 1:] if constant else chosen[one]
        floor = float(chosen[one, 0]) if constant else (given or 0.0)
        return _Solution(float(least[one]), floor, factors * np.exp(exponents[one] * self.middle), exponents[one])

    def interval(self, number: int, best: _Solution, limit: float) -> tuple[_End, _End]:
        """The lowest and the highest value of an exponent with which the squares stay within the limit."""
        inside = math.log(best.exponents[number])
        return self._end(number, inside, LOWEST, limit), self._end(number, inside, HIGHEST, limit)

    def _end(self, number: int, inside: float, last: float, limit: float) -> _End:
        at_last = self.best({number: last})
        if at_last.squares <= limit:
            return _End(last, False, at_last)
        found = math.exp(
            _halved(lambda each: self.best({number: math.exp(each)}).squares <= limit, inside, math.log(last))
        )
        return _End(found, True, self.best({number: found}))

    def floors(self, best: _Solution, limit: float) -> Interval:
        """The lowest and the highest E with which the squares stay within the limit."""

        def fits(floor: float) -> bool:
            return self.best(given=floor).squares <= limit

        most = float(self.losses.min())
        low = 0.0 if fits(0.0) else _halved(fits, best.floor, 0.0)
        return low, most if fits(most) else _halved(fits, best.floor, most)
