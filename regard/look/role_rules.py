"""The rules by which heads are named: which keys each asks about, its threshold, and why that one.

A rule that names keys is a predicate on places and labels, (T, S) booleans; `broad` and `alignment` are measured their
own way; `induction` is measured on texts of its own (Olsson et al. 2022) and only its threshold stands here. The kinds
of heads are those that people found in trained models: positional heads and heads on separators (Clark et al. 2019, "What
does BERT look at?", section 3; Voita et al. 2019, section 5), first-token sinks (Xiao et al. 2024), alignment in the
look at the source (Bahdanau et al. 2015, section 5.2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from regard.look.role_measures import Looked, Sums, alignment, breadth, flags, on_keys, own_place
from regard.tokens.words import is_special

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
