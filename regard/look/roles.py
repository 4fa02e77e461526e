"""Roles of heads by rule: numbers of their maps, each beside that of an even map, and a threshold for each rule.

A rule names some keys of a query, such as the one before it. Over many texts, `value` is the mean weight on these keys,
and `chance` the weight that an even map has there. What counts is how far the head goes from the one towards the whole:

    lift = (value - chance) / (1 - chance)      0 is an even map, 1 has all its weight on these keys

A rule holds where lift reaches its threshold. A head may meet several; the one with the greatest lift / threshold names
it ("nearby" only where no single place does). Only numpy is needed, so that maps from anywhere can be judged. Queries that
are special tokens, or that can see but one key, are left out; special keys count.

A rule that names keys is a predicate on places and labels, (T, S) booleans; `broad` and `alignment` are measured their
own way; `induction` is measured on texts of its own (Olsson et al. 2022) and only its threshold stands here; rules of
syntax need texts whose trees are known. The kinds of heads are those that people found in trained models: positional heads,
heads on separators and on syntax (Clark et al. 2019, "What does BERT look at?", sections 3 and 4.2; Voita et al. 2019,
section 5), first-token sinks (Xiao et al. 2024), alignment in the look at the source (Bahdanau et al. 2015, section 5.2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from regard.tokens.words import Words, is_special

OFFSETS = 8  # to each side, in the picture of a head's offsets
FEWEST = 4  # keys that a query must see for its breadth to mean something

Sums = tuple[np.ndarray, float, int]  # of each head (H,), of an even map, and over how many queries


@dataclass(frozen=True, eq=False)
class WordLinks:
    """Words of a target and a source, as pieces, and which of them belong together: (source word, target word)."""

    rows: Words
    columns: Words
    links: AbstractSet[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Looked:
    """Maps of the heads of one attention on one text."""

    weights: np.ndarray  # (H, T, S), nothing where it was not allowed
    allowed: np.ndarray  # (T, S)
    rows: Sequence[str]
    columns: Sequence[str]
    links: WordLinks | None = None
    syntax: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)  # by relation: (query, key) places
    crosses: bool = False  # rows are of another text than columns, even one that reads the same

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The place of each query (T, 1) and of each key (1, S)."""
        return np.arange(len(self.rows))[:, None], np.arange(len(self.columns))[None]


def on_keys(keys: Callable[[Looked], np.ndarray], looked: Looked) -> Sums | None:
    """The weight on some keys, over the queries that can see one of them and something else."""
    chosen = keys(looked) & looked.allowed  # (T, S)
    some, all_ = chosen.sum(axis=1), looked.allowed.sum(axis=1)  # (T,)
    asked = (some > 0) & (some < all_) & ~flags(looked.rows, is_special)
    if not asked.any():
        return None
    value = np.einsum("hts,ts->h", looked.weights[:, asked], chosen[asked])
    return value, float((some[asked] / all_[asked]).sum()), int(asked.sum())


def breadth(looked: Looked) -> Sums | None:
    """The entropy of a row, divided by that of an even row."""
    sees = looked.allowed.sum(axis=1)
    asked = (sees >= FEWEST) & ~flags(looked.rows, is_special)
    if not asked.any():
        return None
    weights = looked.weights[:, asked]
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=-1)  # (H, T)
    return (entropy / np.log(sees[asked])).sum(axis=1), 0.0, int(asked.sum())


def alignment(looked: Looked, late: int = 0) -> Sums | None:
    """Count the target words whose most attended source word is among those that they are linked to.

    Rows of a map write their words; `late` 1 asks where the query looks that has just read the word. The weight of a
    word is the sum over its pieces, and the mean over the pieces of who looks. Special tokens are no words.
    """
    if looked.links is None or not looked.links.links:
        return None
    rows, columns, links = looked.links.rows, looked.links.columns, looked.links.links
    linked = np.zeros((len(rows), len(columns)), dtype=bool)
    linked[[t for _, t in links], [s for s, _ in links]] = True
    mean, add = np.zeros((len(rows), len(looked.rows))), np.zeros((len(looked.columns), len(columns)))
    for number, word in enumerate(rows):
        mean[number, [place + late for place in word if place + late < len(looked.rows)]] = 1 / len(word)
    for number, word in enumerate(columns):
        add[list(word), number] = 1
    best = (mean @ looked.weights @ add).argmax(axis=-1)  # (H, target words)
    asked = linked.any(axis=1)
    hits = linked[np.arange(len(rows)), best][:, asked]  # (H, asked)
    return hits.sum(axis=1).astype(float), float(linked[asked].mean(axis=1).sum()), int(asked.sum())


def offsets_of(looked: Looked | None, heads: int) -> np.ndarray:
    """Sums of weights, and counts, by distance from a query's own place (2, H, 2 * OFFSETS + 1).

    Between two texts of unlike length, a query's own place is the one as far through the other text.
    """
    sums = np.zeros((2, heads, 2 * OFFSETS + 1))
    if looked is None:
        return sums
    distance = looked.places[1] - own_place(looked)  # (T, S)
    asked = ~flags(looked.rows, is_special)[:, None] & looked.allowed & (np.abs(distance) <= OFFSETS)
    place = distance[asked] + OFFSETS
    for head in range(heads):
        sums[0, head] = np.bincount(place, looked.weights[head][asked], minlength=2 * OFFSETS + 1)
    sums[1] = np.bincount(place, minlength=2 * OFFSETS + 1)
    return sums


def own_place(looked: Looked) -> np.ndarray:
    """Places of the queries among the columns: (T, 1)."""
    rows, columns = len(looked.rows), len(looked.columns)
    return (
        np.arange(rows)[:, None] if rows == columns else np.rint(np.arange(rows) * columns / rows).astype(int)[:, None]
    )


def flags(labels: Sequence[str], of: Callable[[str], bool]) -> np.ndarray:
    """Mark the labels of which something is true."""
    return np.array([of(label) for label in labels], dtype=bool)


NEAR = 3  # places to each side


@dataclass(frozen=True)
class Rule:
    """`measure` is None of a text that has nothing to measure."""

    name: str
    roles: tuple[str, ...]
    threshold: float  # of the lift
    keys: str  # what it asks about, in words
    why: str  # that threshold
    measure: Callable[[Looked], Sums | None]


def _on(keys: Callable[[Looked], np.ndarray]) -> Callable[[Looked], Sums | None]:
    return lambda looked: on_keys(keys, looked)


def _at(distance: int) -> Callable[[Looked], Sums | None]:
    return _on(lambda looked: looked.places[1] - looked.places[0] == distance)


def _near(looked: Looked) -> np.ndarray:
    return np.abs(looked.places[1] - looked.places[0]) <= NEAR


def _first(looked: Looked) -> np.ndarray:
    """The first key, of queries to which it is neither the nearest nor the one before."""
    rows, columns = looked.places
    return (columns == 0) & ((rows >= 2) | (len(looked.rows) == 1))


def _end(looked: Looked) -> np.ndarray:
    return (flags(looked.columns, is_special)[None] & (looked.places[1] > 0)) & _others(looked)


def _marks(looked: Looked) -> np.ndarray:
    return flags(looked.columns, is_mark)[None] & _others(looked)


def _related(relation: str, early: int = 0) -> Callable[[Looked], Sums | None]:
    """Keys that grammar relates to a query, or to the word `early` places on; what stands next to it does not count."""

    def keys(looked: Looked) -> np.ndarray:
        found = np.zeros((len(looked.rows), len(looked.columns)), dtype=bool)
        for query, key in looked.syntax.get(relation, ()):
            if abs(query - early - key) > 1:
                found[query - early, key] = True
        return found

    return _on(keys)


def _same(looked: Looked) -> np.ndarray:
    rows, columns = (np.array([_plain(label) for label in labels]) for labels in (looked.rows, looked.columns))
    return (rows[:, None] == columns[None]) & ~flags(looked.columns, is_special)[None] & _others(looked)


def _diagonal(looked: Looked) -> np.ndarray:
    return np.abs(looked.places[1] - own_place(looked)) <= 1


def _others(looked: Looked) -> np.ndarray:
    """Not the query itself, where rows and columns are of one text."""
    rows, columns = looked.places
    return (rows != columns) | looked.crosses


@lru_cache(maxsize=100_000)
def is_mark(label: str) -> bool:
    """Whether a label is punctuation."""
    text = label.strip()
    return bool(text) and not is_special(label) and not any(letter.isalnum() for letter in text)


@lru_cache(maxsize=100_000)
def _plain(label: str) -> str:
    return label.strip().casefold() or label


_OWN, _ALL = ("self", "causal"), ("self", "causal", "cross", "pool")
_SOME = "two fifths of the way from an even map to all of the weight: what is left is spread over many keys"
_KNOWN = f"{_SOME}; only in texts whose trees are known (builtin/sentences)"
_LINKED = "the aligner errs on some words, so that not even a perfect head would reach 1"
_TABLE = (
    Rule("previous token", _OWN, 0.4, "the key before the query", _SOME, _at(-1)),
    Rule("next token", ("self",), 0.4, "the key behind the query", _SOME, _at(1)),
    Rule("itself", _OWN, 0.4, "the query's own place", _SOME, _at(0)),
    *(Rule(f"{n} back", _OWN, 0.4, f"the key {n} places before", _SOME, _at(-n)) for n in (2, 3)),
    *(Rule(f"{n} ahead", ("self",), 0.4, f"the key {n} places behind", _SOME, _at(n)) for n in (2, 3)),
    Rule("nearby", _OWN, 0.6, f"keys at most {NEAR} places away", "most of the weight, but not on one place", _on(_near)),
    Rule("first token", _ALL, 0.4, "the first key, from the third query on", _SOME, _on(_first)),
    Rule("end token", _ALL, 0.4, "special keys behind the first", _SOME, _on(_end)),
    Rule("punctuation", _ALL, 0.4, "other keys that are punctuation", _SOME, _on(_marks)),
    Rule("subject of a verb", _OWN, 0.4, "the subject of a verb that does not stand beside it", _KNOWN, _related("subject")),
    Rule(
        "subject of the next verb", ("causal",), 0.4, "the subject of the verb to come, of the word before the verb", _KNOWN,
        _related("subject", early=1),
    ),
    Rule("article of a noun", _OWN, 0.4, "the article of a noun that does not stand beside it", _KNOWN, _related("article")),
    Rule(
        "article of the next noun", ("causal",), 0.4, "the article of the noun to come, of the word before the noun", _KNOWN,
        _related("article", early=1),
    ),
    Rule("opening bracket", _OWN, 0.4, "of a closing bracket, the one that it closes", _KNOWN, _related("bracket")),
    Rule(
        "bracket to close", ("causal",), 0.4, "the bracket that the next one closes, of the word before that", _KNOWN,
        _related("bracket", early=1),
    ),
    Rule(
        "same word", ("self", "causal", "cross"), 0.25, "other keys with the query's own token, where there are any",
        "lower than others, since such a key is often far away among many", _on(_same),
    ),
    Rule(
        "same place", ("cross",), 0.5, "keys within one place of where the query stands, seen by the lengths",
        "half of the way: words near each other are often translated near each other, whatever a head does",
        _on(_diagonal),
    ),
    Rule("alignment", ("cross",), 0.4, "the source word that an aligner links to the word to write", _LINKED, alignment),
    Rule(
        "late alignment", ("cross",), 0.4, "the source word that an aligner links to the word just read", _LINKED,
        lambda each: alignment(each, late=1),
    ),
    Rule(
        "broad", _ALL, 0.8, "entropy of a row, divided by that of an even one", "no few keys have most of the weight",
        breadth,
    ),
    Rule(
        "induction", ("causal",), 0.1, "on random tokens that come twice, the token behind the first occurrence",
        "lower than others, since on random tokens nothing but the repetition can draw weight there", lambda each: None,
    ),
)  # fmt: skip
RULES: dict[str, Rule] = {rule.name: rule for rule in _TABLE}


@lru_cache(maxsize=16)
def rules_for(role: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in _TABLE if role in rule.roles)


NO_RULE = "no rule"
CROSSING = ("cross", "pool")  # roles that look from one text, or from none, at another
IMPLIED = ("nearby",)  # by each rule of one place within its reach


@dataclass(frozen=True)
class Measure:
    """The value that one rule measured of one head, beside that of an even map."""

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
        """Measures of every rule that had something to measure."""
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
    """Return a value that was measured elsewhere as the measure of a rule."""
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
