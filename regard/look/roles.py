"""What a head does, by rule: numbers of its maps, each beside what an even map would give, and a threshold for each.

A rule names some keys of a query, such as the one before it. Over many texts, `value` is the mean weight on these keys,
and `chance` the weight that an even map has there. What counts is how far the head goes from the one towards the whole:

    lift = (value - chance) / (1 - chance)      0 is an even map, 1 has all its weight on these keys

A rule holds where lift reaches its threshold. A head may meet several; the one with the greatest lift / threshold names
it ("nearby" only where no single place does). Only numpy is needed, so that maps from anywhere can be judged. Queries that
are special tokens, or that can see but one key, are left out; special keys count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.look.role_measures import Looked, offsets_of
from regard.look.role_rules import RULES, Rule, rules_for

NO_RULE = "no rule"
CROSSING = ("cross", "pool")  # roles that look from one text, or from none, at another
IMPLIED = ("nearby",)  # by each rule of one place within its reach


@dataclass(frozen=True)
class Measure:
    """What one rule measured of one head."""

    value: float
    chance: float  # what an even map gives
    queries: int  # over how many the mean is
    threshold: float  # of the lift

    @property
    def lift(self) -> float:
        return (self.value - self.chance) / max(1e-9, 1 - self.chance)

    @property
    def strength(self) -> float:
        """From 1 on the rule holds."""
        return self.lift / self.threshold

    @property
    def holds(self) -> bool:
        return self.strength >= 1

    def data(self) -> dict[str, float | int | bool]:
        numbers = {"value": self.value, "chance": self.chance, "lift": self.lift, "threshold": self.threshold}
        return {**numbers, "queries": self.queries, "holds": self.holds}


class Tally:
    """Adds up what the rules measure of the heads of one attention, text after text."""

    def __init__(self, role: str, heads: int) -> None:
        self.role, self.heads = role, heads
        self._sums = {rule.name: (np.zeros(heads), 0.0, 0) for rule in rules_for(role)}
        self._offsets = offsets_of(None, heads)

    def add(self, looked: Looked) -> None:
        """One text more."""
        looked = replace(looked, crosses=self.role in CROSSING)
        for rule in rules_for(self.role):
            found = rule.measure(looked)
            if found is not None:
                value, chance, queries = self._sums[rule.name]
                self._sums[rule.name] = value + found[0], chance + found[1], queries + found[2]
        if self.role != "pool":
            self._offsets = self._offsets + offsets_of(looked, self.heads)

    def measures(self, head: int) -> dict[str, Measure]:
        """Of every rule that had something to measure."""
        return {
            rule.name: measure(rule, float(value[head]) / queries, chance / queries, queries)
            for rule in rules_for(self.role)
            for value, chance, queries in [self._sums[rule.name]]
            if queries
        }

    def offsets(self, head: int) -> tuple[float, ...]:
        """The mean weight at each distance from a query's own place, from far before it to far behind; NaN: none there."""
        weights, counts = self._offsets[0, head], self._offsets[1, head]
        return tuple(np.divide(weights, counts, out=np.full(len(counts), np.nan), where=counts > 0).tolist())


def measure(rule: Rule | str, value: float, chance: float, queries: int) -> Measure:
    """What was measured elsewhere, as the measure of a rule."""
    rule = RULES[rule] if isinstance(rule, str) else rule
    return Measure(value, chance, queries, rule.threshold)


def names_of(measures: dict[str, Measure]) -> tuple[str, ...]:
    """The rules that hold, the strongest first; what is implied by others that hold comes last."""
    holding = [name for name, each in measures.items() if each.holds]
    return tuple(sorted(holding, key=lambda name: (name in IMPLIED, -measures[name].strength)))


def rules_as_data(names: Sequence[str]) -> list[dict[str, str | float]]:
    """The rules with their thresholds and reasons, for JSON and for people."""
    return [
        {"rule": name, "keys": rule.keys, "threshold": rule.threshold, "why": rule.why}
        for name, rule in RULES.items()
        if name in names
    ]
