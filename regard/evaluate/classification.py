"""Scores of predicted labels: accuracy with its uncertainty, F1 of each label, and who was taken for whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import RegardError, UsageError
from regard.evaluate.bootstrap import share_interval
from regard.files import JSON, finite


@dataclass(frozen=True)
class LabelScore:
    """One label against all others, in percent. NaN is 0/0: precision if it was never predicted, recall if it never
    occurs, F1 if neither."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int  # how often it occurs


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class ClassificationScores:
    """How well labels were predicted, in percent. Micro F1 would be the accuracy again."""

    accuracy: float
    low: float  # the 95% confidence interval (Wilson's)
    high: float
    macro_f1: float  # the mean over labels that occur or were predicted; the others have no F1 and do not count
    frequent: str  # the label that occurs most often
    majority: float  # the accuracy of whoever always answers that
    labels: tuple[LabelScore, ...]
    confusion: np.ndarray  # (C, C) counts: rows are wanted, columns predicted

    def __str__(self) -> str:
        always = f"always {self.frequent}: {self.majority:.1f}"
        return (
            f"accuracy {self.accuracy:.1f} [{self.low:.1f}, {self.high:.1f}] ({always}), macro F1 {self.macro_f1:.1f}"
        )

    def data(self) -> dict[str, JSON]:
        """All numbers as strict JSON holds them: NaN is null."""
        labels = [vars(each) for each in self.labels]
        whole: dict[str, JSON] = {
            "accuracy": self.accuracy,
            "low": self.low,
            "high": self.high,
            "macro_f1": self.macro_f1,
        }
        whole |= {"frequent": self.frequent, "majority": self.majority}
        return finite({**whole, "labels": labels, "confusion": self.confusion.tolist()})


def score_labels(predicted: Sequence[int], wanted: Sequence[int], labels: Sequence[str]) -> ClassificationScores:
    """Score predicted numbers of labels against the wanted ones."""
    confusion = confusion_matrix(predicted, wanted, labels)  # (C, C)
    right, total = int(confusion.trace()), int(confusion.sum())
    low, high = (100 * end for end in share_interval(right, total))
    scores = tuple(_label_score(name, place, confusion) for place, name in enumerate(labels))
    counting = [each.f1 for each in scores if not math.isnan(each.f1)]  # never empty: some label occurs
    most = max(scores, key=lambda each: each.support)
    return ClassificationScores(
        100 * right / total,
        low,
        high,
        sum(counting) / len(counting),
        most.label,
        100 * most.support / total,
        scores,
        confusion,
    )


def confusion_matrix(predicted: Sequence[int], wanted: Sequence[int], labels: Sequence[str]) -> np.ndarray:
    """How often each label was taken for each: (C, C), rows wanted, columns predicted."""
    if len(predicted) != len(wanted):
        raise RegardError(
            f"{len(predicted)} predicted labels but {len(wanted)} wanted ones", "give one for each, in the same order"
        )
    if len(wanted) == 0:
        raise RegardError("nothing to score: 0 predicted labels and 0 wanted ones")
    rows, columns = _numbers(wanted, len(labels), "wanted"), _numbers(predicted, len(labels), "predicted")
    counts = np.bincount(rows * len(labels) + columns, minlength=len(labels) ** 2).reshape(len(labels), len(labels))
    counts.flags.writeable = False
    return counts


def top_k_accuracy(scores: np.ndarray, wanted: Sequence[int], k: int = 5) -> float:
    """How often the wanted label is among the k that score highest, in percent; `scores` is (N, C).

    Of equal scores the first counts as higher, as in argmax, so that k = 1 is the accuracy.
    """
    scores = np.asarray(scores)
    if scores.ndim != 2 or len(scores) != len(wanted):
        raise RegardError(
            f"scores of shape {scores.shape} for {len(wanted)} wanted labels", "give a row for each of them"
        )
    if not len(scores):
        raise RegardError("nothing to score: 0 rows of scores and 0 wanted labels")
    if not 1 <= k <= scores.shape[1]:
        raise UsageError(f"k is {k}, but there are {scores.shape[1]} labels", f"give 1 to {scores.shape[1]}")
    if np.isnan(scores).any():
        raise RegardError("a score is NaN, which has no rank", "give numbers only")
    labels = _numbers(wanted, scores.shape[1], "wanted")[:, None]  # (N, 1)
    own = np.take_along_axis(scores, labels, axis=1)  # (N, 1)
    before = (scores > own) | ((scores == own) & (np.arange(scores.shape[1]) < labels))  # (N, C)
    return 100 * float((before.sum(axis=1) < k).mean())


def f1_error(confusion: np.ndarray, resamples: int = 200, seed: int = 12345) -> float:
    """The standard error of macro F1, by bootstrap resampling (Efron 1979): the examples drawn anew with replacement."""
    wanted, predicted = np.nonzero(confusion)  # only cells that occur can be drawn
    counts = confusion[wanted, predicted]
    drawn = np.random.default_rng(seed).multinomial(counts.sum(), counts / counts.sum(), size=resamples)  # (R, cells)
    labels = np.arange(len(confusion))
    rows, columns = wanted[:, None] == labels, predicted[:, None] == labels  # (cells, C)
    with np.errstate(invalid="ignore"):  # a label that was not drawn has no F1 and does not count
        f1 = 2 * (drawn @ (rows & columns)) / (drawn @ rows + drawn @ columns)  # (R, C)
    return 100 * float(np.nanmean(f1, axis=1).std())


def mcnemar(a_right: Sequence[bool], b_right: Sequence[bool]) -> float:
    """How likely two equally good classifiers differ at least this much on the same examples (McNemar 1947).

    Only the n examples on which exactly one is right tell them apart. Were both equally good, each of these would be a
    toss of a coin, so that the exact two-sided p-value is twice the tail of a binomial: 2 Σ_{k ≤ fewer} C(n, k) / 2ⁿ.
    """
    if len(a_right) != len(b_right):
        raise RegardError(
            f"{len(a_right)} answers of one classifier but {len(b_right)} of the other", "give both on all"
        )
    only_a = sum(bool(a) and not b for a, b in zip(a_right, b_right, strict=True))
    only_b = sum(bool(b) and not a for a, b in zip(a_right, b_right, strict=True))
    tosses, tail, ways = only_a + only_b, 0, 1
    for heads in range(min(only_a, only_b) + 1):
        tail += ways  # C(tosses, heads), in whole numbers, so that no size of test set rounds it away
        ways = ways * (tosses - heads) // (heads + 1)
    return min(1.0, 2 * tail / 2**tosses)  # an even split counts its middle twice


def _numbers(values: Sequence[int], count: int, what: str) -> np.ndarray:
    """Numbers of labels, checked: whole, and from 0 to one less than there are labels."""
    numbers = np.asarray(values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise RegardError(
            f"{what} labels are whole numbers in one row, not {numbers.dtype} of shape {numbers.shape}",
            "give the place of each label in the list of labels",
        )
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if len(wrong):
        raise RegardError(f"a {what} label is {wrong[0]}, but {count} labels are numbered from 0 to {count - 1}")
    return numbers.astype(np.int64)


def _label_score(name: str, place: int, confusion: np.ndarray) -> LabelScore:
    both, support, times = (
        int(n) for n in (confusion[place, place], confusion[place].sum(), confusion[:, place].sum())
    )
    return LabelScore(
        name, _percent(both, times), _percent(both, support), _percent(2 * both, times + support), support
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else math.nan
