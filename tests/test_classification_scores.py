"""Scores of labels: tables worked out by hand, brute force in plain loops, and exact binomial probabilities."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from regard.errors import RegardError
from regard.evaluate.bootstrap import share_interval
from regard.evaluate.classification import mcnemar, score_labels

NAMES = ("bad", "fair", "good")
# wanted:    bad x 4, fair x 3, good x 3
WANTED = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
PREDICTED = [0, 0, 0, 1, 1, 2, 1, 2, 2, 0]


def test_a_table_by_hand() -> None:
    scores = score_labels(PREDICTED, WANTED, NAMES)
    assert scores.confusion.tolist() == [[3, 1, 0], [0, 2, 1], [1, 0, 2]]
    assert scores.accuracy == pytest.approx(70.0)
    bad, fair, good = scores.labels
    assert (bad.label, bad.support, fair.support, good.support) == ("bad", 4, 3, 3)
    assert (bad.precision, bad.recall, bad.f1) == pytest.approx((75, 75, 75))
    assert (fair.precision, fair.recall, fair.f1) == pytest.approx((200 / 3, 200 / 3, 200 / 3))
    assert (good.precision, good.recall, good.f1) == pytest.approx((200 / 3, 200 / 3, 200 / 3))
    assert scores.macro_f1 == pytest.approx((75 + 200 / 3 + 200 / 3) / 3)
    assert str(scores).startswith("accuracy 70.0 [")


def test_precision_and_recall_are_not_each_other() -> None:
    """Of three `a` one is found; what is called `a` is always one."""
    first, second = score_labels([0, 1, 1, 1], [0, 0, 0, 1], ("a", "b")).labels
    assert (first.precision, first.recall, first.f1) == pytest.approx((100, 100 / 3, 50))
    assert (second.precision, second.recall, second.f1) == pytest.approx((100 / 3, 100, 50))


def test_labels_that_are_missing_on_one_side_or_both() -> None:
    """`b` occurs but is never predicted: F1 0 counts. `c` is predicted but never occurs: 0 counts. `d`: no F1 at all."""
    scores = score_labels([0, 0, 2], [0, 1, 0], ("a", "b", "c", "d"))
    a, b, c, d = scores.labels
    assert (a.precision, a.recall, a.f1) == pytest.approx((50, 50, 50))
    assert math.isnan(b.precision) and (b.recall, b.f1, b.support) == (0, 0, 1)
    assert math.isnan(c.recall) and (c.precision, c.f1, c.support) == (0, 0, 0)
    assert all(math.isnan(value) for value in (d.precision, d.recall, d.f1)) and d.support == 0
    assert scores.macro_f1 == pytest.approx(50 / 3)


def test_brute_force() -> None:
    draw = random.Random(3)
    for _ in range(20):
        count, size = draw.choice([2, 3, 7]), draw.randrange(1, 60)
        wanted = [draw.randrange(count) for _ in range(size)]
        predicted = [label if draw.random() < 0.6 else draw.randrange(count) for label in wanted]
        scores = score_labels(predicted, wanted, [f"l{place}" for place in range(count)])
        pairs = list(zip(predicted, wanted, strict=True))
        assert scores.accuracy == pytest.approx(100 * sum(p == w for p, w in pairs) / size)
        assert scores.low <= scores.accuracy <= scores.high
        assert scores.majority == pytest.approx(100 * max(wanted.count(label) for label in range(count)) / size)
        for row in range(count):
            for column in range(count):
                assert scores.confusion[row, column] == sum(w == row and p == column for p, w in pairs)
            both = sum(p == w == row for p, w in pairs)
            said, there = predicted.count(row), wanted.count(row)
            if said and there and both:
                precision, recall = both / said, both / there
                assert scores.labels[row].f1 == pytest.approx(200 * precision * recall / (precision + recall))
        known = [each.f1 for each in scores.labels if each.f1 == each.f1]
        assert scores.macro_f1 == pytest.approx(math.fsum(known) / len(known))


# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3 (Wilson's score interval).
PUBLISHED = {
    (81, 263): (0.2553, 0.3662),
    (15, 148): (0.0624, 0.1605),
    (0, 20): (0.0, 0.1611),
    (1, 29): (0.0061, 0.1718),
}


@pytest.mark.parametrize(("counts", "wanted"), PUBLISHED.items())
def test_the_interval_is_the_published_one(counts: tuple[int, int], wanted: tuple[float, float]) -> None:
    right, total = counts
    assert share_interval(right, total) == pytest.approx(wanted, abs=5e-5)
    low, high = share_interval(total - right, total)  # what is wrong instead: the mirror image
    assert (1 - high, 1 - low) == pytest.approx(wanted, abs=5e-5)
    scores = score_labels([0] * right + [1] * (total - right), [0] * total, ("a", "b"))
    assert (scores.low, scores.high) == pytest.approx((100 * wanted[0], 100 * wanted[1]), abs=5e-3)


def test_twenty_of_twenty_are_not_certainty() -> None:
    """The bug: the interval of 20 of 20 was [100, 100]. By hand: n / (n + z²) = 20 / 23.8415 = 0.8389."""
    scores = score_labels([0, 1] * 10, [0, 1] * 10, ("a", "b"))
    assert (scores.accuracy, scores.high) == (100, 100) and scores.low == pytest.approx(83.887, abs=1e-3)


def test_what_always_answering_the_most_frequent_label_gives() -> None:
    scores = score_labels([0] * 50, [0] * 49 + [1], ("ham", "spam"))
    assert (scores.accuracy, scores.frequent, scores.majority) == (98, "ham", 98)
    assert scores.macro_f1 == pytest.approx((100 * 98 / 99) / 2)  # F1 of ham is 2·49 / (50 + 49), of spam 0
    assert "(always ham: 98.0)" in str(scores)


def test_data_is_strict_json() -> None:
    data = score_labels([0, 0, 2], [0, 1, 0], ("a", "b", "c", "d")).data()
    found = json.loads(json.dumps(data, allow_nan=False))
    assert found == data
    assert found["labels"][3] == {"label": "d", "precision": None, "recall": None, "f1": None, "support": 0}
    assert found["confusion"] == [[1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert found["accuracy"] == pytest.approx(100 / 3)


def test_arrays_are_taken_and_results_cannot_be_changed() -> None:
    scores = score_labels(np.array(PREDICTED), np.array(WANTED, dtype=np.int32), NAMES)
    assert scores.accuracy == pytest.approx(70.0)
    with pytest.raises(ValueError, match="read-only"):
        scores.confusion[0, 0] = 9


@pytest.mark.parametrize(
    ("predicted", "wanted", "message"),
    [
        ([0, 1], [0], "2 predicted labels but 1 wanted"),
        ([], [], "nothing to score"),
        ([0, 3], [0, 1], "a predicted label is 3, but 3 labels are numbered from 0 to 2"),
        ([0, 1], [0, -1], "a wanted label is -1"),
        ([0.0, 1.0], [0, 1], "whole numbers"),
    ],
)
def test_wrong_input_is_told(predicted: list[int], wanted: list[int], message: str) -> None:
    with pytest.raises(RegardError, match=message):
        score_labels(predicted, wanted, NAMES)


# --- McNemar


def answers(both: int, only_a: int, only_b: int, neither: int) -> tuple[list[bool], list[bool]]:
    a = [True] * (both + only_a) + [False] * (only_b + neither)
    b = [True] * both + [False] * only_a + [True] * only_b + [False] * neither
    return a, b


def test_mcnemar_by_hand() -> None:
    """1 against 9 of ten tosses: twice (1 + 10) of 1024."""
    assert mcnemar(*answers(50, 9, 1, 5)) == pytest.approx(22 / 1024)
    assert mcnemar(*answers(50, 1, 9, 5)) == pytest.approx(22 / 1024)
    assert mcnemar(*answers(0, 0, 6, 0)) == pytest.approx(2 / 64)
    assert mcnemar(*answers(50, 3, 3, 5)) == 1.0
    assert mcnemar(*answers(50, 0, 0, 5)) == 1.0
    assert mcnemar([], []) == 1.0


def test_mcnemar_counts_every_row_of_tosses() -> None:
    for size in range(1, 11):
        for heads in range(size + 1):
            far = abs(2 * heads - size)
            rows = [[toss >> place & 1 for place in range(size)] for toss in range(2**size)]
            as_far = sum(abs(2 * sum(row) - size) >= far for row in rows)
            assert mcnemar(*answers(3, heads, size - heads, 2)) == pytest.approx(as_far / 2**size)


def test_mcnemar_on_a_large_test_set() -> None:
    """Near the middle the normal curve is close; far out the p-value is tiny, not an overflow."""
    p = mcnemar(*answers(20_000, 2_100, 1_900, 1_000))
    z = (abs(2_100 - 1_900) - 1) / math.sqrt(4_000)  # with the correction for continuity (Edwards 1948)
    assert p == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.01)
    assert 0.0 <= mcnemar(*answers(0, 5_000, 100, 0)) < 1e-300


def test_mcnemar_needs_the_same_examples() -> None:
    with pytest.raises(RegardError, match="2 answers of one classifier but 1 of the other"):
        mcnemar([True, False], [True])
