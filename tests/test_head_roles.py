"""What a head does, by rule: made maps whose role is known, numbers against plain loops, and thresholds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.look.roles import (
    OFFSETS,
    RULES,
    Looked,
    Measure,
    Tally,
    WordLinks,
    measure,
    names_of,
    rules_as_data,
    rules_for,
)

SOURCE = ("once", " old", " king", " saw", " the", " sea", ",", " the", " moon", "</s>")


def causal(size: int) -> np.ndarray:
    return np.tril(np.ones((size, size), dtype=bool))


def even(allowed: np.ndarray) -> np.ndarray:
    return allowed / allowed.sum(axis=1, keepdims=True)


def spiked(allowed: np.ndarray, chosen: np.ndarray, share: float) -> np.ndarray:
    """Rows that give `share` to the chosen keys and the rest to all evenly; rows without a chosen key are even."""
    base, some = even(allowed), chosen & allowed
    has = some.any(axis=1, keepdims=True)
    return np.where(has, share * some / np.maximum(1, some.sum(axis=1, keepdims=True)) + (1 - share) * base, base)


def found(weights: np.ndarray, allowed: np.ndarray, role: str, rows: tuple[str, ...] = SOURCE) -> dict[str, Measure]:
    tally = Tally(role, 1)
    tally.add(Looked(weights[None], allowed, rows, SOURCE))
    return tally.measures(0)


def places(size: int = len(SOURCE)) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(size)[:, None], np.arange(size)[None]


def keys_of(name: str) -> np.ndarray:
    """The keys of each rule on SOURCE, said again, cell by cell."""
    size = len(SOURCE)
    chosen = np.zeros((size, size), dtype=bool)
    for t in range(size):
        for s in range(size):
            same = SOURCE[t].strip() == SOURCE[s].strip() and s != t and SOURCE[s] != "</s>"
            chosen[t, s] = {
                "previous token": s == t - 1,
                "next token": s == t + 1,
                "itself": s == t,
                "2 back": s == t - 2,
                "3 ahead": s == t + 3,
                "nearby": abs(s - t) <= 3,
                "first token": s == 0 and t >= 2,
                "end token": s == size - 1 and s != t,
                "punctuation": SOURCE[s] == "," and s != t,
                "same word": same,
            }[name]
    return chosen


NAMES = (
    "previous token",
    "next token",
    "itself",
    "2 back",
    "3 ahead",
    "first token",
    "end token",
    "punctuation",
    "same word",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_made_head_is_named_after_what_it_does(name: str) -> None:
    allowed = np.ones((len(SOURCE), len(SOURCE)), dtype=bool)
    measures = found(spiked(allowed, keys_of(name), 0.8), allowed, "self")
    assert names_of(measures)[0] == name
    weak = found(spiked(allowed, keys_of(name), 0.1), allowed, "self")
    assert name not in names_of(weak)


@pytest.mark.parametrize("name", [*NAMES, "nearby"])
@pytest.mark.parametrize("role", ["self", "causal"])
def test_numbers_are_means_over_the_queries_that_have_a_choice(name: str, role: str) -> None:
    """Against loops: special queries are left out, and those that see only such keys, or none."""
    if name not in {rule.name for rule in rules_for(role)}:
        return
    size = len(SOURCE)
    allowed = causal(size) if role == "causal" else np.ones((size, size), dtype=bool)
    draw = np.random.default_rng(3)
    weights = np.where(allowed, draw.random((size, size)), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    chosen = keys_of(name) & allowed
    values, chances = [], []
    for t in range(size):
        hits = [s for s in range(size) if chosen[t, s]]
        if SOURCE[t] != "</s>" and 0 < len(hits) < allowed[t].sum():
            values.append(sum(weights[t, s] for s in hits))
            chances.append(len(hits) / allowed[t].sum())
    measures = found(weights, allowed, role)
    if not values:
        assert name not in measures
        return
    got = measures[name]
    assert (got.value, got.chance) == pytest.approx((np.mean(values), np.mean(chances)))
    assert got.queries == len(values)
    assert got.lift == pytest.approx((np.mean(values) - np.mean(chances)) / (1 - np.mean(chances)))


@pytest.mark.parametrize("role", ["self", "causal"])
def test_an_even_map_is_broad_and_nothing_else(role: str) -> None:
    size = len(SOURCE)
    allowed = causal(size) if role == "causal" else np.ones((size, size), dtype=bool)
    measures = found(even(allowed), allowed, role)
    assert names_of(measures) == ("broad",)
    assert measures["broad"].value == pytest.approx(1.0)
    assert all(each.lift == pytest.approx(0.0, abs=1e-12) for name, each in measures.items() if name != "broad")


def test_breadth_is_entropy_over_that_of_an_even_row() -> None:
    size = len(SOURCE)
    allowed = np.ones((size, size), dtype=bool)
    row = np.array([0.5, 0.25, 0.25] + [0.0] * (size - 3))
    got = found(np.tile(row, (size, 1)), allowed, "self")["broad"]
    assert got.value == pytest.approx(1.5 * math.log(2) / math.log(size))
    assert not got.holds


def test_early_queries_do_not_make_a_first_token_sink() -> None:
    """A head that looks one back gives the second query's weight to the first token, which is not counted as a sink."""
    allowed = causal(len(SOURCE))
    measures = found(spiked(allowed, keys_of("previous token"), 1.0), allowed, "causal")
    assert measures["first token"].value == pytest.approx(0.0)
    assert names_of(measures)[0] == "previous token"


TARGET = ("der", " alte", " kö", "nig", "</s>")
LINKS = WordLinks([(0,), (1,), (2, 3)], [(0,), (1,), (2,)], frozenset({(1, 1), (2, 2)}))
COLUMNS = ("the", " old", " king", "</s>")


def crossed(weights: list[list[float]]) -> dict[str, Measure]:
    tally = Tally("cross", 1)
    array = np.array(weights)
    tally.add(Looked(array[None], np.ones(array.shape, dtype=bool), TARGET, COLUMNS, LINKS))
    return tally.measures(0)


def test_alignment_counts_words_and_not_pieces() -> None:
    """Of the word of two pieces the mean counts; the end token is no word, though it has the most weight."""
    got = crossed([
        [0.9, 0.0, 0.0, 0.1],
        [0.1, 0.3, 0.0, 0.6],  # old: linked
        [0.0, 0.5, 0.4, 0.1],  # kö: alone it would be "old"
        [0.0, 0.2, 0.4, 0.4],  # nig: together 0.35 old, 0.4 king
        [0.0, 0.0, 0.0, 1.0],
    ])["alignment"]  # fmt: skip
    assert (got.value, got.chance, got.queries) == (1.0, pytest.approx(1 / 3), 2)


def test_late_alignment_asks_the_query_that_has_read_the_word() -> None:
    rows = [
        [1.0, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],  # has read alte
        [0.0, 0.1, 0.9, 0.0],  # has read kö
        [0.0, 0.0, 1.0, 0.0],  # has read nig
    ]
    got = crossed(rows)
    assert got["late alignment"].value == 1.0
    assert got["alignment"].value == 0.0  # of the word könig, rows 2 and 3 together look more at old
    assert names_of(got)[0] == "late alignment"


def test_weights_by_distance_are_means_over_what_is_there() -> None:
    size = 4
    tally = Tally("causal", 1)
    weights = np.array([[1.0, 0, 0, 0], [0.75, 0.25, 0, 0], [0.5, 0.25, 0.25, 0], [0.0, 0.0, 0.5, 0.5]])
    tally.add(Looked(weights[None], causal(size), SOURCE[:size], SOURCE[:size]))
    got = dict(zip(range(-OFFSETS, OFFSETS + 1), tally.offsets(0), strict=True))
    assert got[0] == pytest.approx((1 + 0.25 + 0.25 + 0.5) / 4)
    assert got[-1] == pytest.approx((0.75 + 0.25 + 0.5) / 3)
    assert got[-3] == 0.0 and math.isnan(got[1]) and math.isnan(got[-4])


def test_texts_add_up_by_queries() -> None:
    """A long text counts more than a short one; heads do not mix."""
    tally = Tally("causal", 2)
    for size, share in ((4, 1.0), (9, 0.0)):
        allowed, (rows, columns) = causal(size), places(size)
        both = np.stack([spiked(allowed, rows - 1 == columns, share), even(allowed)])
        tally.add(Looked(both, allowed, SOURCE[:size], SOURCE[:size]))
    wanted = (3 * 1.0 + sum(1 / n for n in range(2, 10))) / (3 + 8)
    assert tally.measures(0)["previous token"].value == pytest.approx(wanted)
    assert tally.measures(1)["previous token"].lift == pytest.approx(0.0)


def test_the_strongest_rule_comes_first_in_proportion_to_its_threshold() -> None:
    same, previous = measure("same word", 0.40, 0.1, 7), measure("previous token", 0.47, 0.1, 7)
    assert same.strength == pytest.approx(0.3 / 0.9 / 0.25) and previous.strength == pytest.approx(0.37 / 0.9 / 0.4)
    assert names_of({"previous token": previous, "same word": same, "itself": measure("itself", 0.3, 0.1, 7)}) == (
        "same word", "previous token",
    )  # fmt: skip


def test_what_one_place_implies_does_not_name_a_head() -> None:
    previous, nearby = measure("previous token", 0.5, 0.0, 7), measure("nearby", 0.9, 0.0, 7)
    assert nearby.strength > previous.strength
    assert names_of({"nearby": nearby, "previous token": previous}) == ("previous token", "nearby")


def test_every_rule_says_what_and_why() -> None:
    rows = rules_as_data(list(RULES))
    assert [row["rule"] for row in rows] == list(RULES)
    assert all(0 < float(row["threshold"]) < 1 and len(str(row["why"])) > 20 and row["keys"] for row in rows)


def test_a_copy_of_the_source_is_not_the_source() -> None:
    """Of a target that reads as its source, the key at the query's own place is another token: the same word."""
    labels = ("a", " b", " c", " d")
    tally = Tally("cross", 1)
    tally.add(Looked(np.eye(4)[None], np.ones((4, 4), dtype=bool), labels, labels))
    assert tally.measures(0)["same word"].value == 1.0
    tally = Tally("self", 1)
    tally.add(Looked(np.eye(4)[None], np.ones((4, 4), dtype=bool), labels, labels))
    assert "same word" not in tally.measures(0)
